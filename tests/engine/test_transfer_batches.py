"""Wherever batches end and whenever the process dies, the same corpus comes back, and nothing is lost in silence."""

import asyncio
from typing import Any

import psycopg
import pytest

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import ConflictError, InvalidInputError
from corbits_memory.ports import EntityHint, NewDocument, TextPart
from tests.engine.support import OpenStore, add, find, note, refs, turn
from tests.engine.transferring import content, lines_of, of_kind, restore, restore_until
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]


async def corpus(store: PostgresDocumentStore) -> None:
    """Documents with several versions, long ones, claims, turns, and things that they are about."""
    for n in range(3):
        await add(
            store,
            *(note(f"word{i} in its {n}. version", external_ref=f"d{i}", title=f"D{i}") for i in range(4)),
        )
    parts = tuple(TextPart(text=f"part {n}") for n in range(7))
    await add(store, NewDocument(title="Long", parts=parts, external_ref="long"))
    await add(store, NewDocument(title="Bare", parts=(), external_ref="bare"))
    (source,) = await add(store, note("the source", external_ref="source"))
    hint = EntityHint(kind="person", identifier="ada", label="Ada")
    await add(
        store, note("a claim", derived_from=(source.version_id,), entity_hints=(hint,), external_ref="c")
    )
    await add(store, *(turn(n, f"turn number{n}") for n in range(4)))


async def state(owner: Owner, tenant: str) -> tuple[Any, ...]:
    """What is counted and what is searched, which no export tells."""
    row = await (
        await owner.execute(
            "SELECT document_count, chunk_count, feed_seq, (SELECT count(*) FROM memory.feed_event e "
            "WHERE e.tenant_id = s.tenant_id), (SELECT string_agg(format('%%s %%s %%s %%s %%s %%s', r.chunk_id, "
            "r.status, r.context_key, r.words, r.fts, r.access_tags), E'\\n' ORDER BY r.chunk_id) FROM "
            "memory.search_row r WHERE r.tenant_id = s.tenant_id) FROM memory.tenant_state s WHERE tenant_id = %s",
            [tenant],
        )
    ).fetchone()
    assert row is not None
    return tuple(row)


async def test_every_size_of_batch_gives_the_same(store: PostgresDocumentStore, owner: Owner) -> None:
    await corpus(store)
    lines = await lines_of(store)
    expected = None
    for size in [*range(1, 30), len(lines) - 2, len(lines) - 1, len(lines), 1_000]:
        tenant = f"of {size}"
        done = await restore(store, lines, tenant=tenant, batch_lines=size)
        assert (done.documents, done.versions, done.skipped, done.erased) == (12, 20, 0, 0)
        assert content(await lines_of(store, tenant=tenant)) == content(lines)
        found = await state(owner, tenant)
        expected = expected or found
        assert found == expected


async def test_killed_after_any_batch_it_goes_on(store: PostgresDocumentStore, owner: Owner) -> None:
    await corpus(store)
    lines = await lines_of(store)
    await restore(store, lines, tenant="whole")
    for batches in range(1, 22):
        tenant = f"after {batches}"
        await restore_until(store, lines, batches=batches, tenant=tenant, batch_lines=1)
        await restore(store, lines, tenant=tenant, batch_lines=3)
        assert content(await lines_of(store, tenant=tenant)) == content(lines)
        assert await state(owner, tenant) == await state(owner, "whole")


@pytest.mark.parametrize("size", [7, 199, 200, 201, 1_000, 5_000])
async def test_more_documents_than_a_page_come_back_with_their_text(
    store: PostgresDocumentStore, owner: Owner, size: int
) -> None:
    documents = [note(f"lighthouse number{n}", external_ref=f"d{n}") for n in range(450)]
    await add(store, *documents)
    lines = await lines_of(store)
    assert len(of_kind(lines, "chunk")) == 450
    done = await restore(store, lines, tenant="other", batch_lines=size)
    assert (done.documents, done.versions, done.chunks) == (450, 450, 450)
    assert content(await lines_of(store, tenant="other")) == content(lines)
    for n in (0, 199, 200, 201, 399, 400, 449):
        assert refs(await find(store, f"number{n}", tenant="other"))[0] == f"d{n}"


