"""Runs: what they derive, what they pass over, how they are paused, cancelled, tried again, and killed."""

import asyncio
from datetime import timedelta

import pytest

from corbits_memory.core.enums import RetentionClass, RunStatus
from corbits_memory.engine.replay import slices as slicing
from corbits_memory.engine.replay.runs import EMPTY_SCOPE, NO_MODEL
from corbits_memory.errors import (
    TransformConfigNotFoundError,
    TransformRunError,
    TransformRunNotFoundError,
)
from corbits_memory.validation import transform_scope
from tests.engine.replay.support import OPS, PLAIN, SMALL, Owner, begin, config, replay, rows, versions, work
from tests.engine.support import NOON, OpenStore, P, T, add, find, note, refs, titles, turn
from tests.models.conftest import Answer, ModelServer, Request

LONG = "The vault opens at nine. Maria keeps the key in her desk. Nobody else may have it, said Tom."


async def test_a_corpus_is_derived_anew_beside_the_live_one(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note(LONG, external_ref="n1"), note("Short.", title="Other", external_ref="n2"))
    await add(store, note(LONG + " Since May.", external_ref="n1"))
    run = await replay(store, SMALL)
    assert (run.status, run.raw_count, run.version_count, run.error) == (RunStatus.COMPLETED, 3, 3, None)
    assert await versions(owner, run.generation) == await versions(owner, "g0")
    # Other chunks, each searched and with a vector of its own; the live ones are as they were.
    chunks = "SELECT count(*) FROM memory.search_row WHERE generation = %s"
    (live,), (staged,) = (await rows(owner, chunks, "g0"))[0], (await rows(owner, chunks, run.generation))[0]
    assert live == 2
    assert staged > 3
    (key,) = (await rows(owner, "SELECT model_key FROM memory.embed_model"))[0]
    assert await rows(
        owner, f"SELECT count(*) FROM memory.embedding_{key} WHERE generation = %s", run.generation
    ) == [(staged,)]
    assert await rows(owner, "SELECT count(*) FROM memory.feed_event") == [(3,)]
    text = "SELECT string_agg(c.text, '' ORDER BY c.ordinal) FROM memory.chunk c JOIN memory.version v ON v.id = c.version_id WHERE v.generation = %s AND v.title = 'Other'"
    assert await rows(owner, text, run.generation) == await rows(owner, text, "g0")


async def test_copies_are_placed_as_their_originals_are(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, turn(1, "Hello?"), turn(2, "Yes."))
    (old,) = await add(store, note("One.", external_ref="n1", access_tags=("memory.space:eng",)))
    await add(store, note("Two.", external_ref="n1", retention_class=RetentionClass.DURABLE))
    (gone,) = await add(store, note("Old news.", external_ref="n3"))
    await store.deprecate_version(tenant_id=T, actor_id=OPS, version_id=gone.version_id)
    run = await replay(store)
    columns = (
        "title, version, status, content_hash, access_tags, thread, author, language, occurred_at, ingested_at, "
        "superseded_at, deprecated_at, deprecated_reason, owner_principal_id, created_by_principal_id, "
        "retention_class, authority, raw_capture_id, attributes"
    )
    query = f"SELECT {columns} FROM memory.version WHERE generation = %s ORDER BY raw_capture_id, version"
    assert await rows(owner, query, run.generation) == await rows(owner, query, "g0")
    searched = (
        "SELECT v.title, r.status, r.access_tags, r.thread, r.thread_seq, r.fts::text FROM memory.search_row r "
        "JOIN memory.version v ON v.id = r.version_id WHERE r.generation = %s ORDER BY 1, 2"
    )
    assert await rows(owner, searched, run.generation) == await rows(owner, searched, "g0")
    assert await rows(
        owner,
        "SELECT o.title, s.title FROM memory.version v JOIN memory.version o ON o.id = v.origin_id "
        "JOIN memory.version s ON s.id = v.supersedes_version_id WHERE v.generation = %s",
        run.generation,
    ) == [("Note", "Note")]
    assert old.version == 1


@pytest.fixture
def store_of(open_store: OpenStore, word_server: ModelServer) -> OpenStore:
    def make(**options: object) -> object:
        return open_store(embed_url=word_server.url, **options)

    return make  # type: ignore[return-value]


async def test_the_same_text_again_after_another_keeps_its_place(store_of: OpenStore, owner: Owner) -> None:
    """Its raw capture is kept once, and two versions refer to it."""
    store = await store_of()
    for text in ("A", "B", "A"):
        await add(store, note(text, external_ref="n1", occurred_at=NOON))
    assert await rows(owner, "SELECT count(*) FROM memory.raw_capture") == [(2,)]
    run = await replay(store)
    assert (run.raw_count, run.version_count) == (2, 3)
    assert titles(await find(store, "a", generation=run.generation)) == ["Note"]
    assert await rows(
        owner, "SELECT count(*) FROM memory.search_row WHERE generation = %s", run.generation
    ) == [(1,)]
    assert [row[1:] for row in await versions(owner, run.generation)] == [
        (1, "superseded"),
        (2, "superseded"),
        (3, "active"),
    ]
