"""An export that was made before something was forgotten or purged doesn't bring it back, also while that happens."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import psycopg
import pytest

from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.transfer import texts
from corbits_memory.errors import NotFoundError
from corbits_memory.ports import EntityHint, NewDocument
from tests.engine.support import OpenStore, P, T, add, find, note, refs, turn
from tests.engine.test_erasure import dump, holding
from tests.engine.transferring import Lines, content, lines_of, of_documents, of_kind, restore, source
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
SECRET = "quixotic"


def secret(ref: str = "s", **fields: Any) -> NewDocument:
    return note(
        f"the {SECRET} lighthouse",
        title=f"{SECRET} title",
        external_ref=ref,
        attributes={"k": f"{SECRET} attribute"},
        author=f"{SECRET} author",
        entity_hints=(EntityHint(kind="person", identifier="ada", label=f"{SECRET} label"),),
        **fields,
    )


async def state(owner: Owner) -> tuple[Any, ...]:
    row = await (
        await owner.execute(
            "SELECT document_count, (SELECT count(*) FROM memory.document), chunk_count, "
            "(SELECT count(*) FROM memory.search_row), feed_seq, (SELECT count(*) FROM memory.feed_event) "
            "FROM memory.tenant_state"
        )
    ).fetchone()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("verb", ["forget", "purge"])
async def test_what_was_erased_stays_erased(store: PostgresDocumentStore, owner: Owner, verb: str) -> None:
    await add(store, note("first", external_ref="d"))
    (gone,) = await add(store, secret(thread="t"))
    await add(store, note("as replaced", external_ref="s", title="Replaced"))
    await add(store, note("a claim", external_ref="c", derived_from=(gone.version_id,)))
    lines = await lines_of(store)
    await getattr(store, verb)(tenant_id=T, principal_id=P, document_id=gone.document_id)
    before = await dump(owner)
    assert holding(before, SECRET) == set()
    counted = await state(owner)
    for size in (1, 3, 1_000):
        done = await restore(store, lines, batch_lines=size)
        assert (done.documents, done.versions, done.erased, done.skipped) == (0, 0, 2, 0)
        assert holding(await dump(owner), SECRET, "replaced") == set()
        assert await state(owner) == counted
    assert refs(await find(store, "lighthouse first replaced")) == ["d"]
    # Elsewhere nothing was erased.
    assert (await restore(store, lines, tenant="other")).versions == len(of_kind(lines, "version"))


async def test_what_was_purged_is_not_made_again_beside_a_new_one(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (gone,) = await add(store, secret())
    lines = await lines_of(store)
    await store.purge(tenant_id=T, principal_id=P, document_id=gone.document_id)
    await add(store, note("anew", external_ref="s"))
    done = await restore(store, lines)
    assert (done.documents, done.erased, done.skipped) == (0, 1, 0)
    assert holding(await dump(owner), SECRET) == set()
    assert refs(await find(store, "anew")) == ["s"]


async def test_of_a_document_that_was_added_anew_only_the_new_comes_back(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (gone,) = await add(store, secret())
    before = await lines_of(store)
    await store.forget(tenant_id=T, principal_id=P, document_id=gone.document_id)
    (again,) = await add(store, note("anew", external_ref="s", title="Anew"))
    assert again.document_id == gone.document_id
    after = await lines_of(store)
    done = await restore(store, before)
    assert (done.versions, done.erased) == (0, 1)
    assert holding(await dump(owner), SECRET) == set()
    done = await restore(store, after)
    assert (done.versions, done.erased) == (0, 0)
    # What the same lineage brought before it was forgotten is older than that, whatever its id.
    other = await restore(store, before, tenant="other")
    assert other.versions == 1


async def test_an_older_version_that_never_was_here_is_erased_too(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (added,) = await add(store, note("first", external_ref="s"))
    await restore(store, await lines_of(store), tenant="here")
    await add(store, secret())
    later = await lines_of(store)
    await store.forget(tenant_id="here", principal_id=P, document_id=added.document_id)
    done = await restore(store, later, tenant="here")
    assert (done.versions, done.erased) == (0, 2)
    rows = await owner.execute(
        "SELECT (SELECT count(*) FROM memory.chunk WHERE tenant_id = 'here'), (SELECT count(*) FROM "
        "memory.raw_capture WHERE tenant_id = 'here' AND raw_text IS NOT NULL), (SELECT count(*) FROM memory.edge "
        "WHERE tenant_id = 'here')"
    )
    assert await rows.fetchone() == (0, 0, 0)


async def test_another_document_of_a_forgotten_name_is_left_out(store: PostgresDocumentStore) -> None:
    await add(store, secret())
    lines = await lines_of(store)
    (other,) = await add(store, note("mine", external_ref="s"), tenant="other", principal="bob")
    await store.forget(tenant_id="other", principal_id="bob", document_id=other.document_id)
    done = await restore(store, lines, tenant="other")
    assert (done.documents, done.skipped, done.erased) == (0, 1, 0)


async def test_labels_that_an_erased_document_may_have_given_wait(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (gone,) = await add(store, secret())
    hint = EntityHint(kind="person", identifier="ada")
    (kept,) = await add(store, note("of ada", external_ref="d", entity_hints=(hint,)))
    lines = await lines_of(store)
    await restore(store, lines, tenant="here")
    for document in (gone, kept):
        await store.purge(tenant_id=T, principal_id=P, document_id=document.document_id)
    await add(store, note("of ada", external_ref="e"))
    only = await lines_of(store, tenant="here")
    # The entity has another document's edge, and the label of the one that was purged.
    await owner.execute(
        "DELETE FROM memory.erasure WHERE tenant_id = %s AND document_id = %s", [T, kept.document_id]
    )
    done = await restore(store, only)
    assert (done.documents, done.erased) == (1, 1)
    rows = await owner.execute("SELECT label FROM memory.entity WHERE tenant_id = %s", [T])
    assert await rows.fetchall() == [(None,)]


async def test_a_vector_that_holds_a_forgotten_turn_is_made_anew(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    first, _ = await add(store, turn(0, f"the {SECRET} one"), turn(1, "what follows"))
    await store.embedding.drain(T)
    lines = await lines_of(store)
    assert all("vector" in line for line in lines if "chunk" in line)
    # Here the first turn came and was forgotten, and the second has not come yet.
    alone = of_documents(lines, first.document_id)
    await restore(store, alone, tenant="here")
    await store.forget(tenant_id="here", principal_id=P, document_id=first.document_id)
    done = await restore(store, lines, tenant="here")
    assert (done.versions, done.vectors, done.erased) == (1, 0, 1)
    await store.embedding.drain("here")
    theirs = await vectors_of(owner, "here")
    ours = await vectors_of(owner, T)
    assert len(theirs) == 1
    (chunk,) = theirs
    assert theirs[chunk] != ours[chunk]


async def test_a_forget_waits_for_the_batch_that_puts_a_turn_behind_it(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(embed_url=word_server.url)
    first, second = await add(store, turn(0, f"the {SECRET} one"), turn(1, "what follows"))
    await store.embedding.drain(T)
    lines = await lines_of(store)
    await restore(store, of_documents(lines, first.document_id), tenant="here")
    written, go_on = asyncio.Event(), asyncio.Event()
    finish = texts._embed_followers

    async def dawdle(*arguments: Any) -> None:
        await finish(*arguments)
        written.set()
        await go_on.wait()

    monkeypatch.setattr(texts, "_embed_followers", dawdle)
    importing = asyncio.create_task(restore(store, of_documents(lines, second.document_id), tenant="here"))
    await written.wait()
    forgetting = asyncio.create_task(
        store.forget(tenant_id="here", principal_id=P, document_id=first.document_id)
    )
    await asyncio.sleep(0.3)
    go_on.set()
    assert (await importing).vectors == 1
    await forgetting
    # The vector held the text of the turn that is gone.
    assert await vectors_of(owner, "here") == {}


async def vectors_of(owner: Owner, tenant: str) -> dict[str, list[float]]:
    rows = await owner.execute("SELECT id FROM memory.chunk WHERE tenant_id = %s", [tenant])
    ids = {row[0] for row in await rows.fetchall()}
    (key,) = await (await owner.execute("SELECT DISTINCT model_key FROM memory.embed_model")).fetchone() or (
        "",
    )
    found = await owner.execute(
        f"SELECT chunk_id, embedding::text FROM memory.embedding_{key} WHERE tenant_id = %s", [tenant]
    )
    return {chunk: vector for chunk, vector in await found.fetchall() if chunk in ids}


async def slow_source(lines: Lines) -> AsyncIterator[tuple[Mapping[str, Any], int]]:
    async for line in source(lines):
        await asyncio.sleep(0)
        yield line


@pytest.mark.parametrize("seed", range(4))
async def test_an_erasure_while_an_import_runs_wins(
    open_store: OpenStore, owner: Owner, word_server: ModelServer, seed: int
) -> None:
    """Whichever of them comes first, what was erased is nowhere in the end: each document has a word of its own."""
    store = await open_store(embed_url=word_server.url, db_pool_max=10)
    count, chance = 30, random.Random(seed)
    turns = [turn(n, f"{SECRET}{n}x and what it says", thread=f"t{n % 3}") for n in range(count)]
    added = await add(store, *turns)
    await add(
        store,
        *(note(f"{SECRET}{n}x in version two", external_ref=f"t{n % 3}:{n}") for n in range(0, count, 4)),
    )
    await store.embedding.drain(T)
    lines = await lines_of(store)
    gone = {n: chance.choice(["forget", "purge"]) for n in chance.sample(range(count), 12)}

    async def erase(n: int) -> None:
        await asyncio.sleep(chance.uniform(0, 0.6))
        while True:
            try:
                await getattr(store, gone[n])(
                    tenant_id="here", principal_id=P, document_id=added[n].document_id
                )
            except NotFoundError:  # it has not come yet
                await asyncio.sleep(0.005)
            else:
                return

    async def import_all() -> None:
        steps = store.restorer.restore(
            slow_source(lines), tenant_id="here", batch_lines=chance.choice([1, 5, 20])
        )
        async for _ in steps:
            pass

    async with asyncio.timeout(60):
        await asyncio.gather(import_all(), import_all(), *map(erase, gone))
    await import_all()
    await store.embedding.drain("here")
    text = ""
    for table in ("chunk", "raw_capture", "version", "document", "search_row"):
        rows = await owner.execute(f"SELECT t::text FROM memory.{table} t WHERE tenant_id = 'here'")
        text += "\n".join(row[0] for row in await rows.fetchall())
    assert {n for n in range(count) if f"{SECRET}{n}x" in text} == set(range(count)) - gone.keys()
    rows = await owner.execute("SELECT id FROM memory.document WHERE tenant_id = 'here'")
    here = {row[0] for row in await rows.fetchall()}
    assert here == {a.document_id for n, a in enumerate(added) if gone.get(n) != "purge"}
    counts = await owner.execute(
        "SELECT document_count, chunk_count, (SELECT count(*) FROM memory.search_row r WHERE r.tenant_id = 'here') "
        "FROM memory.tenant_state WHERE tenant_id = 'here'"
    )
    documents, chunks, searched = (await counts.fetchone()) or (0, 0, -1)
    assert (documents, chunks) == (len(here), searched)
    # No vector was made with, or kept from, a turn that is gone: embedding all of it anew changes none.
    kept = await vectors_of(owner, "here")
    waiting = await owner.execute(
        "INSERT INTO memory.embed_queue (tenant_id, chunk_id, owner_id) SELECT tenant_id, chunk_id, owner_id "
        "FROM memory.search_row WHERE tenant_id = 'here' ON CONFLICT DO NOTHING"
    )
    assert waiting.rowcount == searched
    await store.embedding.drain("here")
    assert await vectors_of(owner, "here") == kept


async def test_an_import_after_a_sweep_of_what_it_brings(store: PostgresDocumentStore) -> None:
    """An export that has nothing of what was erased is not held up by the ledger."""
    (gone,) = await add(store, secret())
    await store.forget(tenant_id=T, principal_id=P, document_id=gone.document_id)
    await add(store, note("kept", external_ref="k"))
    lines = await lines_of(store)
    assert [document["external_ref"] for document in of_kind(lines, "document")] == ["k"]
    await restore(store, lines, tenant="other")
    assert content(await lines_of(store, tenant="other")) == content(lines)
