"""Vectors: at once when there is time, later when not, never forgotten, never of two models mixed."""

import asyncio
from typing import Any

import psycopg
import pytest

from corbits_memory.engine import embedding
from corbits_memory.engine.embedding import Target
from corbits_memory.engine.store import INLINE_DOCUMENTS, PostgresDocumentStore
from corbits_memory.engine.vectors import Role
from tests.engine.conftest import DIMS, embed_words, word_vector
from tests.engine.support import (
    NOON,
    OpenStore,
    P,
    T,
    add,
    find,
    note,
    refs,
    turn,
    until_embedded,
    until_waiting,
)
from tests.models.conftest import Answer, ModelServer, Request

Owner = psycopg.AsyncConnection[Any]


async def pending(store: PostgresDocumentStore) -> int:
    return await store.pending_vectors(tenant_id=T, principal_id=P)


async def one(owner: Owner, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = await (await owner.execute(query)).fetchone()
    assert row is not None
    return row


async def vector_table(owner: Owner) -> str:
    (key,) = await one(owner, "SELECT model_key FROM memory.embed_model WHERE status = 'active'")
    return f"memory.embedding_{key}"


async def count_vectors(owner: Owner) -> int:
    (count,) = await one(owner, f"SELECT count(*) FROM {await vector_table(owner)}")
    return int(count)


def embedded_texts(server: ModelServer) -> list[str]:
    return [text for request in server.requests for text in request.body["input"]]


async def test_an_add_embeds_at_once(open_store: OpenStore, word_server: ModelServer, owner: Owner) -> None:
    store = await open_store(embed_url=word_server.url)
    (added,) = await add(store, note("The pool closes at nine."))
    assert added.degraded == ()
    assert await pending(store) == 0
    assert await count_vectors(owner) == 1
    assert (await find(store, "pool")).degraded == ("rerank_unavailable",)


async def test_a_large_batch_is_durable_first_and_embedded_later(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    count = INLINE_DOCUMENTS + 1
    added = await add(store, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(count)))
    assert added[0].degraded == ("embed_unavailable",)
    found = await find(store, "note 7")
    assert refs(found)[0] == "n7"
    assert "dense_unavailable" in found.degraded
    assert await pending(store) == count
    assert await store.embedding.drain(T) == count
    assert await pending(store) == 0
    assert (await find(store, "note 7")).degraded == ("rerank_unavailable",)


async def test_a_slow_model_holds_up_no_add(open_store: OpenStore, word_server: ModelServer) -> None:
    store = await open_store(embed_url=word_server.url, add_embed_seconds=0.2)
    word_server.script(Answer(hang=True))
    started = asyncio.get_running_loop().time()
    (added,) = await add(store, note("The pool closes at nine."))
    assert asyncio.get_running_loop().time() - started < 5
    assert added.degraded == ("embed_unavailable",)
    assert await pending(store) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=400, body={"error": "no"}),
        Answer(body={"data": []}),
        Answer(body={"data": [{"index": 0, "embedding": [float("nan")] * DIMS}]}),
        Answer(raw=b"<html>"),
    ],
    ids=["http error", "wrong count", "NaN", "no JSON"],
)
async def test_a_failing_model_loses_nothing(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, answer: Answer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("Warm up.", external_ref="warm"))
    word_server.script(answer)
    (added,) = await add(store, note("The pool closes at nine.", external_ref="n1"))
    assert added.degraded == ("embed_unavailable",)
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    assert await store.embedding.drain(T) <= 1
    (attempts, error) = await one(owner, "SELECT attempts, error FROM memory.embed_queue")
    assert attempts >= 1
    assert error
    assert "pool" not in error
    word_server.script(embed_words)
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    assert await store.embedding.drain(T) == 1
    assert await count_vectors(owner) == 2


