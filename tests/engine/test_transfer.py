"""A tenant goes out as lines and comes back in another database, and is found again as it was."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from corbits_memory.core.enums import EdgeRel, HintEnd
from corbits_memory.engine.migrate import run_memory_migrations
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.transfer.restore import Restored
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import EdgeHint, EntityHint, TextPart
from tests.engine.support import OpenStore, T, add, find, note, turn
from tests.engine.test_access import access_of, grant
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


async def lines_of(store: PostgresDocumentStore, **options: Any) -> list[dict[str, Any]]:
    # Through JSON, as a file has it.
    return [json.loads(json.dumps(line)) async for line in store.exporter.export(tenant_id=T, **options)]


async def restore(store: PostgresDocumentStore, lines: list[dict[str, Any]], tenant: str = T) -> Restored:
    async def source() -> AsyncIterator[tuple[Mapping[str, Any], int]]:
        for line in lines:
            yield line, len(json.dumps(line))

    steps = [step async for step in store.restorer.restore(source(), tenant_id=tenant)]
    return steps[-1]


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
    assert sorted(map(_comparable, await lines_of(other_store))) == sorted(map(_comparable, lines))


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
    await restore(other_store, lines[: len(lines) // 2])
    await restore(other_store, lines)
    again = await restore(other_store, lines)
    assert (again.documents, again.versions, again.chunks) == (0, 0, 0)
    assert sorted(map(_comparable, await lines_of(other_store))) == sorted(map(_comparable, lines))


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
        [{"corbits-memory-export": 1}, {"nonsense": {}}],
        [{"corbits-memory-export": 1}, {"document": {"title": "no id"}}],
        [{"corbits-memory-export": 1}, {"document": []}],
    ],
)
async def test_what_is_no_export_is_refused(store: PostgresDocumentStore, lines: list[Any]) -> None:
    with pytest.raises(InvalidInputError):
        await restore(store, lines)


async def test_an_empty_tenant_has_an_export_too(store: PostgresDocumentStore) -> None:
    (head,) = await lines_of(store)
    assert head["documents"] == 0


def _titles(lines: list[dict[str, Any]]) -> list[str]:
    return [line["document"]["title"] for line in lines if "document" in line]


def _comparable(line: dict[str, Any]) -> str:
    # When it was exported is another moment each time.
    return json.dumps({k: v for k, v in line.items() if k != "exported_at"}, sort_keys=True)
