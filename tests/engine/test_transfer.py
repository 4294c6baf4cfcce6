"""A tenant goes out as lines and comes back in another database, and is found again as it was."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import EdgeRel, HintEnd
from corbits_memory.engine.access import visibility_parameters
from corbits_memory.engine.migrate import run_memory_migrations
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import EdgeHint, EntityHint, TextPart, Visibility
from tests.engine.support import OpenStore, T, add, find, note, turn
from tests.engine.test_access import access_of, grant
from tests.engine.transferring import content, lines_of, of_kind, restore
from tests.models.conftest import ModelServer
from tests.support.postgres import NewDatabase

WORDS = (
    "harbour",
    "lighthouse",
    "keeper",
    "storm",
    "boat",
    "rope",
    "net",
    "tide",
    "gull",
    "dune",
    "rock",
    "sail",
    "map",
    "oak",
    "treasure",
)


async def corpus(store: PostgresDocumentStore) -> None:
    turns = [turn(n, f"{WORDS[n % 15]} and {WORDS[(n * 7 + 3) % 15]}", author=f"A{n % 3}") for n in range(40)]
    await add(store, *turns)
    await add(store, note("first words", external_ref="v", access_tags=("memory.space:eng",)))
    (second,) = await add(store, note("second words", external_ref="v", title="Second"))
    await add(
        store,
        note("a claim about the boat", derived_from=(second.version_id,), generator_agent_id="bot"),
        note(
            "deutsche Wörter im Hafen",
            language="german",
            attributes={"n": 1},
            entity_hints=(EntityHint(kind="person", identifier="ada", label="Ada"),),
            edges=(EdgeHint(rel=EdgeRel.ABOUT, type=HintEnd.NATIVE, ref="bob"),),
        ),
    )
    long = tuple(TextPart(text=f"part {n} of the long {WORDS[n % 15]} tale") for n in range(12))
    await add(store, replace(note(""), title="Long", parts=long))
    await add(store, note("what eve wrote of the storm", title="Eve"), principal="eve")


@pytest.fixture
async def other_store(
    new_database: NewDatabase, open_store: OpenStore, word_server: ModelServer
) -> PostgresDocumentStore:
    url = new_database()
    await run_memory_migrations(url)
    return await open_store(embed_url=word_server.url, database_url=url)


async def test_what_comes_back_is_found_as_it_was(
    open_store: OpenStore, other_store: PostgresDocumentStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await corpus(store)
    await store.embedding.drain(T)
    lines = await lines_of(store)
    done = await restore(other_store, lines)
    assert (done.documents, done.versions, done.skipped) == (45, 46, 0)
    assert done.vectors == done.chunks == 56
    queries = [f"{a} {b}" for a in WORDS for b in WORDS[:14]][:200]
    for query in queries:
        ours, theirs = await asyncio.gather(find(store, query), find(other_store, query))
        assert [(i.document_id, i.chunk_id, round(i.score, 6)) for i in theirs.items] == [
            (i.document_id, i.chunk_id, round(i.score, 6)) for i in ours.items
        ]
        assert (theirs.evidence, theirs.degraded) == (ours.evidence, ours.degraded)
    # Nothing that is told of a version got lost on the way, and what was exported twice is the same.
    assert content(await lines_of(other_store)) == content(lines)


async def test_without_vectors_they_are_made_anew(
    open_store: OpenStore, other_store: PostgresDocumentStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await corpus(store)
    await store.embedding.drain(T)
    done = await restore(other_store, await lines_of(store, vectors=False))
    assert done.vectors == 0
    assert await other_store.pending_vectors(tenant_id=T, principal_id="ann") == 55
    await other_store.embedding.drain(T)
    ours, theirs = await find(store, "storm boat"), await find(other_store, "storm boat")
    assert [i.document_id for i in theirs.items] == [i.document_id for i in ours.items]


async def test_a_restore_that_was_interrupted_goes_on(
    open_store: OpenStore, other_store: PostgresDocumentStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await corpus(store)
    lines = await lines_of(store)
    with pytest.raises(InvalidInputError, match="cut off"):
        await restore(other_store, lines[: len(lines) // 2], batch_lines=10)
    await restore(other_store, lines)
    again = await restore(other_store, lines)
    assert (again.documents, again.versions, again.chunks) == (0, 0, 0)
    assert content(await lines_of(other_store)) == content(lines)


async def test_an_export_for_a_principal_holds_what_it_may_see(store: PostgresDocumentStore) -> None:
    await corpus(store)
    eve = await lines_of(store, principal_id="eve")
    assert _titles(eve) == ["Eve"]
    access = await access_of(grant("memory.space:eng", to="eve"), principal="eve")
    seen = await lines_of(store, principal_id="eve", access=access)
    assert sorted(_titles(seen)) == ["Eve", "Second"]
    assert _titles(await lines_of(store, principal_id="eve", access=access, owned=True)) == ["Eve"]
    assert _titles(await lines_of(store, principal_id="nobody")) == []


async def test_a_document_whose_reference_is_taken_is_left_out(
    store: PostgresDocumentStore, open_store: OpenStore, new_database: NewDatabase
) -> None:
    await add(store, note("harbour", external_ref="ref"), note("storm", external_ref="other"))
    lines = await lines_of(store)
    url = new_database()
    await run_memory_migrations(url)
    other = await open_store(database_url=url)
    await add(other, note("lighthouse", external_ref="ref"))
    done = await restore(other, lines)
    assert (done.documents, done.skipped) == (1, 1)
    assert {i.snippet for i in (await find(other, "harbour lighthouse storm")).items} == {
        "lighthouse",
        "storm",
    }


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"title": "a", "text": "b"}],
        [{"corbits-memory-export": 99}],
        [{"corbits-memory-export": 2}, {"nonsense": {}}],
        [{"corbits-memory-export": 2}, {"document": {"title": "no id"}}],
        [{"corbits-memory-export": 2}, {"document": []}],
    ],
)
async def test_what_is_no_export_is_refused(store: PostgresDocumentStore, lines: list[Any]) -> None:
    with pytest.raises(InvalidInputError):
        await restore(store, lines)


async def test_an_empty_tenant_has_an_export_too(store: PostgresDocumentStore) -> None:
    head, end = await lines_of(store)
    assert (head["tenant"], set(end["end"].values())) == (T, {0})
    done = await restore(store, [head, end], tenant="other")
    assert done.documents == 0


async def test_a_page_is_read_by_its_key_before_the_first_analyze(
    store: PostgresDocumentStore, owner: psycopg.AsyncConnection[Any]
) -> None:
    """A tenant that nobody has counted yet must not be read as a whole for each page."""
    await add(store, *(note(f"n{n}", external_ref=f"n{n}") for n in range(600)))
    queries = load_queries("transfer")
    ids = [document["id"] for document in of_kind(await lines_of(store), "document")]
    scope = {
        "tenant": T,
        "generation": "g0",
        "all": True,
        **visibility_parameters(Visibility(principal_id="")),
        "documents": ids[:200],
        "after": ids[100],
        "after_document": "",
        "after_version": 0,
        "limit": 200,
    }
    async with owner.transaction():
        await owner.execute("SET LOCAL enable_bitmapscan = off")
        for query in ("export_documents", "export_versions"):
            rows = await owner.execute("EXPLAIN (ANALYZE, COSTS OFF) " + queries[query], scope)
            plan = [row[0] for row in await rows.fetchall()]
            scans = [line for line in plan if re.search(r"(Seq|Index|Index Only|Heap) Scan", line)]
            assert scans, plan
            for line in scans:
                read = re.search(r"Index (?:Only )?Scan using .* rows=(\d+)", line)
                assert read, line
                assert int(read[1]) <= 200, line


def _titles(lines: list[dict[str, Any]]) -> list[str]:
    return [document["title"] for document in of_kind(lines, "document")]