async def test_one_text_that_the_model_refuses_holds_up_no_other(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    def refuse_poison(request: Request) -> Answer:
        if any("poison" in text for text in request.body["input"]):
            return Answer(status=400, body={"error": "content policy"})
        return embed_words(request)

    store = await open_store(embed_url=word_server.url)
    await add(store, *(note(f"Note {i}." if i != 7 else "poison", external_ref=f"n{i}") for i in range(20)))
    word_server.script(refuse_poison)
    await store.embedding.drain(T)
    assert await pending(store) == 1
    assert await count_vectors(owner) == 19


async def test_other_dims_half_way_are_refused_and_named(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("One.", external_ref="a"))
    word_server.script(
        lambda request: Answer(
            {
                "data": [
                    {"index": i, "embedding": word_vector(t, 96)} for i, t in enumerate(request.body["input"])
                ]
            }
        )
    )
    (added,) = await add(store, note("Two.", external_ref="b"))
    assert added.degraded == ("embed_unavailable",)
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    await store.embedding.drain(T)
    (error,) = await one(owner, "SELECT error FROM memory.embed_queue")
    assert "96" in error
    assert str(DIMS) in error
    assert refs(await find(store, "two")) == ["b"]


async def test_a_model_whose_vectors_can_not_be_indexed_is_named(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    word_server.script(Answer({"data": [{"index": 0, "embedding": [1.0] * 63}]}))
    (added,) = await add(store, note("One."))
    assert added.degraded == ("embed_unavailable",)
    assert await one(owner, "SELECT count(*) FROM memory.embed_model") == (0,)


@pytest.mark.parametrize("dims", [64, 2000, 2001, 4000])
async def test_every_size_that_can_be_indexed(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, dims: int
) -> None:
    store = await open_store(embed_url=word_server.url, vector_type="vector")
    word_server.script(
        lambda request: Answer(
            {
                "data": [
                    {"index": i, "embedding": word_vector(t, dims)}
                    for i, t in enumerate(request.body["input"])
                ]
            }
        )
    )
    await add(store, note("The pool closes at nine.", external_ref="n1"))
    assert await one(owner, "SELECT dims, vector_type FROM memory.embed_model") == (
        dims,
        "vector" if dims <= 2000 else "halfvec",
    )
    assert (await find(store, "pool")).degraded == ("rerank_unavailable",)


async def test_what_a_dead_worker_had_leased_comes_free(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, *(note(f"Note {i}.") for i in range(INLINE_DOCUMENTS + 1)))
    claimed = await store.embedding._claim(T, "g0")
    assert claimed
    assert await store.embedding.drain(T) == 0
    await owner.execute("UPDATE memory.embed_queue SET not_before = not_before - interval '121 s'")
    assert embedding.LEASE_SECONDS < 121
    assert await store.embedding.drain(T) == len(claimed)


async def test_workers_share_the_queue_and_embed_each_chunk_once(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    stores = [await open_store(embed_url=word_server.url) for _ in range(3)]
    await add(stores[0], *(note(f"Note number {i}.", external_ref=f"n{i}") for i in range(300)))
    done = await asyncio.gather(*(store.embedding.drain(T) for store in stores))
    assert sum(done) == 300
    assert await count_vectors(owner) == 300
    texts = [text for text in embedded_texts(word_server) if "number" in text]
    assert len(texts) == len(set(texts)) == 300


async def test_a_running_worker_fills_the_queue_by_itself(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url, run_worker=True)
    await add(store, *(note(f"Note {i}.") for i in range(200)))
    await until_embedded(store)


async def test_a_worker_finds_what_nobody_told_it(open_store: OpenStore, word_server: ModelServer) -> None:
    silent = await open_store()
    await add(silent, *(note(f"Note {i}.") for i in range(20)))
    store = await open_store(embed_url=word_server.url, run_worker=True)
    await until_embedded(store)


async def test_two_writers_meet_a_new_model_at_once(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    stores = [await open_store(embed_url=word_server.url) for _ in range(4)]
    await asyncio.gather(*(add(s, note(f"Note {i}."), tenant=f"t{i % 2}") for i, s in enumerate(stores)))
    assert await one(owner, "SELECT count(*), count(DISTINCT tenant_id) FROM memory.embed_model") == (2, 2)
    assert await count_vectors(owner) == 4


async def test_a_turn_is_embedded_with_the_one_before_it(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, turn(1, "Where shall we eat?"), turn(2, "At the harbour.", author="Bob"))
    assert any("Where shall we eat?" in t and "At the harbour." in t for t in embedded_texts(word_server))


async def test_a_late_turn_has_its_follower_embedded_again(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, turn(1, "First words."), turn(3, "Third words."))
    word_server.requests.clear()
    await add(store, turn(2, "Second words."))
    await store.embedding.drain(T)
    again = [t for t in embedded_texts(word_server) if "Third" in t]
    assert len(again) == 1
    assert "Second words." in again[0]
    assert await pending(store) == 0
    assert await count_vectors(owner) == 3


@pytest.mark.parametrize(
    "other", [{"access_tags": ("memory.space:b",)}, {"thread": "t2"}], ids=["tags", "thread"]
)
async def test_a_turn_before_with_other_readers_stays_out(
    open_store: OpenStore, word_server: ModelServer, other: dict[str, Any]
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, turn(1, "Confidential matter.", external_ref="one", **other))
    await add(store, turn(2, "Public answer.", external_ref="two"))
    assert not any("Confidential" in t and "Public" in t for t in embedded_texts(word_server))


async def test_superseded_text_has_no_vector(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("Five years.", external_ref="n1"))
    await add(store, note("Six years.", external_ref="n1"))
    assert await count_vectors(owner) == 1


async def test_text_superseded_while_it_was_embedded_gets_no_vector(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    writer = await open_store()
    await add(store, note("Warm up.", external_ref="warm"))

    def supersede(request: Request) -> Answer:
        if "Five" in request.body["input"][0]:
            with psycopg.connect(owner.info.dsn, autocommit=True) as conn:
                conn.execute(
                    "DELETE FROM memory.search_row WHERE document_id IN "
                    "(SELECT id FROM memory.document WHERE external_ref = 'n1')"
                )
        return embed_words(request)

    word_server.script(supersede)
    await add(store, note("Five years.", external_ref="n1"))
    assert await count_vectors(owner) == 1
    assert writer is not store


async def test_vectors_carry_tags_and_follow_their_change(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("Text.", external_ref="n1", access_tags=("memory.space:a",)))
    await add(store, note("Text.", external_ref="n1", access_tags=("memory.space:b",)))
    assert await one(owner, f"SELECT access_tags FROM {await vector_table(owner)}") == (
        ["memory.space:b", "memory.owner:ann"],
    )


async def test_backfill_queues_what_a_new_model_lacks(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    before = await open_store(embed_url=word_server.url, model="old")
    await add(before, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(5)))
    after = await open_store(embed_url=word_server.url, model="new")
    assert await after.backfill(T) == 5
    assert await after.backfill(T) == 0
    assert await after.embedding.drain(T) == 5
    assert await count_vectors(owner) == 5
    assert await one(owner, "SELECT model_id FROM memory.embed_model WHERE status = 'active'") == ("new",)
    assert (await find(after, "note 3")).degraded == ("rerank_unavailable",)


async def active_models(owner: Owner) -> list[str]:
    rows = await owner.execute("SELECT model_id FROM memory.embed_model WHERE status = 'active'")
    return [row[0] for row in await rows.fetchall()]


async def vectors_of(owner: Owner, model: str) -> int:
    (key,) = await one(owner, f"SELECT model_key FROM memory.embed_model WHERE model_id = '{model}'")
    (count,) = await one(owner, f"SELECT count(*) FROM memory.embedding_{key}")
    return int(count)


async def test_the_model_before_serves_until_the_new_one_has_all_vectors(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(100)))
    await old.embedding.drain(T)
    new = await open_store(embed_url=word_server.url, model="new")
    (added,) = await add(new, note("Note 100.", external_ref="n100"))
    assert added.degraded == ()
    assert (await find(new, "note 3")).degraded == ("rerank_unavailable",)
    # A part of the work; each store of a process is as good as another.
    assert await new.embedding.drain(T, slices=1) == 64
    assert await active_models(owner) == ["old"]
    assert (await vectors_of(owner, "old"), await vectors_of(owner, "new")) == (101, 64)
    change = await new.embedding.change(T)
    assert change is not None
    assert (change.before, change.after, change.missing, change.scanned) == ("old", "new", 37, True)
    # What is added meanwhile, by whichever process, is found by both channels, and not lost on the new one.
    for store, ref in ((new, "m1"), (old, "m2")):
        (added,) = await add(store, note(f"Meanwhile {ref}.", external_ref=ref))
        assert added.degraded == ()
    assert await pending(new) == 0
    for store in (new, old):
        assert (await find(store, "meanwhile m2")).degraded == ("rerank_unavailable",)
    assert await new.embedding.drain(T) == 39
    assert await active_models(owner) == ["new"]
    assert (await vectors_of(owner, "old"), await vectors_of(owner, "new")) == (103, 103)
    assert await new.embedding.change(T) is None
    for store in (new, old):
        assert (await find(store, "note 3")).degraded == ("rerank_unavailable",)
    assert await one(owner, "SELECT count(*) FROM memory.embed_queue") == (0,)


async def test_where_the_model_before_is_out_of_reach_new_text_waits_for_the_new_one(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(5)))
    new = await open_store(embed_url=word_server.url, model="new")
    new._directory._factory = None
    (added,) = await add(new, note("Note 5.", external_ref="n5"))
    assert added.degraded == ("embed_unavailable",)
    assert "dense_unavailable" in (await find(new, "note 3")).degraded
    assert "dense_partial" in (await find(old, "note 3")).degraded
    assert await new.embedding.drain(T) == 6
    assert await active_models(owner) == ["new"]
    assert (await find(new, "note 3")).degraded == ("rerank_unavailable",)


async def test_a_model_of_other_dimensions_takes_over_likewise(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(3)))
    with ModelServer() as wide:
        wide.script(lambda request: _padded(embed_words(request)))
        new = await open_store(embed_url=wide.url, model="wide")
        assert (await find(new, "note 1")).degraded == ("rerank_unavailable",)
        assert await new.backfill(T) == 3
        assert await active_models(owner) == ["old"]
        assert (await find(new, "note 1")).degraded == ("rerank_unavailable",)
        assert await new.embedding.drain(T) == 3
        assert await active_models(owner) == ["wide"]
        assert (await find(new, "note 1")).degraded == ("rerank_unavailable",)


def _padded(answer: Answer) -> Answer:
    for item in answer.body["data"]:
        item["embedding"] = [*item["embedding"], *item["embedding"]]
    return answer


async def test_a_change_ended_early_says_what_it_lacks(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(100)))
    await old.embedding.drain(T)
    new = await open_store(embed_url=word_server.url, model="new")
    assert not await old.embedding.take_over_now(T)
    await new.embedding.drain(T, slices=1)
    assert await new.embedding.take_over_now(T)
    assert await active_models(owner) == ["new"]
    assert await pending(new) == 36
    assert "dense_partial" in (await find(new, "note 3")).degraded
    assert await new.embedding.drain(T) == 36
    assert not await new.embedding.take_over_now(T)
    assert (await find(new, "note 3")).degraded == ("rerank_unavailable",)


async def test_a_change_that_is_given_up_costs_the_model_before_nothing(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(100)))
    await old.embedding.drain(T)
    new = await open_store(embed_url=word_server.url, model="new")
    await new.embedding.drain(T, slices=1)
    # Nothing of a process that knows of no change takes its queue away.
    assert await old.embedding.drain(T) == 0
    change = await new.embedding.change(T)
    assert change is not None
    assert change.missing == 36
    again = await open_store(embed_url=word_server.url, model="old")
    word_server.requests.clear()
    assert await again.embedding.drain(T) == 0
    assert await again.embedding.change(T) is None
    assert not [request for request in word_server.requests if len(request.body["input"]) > 1]
    assert await one(owner, "SELECT count(*) FROM memory.embed_queue") == (0,)
    assert await active_models(owner) == ["old"]
    assert await new.embedding.drain(T) == 0