async def test_a_version_longer_than_a_page_and_one_of_many_versions(store: PostgresDocumentStore) -> None:
    long = tuple(TextPart(text=f"part {n}") for n in range(1_100))
    await add(store, NewDocument(title="Long", parts=long, external_ref="long"))
    for n in range(205):
        await add(store, note(f"version {n}", external_ref="often"))
    await add(store, NewDocument(title="Longer", parts=long[:600], external_ref="longer"))
    lines = await lines_of(store)
    assert [len(of_kind(lines, kind)) for kind in ("document", "version", "chunk")] == [3, 207, 1_905]
    await restore(store, lines, tenant="other", batch_lines=50)
    assert content(await lines_of(store, tenant="other")) == content(lines)


async def test_a_file_that_lacks_lines_is_an_error(store: PostgresDocumentStore) -> None:
    await corpus(store)
    lines = await lines_of(store)
    for place in range(1, len(lines)):
        with pytest.raises(InvalidInputError):
            await restore(store, lines[:place] + lines[place + 1 :], tenant="other")
        with pytest.raises(InvalidInputError):
            await restore(store, [*lines[:place], lines[place], *lines[place:]], tenant="other")
    assert await lines_of(store, tenant="other") != []
    assert of_kind(await lines_of(store, tenant="other"), "document") == []


async def test_text_that_is_missing_here_is_an_error(store: PostgresDocumentStore, owner: Owner) -> None:
    await corpus(store)
    lines = await lines_of(store)
    await restore(store, lines, tenant="other")
    await owner.execute(
        "DELETE FROM memory.chunk WHERE tenant_id = 'other' AND ordinal = 6 AND document_id = "
        "(SELECT id FROM memory.document WHERE tenant_id = 'other' AND external_ref = 'long')"
    )
    with pytest.raises(
        ConflictError, match=r"line \d+: this version is here with other chunks \(6; the file has 7\)"
    ):
        await restore(store, lines, tenant="other")


async def test_two_imports_at_once_are_one(store: PostgresDocumentStore, owner: Owner) -> None:
    await corpus(store)
    lines = await lines_of(store)
    await restore(store, lines, tenant="whole")
    for size in (1, 5):
        tenant = f"twice {size}"
        done = await asyncio.gather(
            *(restore(store, lines, tenant=tenant, batch_lines=size + n) for n in range(3))
        )
        assert sum(one.documents for one in done) == 12
        assert sum(one.versions for one in done) == 20
        assert content(await lines_of(store, tenant=tenant)) == content(lines)
        found, whole = await state(owner, tenant), await state(owner, "whole")
        assert found[:4] == whole[:4]
        assert found[4] == whole[4]


async def test_what_went_on_here_stays_and_is_told(store: PostgresDocumentStore) -> None:
    await add(store, note("first", external_ref="d"), note("first", external_ref="e"))
    await restore(store, await lines_of(store), tenant="other")
    await add(store, note("second", external_ref="d"), note("second", external_ref="e"))
    await add(store, note("elsewhere", external_ref="d"), tenant="other")
    # Whether a version that is active here steps back is not an import's to decide.
    done = await restore(store, await lines_of(store), tenant="other")
    assert (done.versions, done.conflicts) == (0, 2)
    shown = {
        item.external_ref: item.snippet
        for item in (await find(store, "first elsewhere", tenant="other")).items
    }
    assert shown == {"d": "elsewhere", "e": "first"}


async def test_vectors_come_back_in_batches_too(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await corpus(store)
    await store.embedding.drain("acme")
    lines = await lines_of(store)
    chunks = sum("vector" in line for line in lines)
    for size in (1, 4, 1_000):
        done = await restore(store, lines, tenant=f"of {size}", batch_lines=size)
        assert (done.vectors, done.chunks) == (chunks, chunks)
        assert content(await lines_of(store, tenant=f"of {size}")) == content(lines)