async def test_a_turn_that_is_embedded_anew_amid_a_change_is_so_in_both_tables(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """One that came late stands before it, and its vectors hold that text."""
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, turn(1, "One."), turn(3, "Three."), turn(4, "Four."))
    new = await open_store(embed_url=word_server.url, model="new")
    await new.embedding.drain(T, slices=0)
    await new.embedding.drain_generation(T, "g0", await chosen(new), slices=1)
    assert await vectors_of(owner, "new") == 3
    await add(new, turn(2, "Two."))
    await new.embedding.drain(T)
    assert await active_models(owner) == ["new"]
    tables = {model: await rows_of(owner, model) for model in ("old", "new")}
    assert tables["old"] == tables["new"]
    assert len(tables["new"]) == 4


async def chosen(store: PostgresDocumentStore) -> Target:
    embedder = store.embedding._embedder
    assert embedder is not None
    claim = await store._registry.claim(T, embedder)
    return Target(embedder, claim.space, Role.CHOSEN)


async def rows_of(owner: Owner, model: str) -> list[tuple[Any, ...]]:
    (key,) = await one(owner, f"SELECT model_key FROM memory.embed_model WHERE model_id = '{model}'")
    found = await owner.execute(
        f"SELECT chunk_id, embedding::text FROM memory.embedding_{key} ORDER BY chunk_id"
    )
    return await found.fetchall()


@pytest.mark.parametrize("stays", [False, True])
async def test_text_that_is_dropped_while_it_is_queued_is_left_out(
    open_store: OpenStore,
    word_server: ModelServer,
    owner: Owner,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
    stays: bool,
) -> None:
    """Whoever drops it may go on to drop what is queued already: neither waits for the other in a circle."""
    store = await open_store(embed_url=word_server.url)
    await add(store, note("First.", external_ref="a"), note("Last.", external_ref="b"))
    await owner.execute(f"DELETE FROM {await vector_table(owner)}")
    chunks = await (await owner.execute("SELECT chunk_id FROM memory.search_row ORDER BY 1")).fetchall()
    first, last = chunks
    async with await psycopg.AsyncConnection.connect(database_url) as dropping:
        await dropping.execute("DELETE FROM memory.search_row WHERE chunk_id = %s", last)
        filling = asyncio.create_task(store.backfill(T))
        await until_waiting(owner)
        await dropping.execute("DELETE FROM memory.search_row WHERE chunk_id = %s", first)
        if stays:
            await dropping.rollback()
    assert await filling == (2 if stays else 1)
    await store.embedding.drain(T)
    assert await count_vectors(owner) == (2 if stays else 0)
    assert "database error" not in caplog.text


async def test_a_turn_that_comes_and_goes_while_the_one_before_gets_other_tags_is_left_out(
    open_store: OpenStore, owner: Owner, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has locked it: it came after those were looked for that follow, and somebody drops it just then."""
    store = await open_store()
    (moved,) = await add(store, turn(1, "the treasure map"))
    async with (
        await psycopg.AsyncConnection.connect(database_url) as holding,
        await psycopg.AsyncConnection.connect(database_url) as dropping,
    ):
        await holding.execute("SELECT FROM memory.search_row FOR UPDATE")
        tagging = asyncio.create_task(
            store.change_access_tags(
                tenant_id=T, principal_id=P, document_id=moved.document_id, add=["memory.space:a"]
            )
        )
        await until_waiting(owner)
        (following,) = await add(store, turn(2, "under the oak", access_tags=("memory.space:a",)))
        await dropping.execute(
            "DELETE FROM memory.search_row WHERE document_id = %s", [following.document_id]
        )
        await holding.rollback()
        await until_waiting(owner)
    assert "memory.space:a" in (await tagging).tags
    assert await one(owner, "SELECT count(*) FROM memory.embed_queue") == (1,)
    assert "database error" not in caplog.text


async def test_a_following_turn_that_is_dropped_meanwhile_is_left_out(
    open_store: OpenStore,
    word_server: ModelServer,
    owner: Owner,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await open_store(embed_url=word_server.url)
    (following,) = await add(store, turn(2, "under the oak"))
    async with await psycopg.AsyncConnection.connect(database_url) as dropping:
        await dropping.execute(
            "DELETE FROM memory.search_row WHERE document_id = %s", [following.document_id]
        )
        adding = asyncio.create_task(add(store, turn(1, "the treasure map")))
        await until_waiting(owner)
    (before,) = await adding
    assert before.degraded == ()
    assert await count_vectors(owner) == 1
    assert "database error" not in caplog.text


async def test_changes_while_many_write_lose_no_vector(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """Two models, a worker of each, writers of both; in the end the last chosen has a vector of everything."""
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.", external_ref=f"n{i}") for i in range(40)))
    stores = [old, await open_store(embed_url=word_server.url, model="new")]
    stop = asyncio.Event()

    async def write(store: PostgresDocumentStore, name: str) -> int:
        number = 0
        while not stop.is_set():
            await add(store, note(f"Written {name} {number}.", external_ref=f"{name}{number % 20}"))
            number += 1
        return number

    async def work(store: PostgresDocumentStore) -> None:
        while not stop.is_set():
            await store.embedding.drain(T, slices=1)
            await asyncio.sleep(0)

    running = [
        *(
            asyncio.create_task(write(store, f"{place}{n}"))
            for place, store in enumerate(stores)
            for n in range(2)
        ),
        *(asyncio.create_task(work(store)) for store in stores for _ in range(2)),
    ]
    for store in (stores[1], stores[0], stores[1]):
        await asyncio.sleep(0.4)
        await store.backfill(T)
    await asyncio.sleep(0.4)
    stop.set()
    written = await asyncio.gather(*running)
    assert sum(filter(None, written)) > 20
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    await stores[1].embedding.drain(T)
    assert await active_models(owner) == ["new"]
    (key,) = await one(owner, "SELECT model_key FROM memory.embed_model WHERE status = 'active'")
    assert await one(
        owner,
        "SELECT count(*) FROM memory.search_row r "
        f"WHERE NOT EXISTS (SELECT FROM memory.embedding_{key} e WHERE e.chunk_id = r.chunk_id)",
    ) == (0,)
    assert await one(owner, "SELECT count(*) FROM memory.embed_queue") == (0,)


async def test_a_change_back_makes_up_for_what_came_between(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    for model in ("old", "new", "old"):
        store = await open_store(embed_url=word_server.url, model=model)
        await add(store, note(f"Written for {model}."))
        await store.embedding.drain(T)
    assert await active_models(owner) == ["old"]
    assert await count_vectors(owner) == 3
    assert (await find(store, "written")).degraded == ("rerank_unavailable",)


async def test_text_from_before_any_model_is_made_up_for(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    silent = await open_store()
    await add(silent, *(note(f"Note {i}.") for i in range(5)))
    store = await open_store(embed_url=word_server.url)
    (added,) = await add(store, note("Note 5."))
    assert added.degraded == ()
    assert "dense_partial" in (await find(store, "note")).degraded
    assert await store.embedding.drain(T) == 5
    assert await count_vectors(owner) == 6


async def test_a_running_worker_ends_a_change_of_models(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.") for i in range(5)))
    new = await open_store(embed_url=word_server.url, model="new", run_worker=True)
    await add(new, note("Note 5."))
    await until_embedded(new)
    assert await count_vectors(owner) == 6


@pytest.mark.parametrize(
    ("step", "left"),
    [("embedding.EmbeddingService._enqueue_missing", 6), ("vectors.VectorRegistry.take_over", 0)],
    ids=["before queueing", "before activating"],
)
async def test_a_crash_amid_a_change_of_models_is_mended(
    open_store: OpenStore,
    word_server: ModelServer,
    owner: Owner,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    left: int,
) -> None:
    async def crash(*_: object, **__: object) -> None:
        raise ConnectionAbortedError(step)

    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, *(note(f"Note {i}.") for i in range(5)))
    new = await open_store(embed_url=word_server.url, model="new")
    monkeypatch.setattr(f"corbits_memory.engine.{step}", crash)
    await add(new, note("Note 5."))
    with pytest.raises(ConnectionAbortedError):
        await new.embedding.drain(T)
    monkeypatch.undo()
    # Nothing waits in the queue that would lead the sweep here.
    await owner.execute("DELETE FROM memory.embed_queue")
    again = await open_store(embed_url=word_server.url, model="new")
    assert await again.embedding.due_tenants() == [T]
    assert await again.embedding.drain(T) == left
    assert await active_models(owner) == ["new"]
    assert await again.embedding.due_tenants() == []
    assert await count_vectors(owner) == 6


async def test_a_process_with_the_model_before_leaves_the_work_to_the_new_ones(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, note("Before.", external_ref="n1"))
    old_table = await vector_table(owner)
    new = await open_store(embed_url=word_server.url, model="new")
    await add(new, note("With the new one.", external_ref="n2"))
    await new.embedding.drain(T)
    assert await active_models(owner) == ["new"]
    (added,) = await add(old, note("Plums.", external_ref="n3"))
    assert added.degraded == ("embed_unavailable",)
    assert await old.embedding.drain(T) == 0
    (added,) = await add(old, note("Pears.", external_ref="n4"))
    assert added.degraded == ("embed_unavailable",)
    # What the new process added while the model before served.
    assert await one(owner, f"SELECT count(*) FROM {old_table}") == (2,)
    assert await active_models(owner) == ["new"]
    assert "dense_partial" in (await find(new, "plums")).degraded
    assert await new.embedding.drain(T) == 2
    assert await count_vectors(owner) == 4


async def test_of_two_models_the_one_opened_last_is_chosen(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    """Whichever of them meets the tenant first: old processes go on while new ones start."""
    old = await open_store(embed_url=word_server.url, model="old")
    new = await open_store(embed_url=word_server.url, model="new")
    await add(old, note("Old first."))
    await add(new, note("New next."))
    await new.embedding.drain(T)
    assert await active_models(owner) == ["new"]
    also_old = await open_store(embed_url=word_server.url, model="old")
    await add(also_old, note("Opened last."))
    await also_old.embedding.drain(T)
    assert await active_models(owner) == ["old"]
    await add(new, note("No ping-pong."))
    await new.embedding.drain(T)
    assert await active_models(owner) == ["old"]
    await new.backfill(T)
    await new.embedding.drain(T)
    assert await active_models(owner) == ["new"]


async def test_a_model_replaced_while_it_embeds_stores_nothing(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("Before."))
    table = await vector_table(owner)

    def replace_model(request: Request) -> Answer:
        with psycopg.connect(owner.info.dsn, autocommit=True) as conn:
            conn.execute("UPDATE memory.embed_model SET status = 'ready'")
        return embed_words(request)

    word_server.script(replace_model)
    (added,) = await add(store, note("Meanwhile."))
    assert added.degraded == ("embed_unavailable",)
    assert await pending(store) == 1
    assert await one(owner, f"SELECT count(*) FROM {table}") == (1,)


async def test_vectors_of_another_model_are_never_compared(
    open_store: OpenStore, word_server: ModelServer
) -> None:
    old = await open_store(embed_url=word_server.url, model="old")
    await add(old, note("The pool closes at nine.", external_ref="n1", occurred_at=NOON))
    new = await open_store(embed_url=word_server.url, model="new")
    word_server.requests.clear()
    found = await find(new, "pool")
    # The query is embedded by the model that owns the vectors; where that can't be reached, words alone find.
    assert [request.body["model"] for request in word_server.requests] == ["old"]
    assert "dense_unavailable" not in found.degraded
    unable = await open_store(embed_url=word_server.url, model="new")
    unable._directory._factory = None
    found = await find(unable, "pool")
    assert refs(found) == ["n1"]
    assert "dense_unavailable" in found.degraded


async def test_the_registry_keeps_no_credentials(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url.replace("http://", "http://user:hunter2@"))
    await add(store, note("Text."))
    (base_url,) = await one(owner, "SELECT base_url FROM memory.embed_model")
    assert "hunter2" not in base_url


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
async def test_a_store_closes_soon_after_it_was_opened(
    open_store: OpenStore, word_server: ModelServer, seconds: float
) -> None:
    """The job library may swallow a cancellation while it starts; closing asks again."""
    store = await open_store(embed_url=word_server.url, run_worker=True)
    await asyncio.sleep(seconds)
    async with asyncio.timeout(20):
        await store.close()
