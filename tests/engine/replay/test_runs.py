"""Runs: what they derive, what they pass over, how they are paused, cancelled, tried again, and killed."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from corbits_memory.core.chunking import ChunkCaps
from corbits_memory.core.enums import RetentionClass, RunStatus
from corbits_memory.core.strategies import BUILT_IN
from corbits_memory.engine.replay import slices as slicing
from corbits_memory.engine.replay.runs import EMPTY_SCOPE, NO_MODEL
from corbits_memory.errors import (
    EmbedError,
    TransformConfigNotFoundError,
    TransformRunError,
    TransformRunNotFoundError,
)
from corbits_memory.validation import transform_scope
from tests.engine.replay.support import OPS, PLAIN, SMALL, Owner, begin, replay, rows, versions, work
from tests.engine.support import NOON, OpenStore, P, T, add, find, note, titles, turn
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
    text = (
        "SELECT string_agg(c.text, '' ORDER BY c.ordinal) FROM memory.chunk c JOIN memory.version v "
        "ON v.id = c.version_id WHERE v.generation = %s AND v.title = 'Other'"
    )
    assert await rows(owner, text, run.generation) == await rows(owner, text, "g0")


async def test_copies_are_placed_as_their_originals_are(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, turn(1, "Hello?"), turn(2, "Yes."))
    (old,) = await add(store, note("One.", external_ref="n1", access_tags=("memory.space:eng",)))
    await add(store, note("Two.", external_ref="n1", retention_class=RetentionClass.DURABLE))
    (gone,) = await add(store, note("Old news.", external_ref="n3"))
    await store.deprecate_version(tenant_id=T, actor_id=OPS, version_id=gone.version_id)
    # What was there before a tag is not opened by it, in a copy either.
    await store.change_access_tags(
        tenant_id=T, principal_id=P, document_id=gone.document_id, add=["memory.space:later"]
    )
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


@pytest.mark.parametrize("strategy", sorted(BUILT_IN))
async def test_every_strategy_can_be_tried(store_of: OpenStore, owner: Owner, strategy: str) -> None:
    store = await store_of()
    await add(store, note(f"# One\n\n{LONG}\n\n# Two\n\n{LONG} Again.", external_ref="n1"))
    run = await replay(store, {"chunk": {"strategy": strategy, "maxTokens": 20}})
    texts = await rows(
        owner,
        "SELECT c.text FROM memory.chunk c JOIN memory.version v ON v.id = c.version_id WHERE v.generation = %s "
        "ORDER BY c.ordinal",
        run.generation,
    )
    assert len(texts) > 2
    caps = ChunkCaps(max_tokens=20, min_tokens=20, overlap_tokens=19)
    parts = [(f"# One\n\n{LONG}\n\n# Two\n\n{LONG} Again.", None)]
    assert [text for (text,) in texts] == [piece.text for piece in BUILT_IN[strategy](parts, caps)]


# --- scope ---


async def test_a_scope_narrows_what_is_read(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(
        store,
        note("One.", title="Mail", adapter="mail", external_ref="m1", kind="letter"),
        note("Two.", title="Note", external_ref="n1"),
        note("Three.", title="Late", external_ref="n2"),
    )
    (late,) = (await rows(owner, "SELECT id FROM memory.document WHERE title = 'Late'"))[0]
    await owner.execute(
        "UPDATE memory.raw_capture SET fetched_at = %s WHERE external_ref = 'n2'",
        [NOON + timedelta(days=400)],
    )
    await owner.execute("UPDATE memory.raw_capture SET fetched_at = %s WHERE external_ref <> 'n2'", [NOON])

    async def derived(**scope: Any) -> list[str]:
        run = await replay(store, **scope)
        assert run.scope == transform_scope(**scope)
        return [row[0] for row in await versions(owner, run.generation)]

    assert await derived(adapter="mail") == ["Mail"]
    assert await derived(kinds=["letter"]) == ["Mail"]
    assert await derived(document_ids=[late]) == ["Late"]
    # Inclusive at both ends.
    assert await derived(since=NOON, until=NOON) == ["Mail", "Note"]
    assert await derived(since=NOON + timedelta(microseconds=1)) == ["Late"]
    assert await derived(until=NOON - timedelta(microseconds=1)) == []
    assert await derived(adapter="http", kinds=["note"]) == ["Late", "Note"]


async def test_an_empty_scope_is_told(store_of: OpenStore) -> None:
    store = await store_of()
    run = await replay(store)
    assert (run.status, run.error) == (RunStatus.FAILED, EMPTY_SCOPE)
    await add(store, note("One."))
    run = await replay(store, adapter="nobody")
    assert (run.status, run.error, run.progress.total) == (RunStatus.FAILED, EMPTY_SCOPE, 0)


# --- what can't begin ---


async def test_without_a_model_a_run_fails_and_says_so(open_store: OpenStore, owner: Owner) -> None:
    store = await open_store()
    await add(store, note("One."))
    run = await begin(store)
    assert (run.status, run.error) == (RunStatus.FAILED, NO_MODEL)
    assert await work(store, run) == run
    assert await rows(owner, "SELECT count(*) FROM memory.version") == [(1,)]


async def test_a_model_that_does_not_answer_is_told_at_once(store_of: OpenStore, nobody: str) -> None:
    store = await store_of()
    await add(store, note("One."))
    run = await begin(store, {**PLAIN, "embed": {"baseUrl": nobody, "model": "m"}})
    assert run.status is RunStatus.FAILED
    assert run.error
    assert "can't be reached" in run.error or "failed" in run.error


@pytest.mark.parametrize("dims", [63, 4_001])
async def test_dimensions_that_no_index_takes_are_told(
    store_of: OpenStore, server: ModelServer, dims: int
) -> None:
    server.script(Answer({"data": [{"index": 0, "embedding": [0.1] * dims}]}))
    store = await store_of()
    await add(store, note("One."))
    run = await begin(store, {**PLAIN, "embed": {"baseUrl": server.url, "model": "m"}})
    assert run.status is RunStatus.FAILED
    assert f"{dims} dimensions" in (run.error or "")


async def test_other_dimensions_than_the_models_table_are_told(
    store_of: OpenStore, server: ModelServer, owner: Owner
) -> None:
    def answering(dims: int) -> None:
        server.requests.clear()
        server.script(
            lambda request: Answer(
                {"data": [{"index": i, "embedding": [0.1] * dims} for i in range(len(request.body["input"]))]}
            )
        )

    params = {**PLAIN, "embed": {"baseUrl": server.url, "model": "m"}}
    answering(64)
    store = await store_of()
    await add(store, note("One."))
    assert (await replay(store, params)).status is RunStatus.COMPLETED
    answering(96)
    again = await store_of()
    run = await begin(again, params)
    assert run.status is RunStatus.FAILED
    assert "96 dimensions, but its table holds 64" in (run.error or "")


async def test_unknown_configs_and_runs_are_told(store_of: OpenStore) -> None:
    store = await store_of()
    with pytest.raises(TransformConfigNotFoundError):
        await store.transforms.run_transform(
            tenant_id=T, actor_id=OPS, config_id="tcfg_unknown", scope=transform_scope()
        )
    run = await begin(store)
    for tenant, run_id in ((T, "trun_unknown"), ("other", run.id)):
        with pytest.raises(TransformRunNotFoundError):
            await store.transforms.transform_run(tenant_id=tenant, run_id=run_id)


async def test_a_config_that_vanishes_under_a_run_ends_it(store_of: OpenStore, owner: Owner) -> None:
    """The database refuses it; somebody may still do it with the constraints off."""
    store = await store_of()
    await add(store, note("One."))
    run = await begin(store)
    async with owner.transaction():
        await owner.execute("SET LOCAL session_replication_role = replica")
        await owner.execute("DELETE FROM memory.transform_config")
    run = await work(store, run)
    assert (run.status, run.error) == (RunStatus.FAILED, slicing.CONFIG_GONE)


async def test_a_config_that_can_not_be_read_any_more_ends_its_run(store_of: OpenStore, owner: Owner) -> None:
    store = await store_of()
    await add(store, note("One."))
    run = await begin(store)
    await owner.execute("""UPDATE memory.transform_config SET params = '{"chunk": {"strategy": "gone"}}'""")
    run = await work(store, run)
    assert run.status is RunStatus.FAILED
    assert "No chunk strategy 'gone' is installed here" in (run.error or "")


# --- what can't be read ---


async def test_payloads_that_no_longer_validate_are_named_and_the_run_goes_on(
    store_of: OpenStore, owner: Owner
) -> None:
    store = await store_of()
    await add(store, *(note(f"Note {i}.", title=f"N{i}", external_ref=f"n{i}") for i in range(5)))
    for ref, raw in {"n1": "{broken", "n2": '{"adapter": "http", "document": {"title": ""}}'}.items():
        await owner.execute("UPDATE memory.raw_capture SET raw_text = %s WHERE external_ref = %s", [raw, ref])
    await owner.execute(
        "INSERT INTO memory.raw_capture (tenant_id, id, adapter, external_ref, raw_text, source_hash) "
        "VALUES (%s, 'kraw_orphan', 'http', 'nowhere', '[]', 'h')",
        [T],
    )
    run = await replay(store)
    assert [row[0] for row in await versions(owner, run.generation)] == ["N0", "N3", "N4"]
    assert (run.status, run.raw_count, run.version_count, run.skipped_count) == (RunStatus.FAILED, 3, 3, 3)
    assert [skipped.problem for skipped in run.skipped[:1]] == ["the stored payload is not JSON"]
    assert run.skipped[-1].raw_capture_id == "kraw_orphan"
    first = run.skipped[0].raw_capture_id
    assert run.error == (
        f"3/6 raw_capture row(s) failed to re-derive; first error: {first}: the stored payload is not JSON"
    )
    # Mended, they are read once more; nothing else is made again.
    await owner.execute("DELETE FROM memory.raw_capture WHERE id = 'kraw_orphan'")
    await owner.execute(
        "UPDATE memory.raw_capture SET raw_text = (SELECT replace(raw_text, 'N0', 'mended') FROM memory.raw_capture "
        "WHERE external_ref = 'n0') WHERE external_ref IN ('n1', 'n2')"
    )
    before = await rows(
        owner, "SELECT id FROM memory.version WHERE generation = %s ORDER BY id", run.generation
    )
    again = await work(store, await store.transforms.retry_transform_run(tenant_id=T, run_id=run.id))
    assert (again.status, again.raw_count, again.skipped_count, again.skipped) == (
        RunStatus.COMPLETED,
        5,
        0,
        (),
    )
    after = await rows(
        owner, "SELECT id FROM memory.version WHERE generation = %s ORDER BY id", run.generation
    )
    assert set(before) < set(after)


@pytest.mark.parametrize(("title", "ok"), [("t" * 500, True), ("t" * 501, False)])
async def test_limits_of_a_capture_bind_its_replay(
    store_of: OpenStore, owner: Owner, title: str, ok: bool
) -> None:
    store = await store_of()
    await add(store, note("One.", title="Short"))
    await owner.execute("UPDATE memory.raw_capture SET raw_text = replace(raw_text, 'Short', %s)", [title])
    run = await replay(store)
    assert run.skipped_count == (0 if ok else 1)
    if not ok:
        assert run.skipped[0].problem == "title must be at most 500 characters"


async def test_a_text_that_the_model_refuses_holds_up_nothing(
    store_of: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await store_of()
    await add(store, note("Poison."), note("Fine."))
    answers = word_server.scripts[-1]

    def refuse(request: Request) -> Answer:
        if any("Poison" in text for text in request.body["input"]):
            return Answer({"error": "no"}, status=400)
        return answers(request)

    word_server.requests.clear()
    word_server.script(refuse)
    run = await replay(store)
    assert run.status is RunStatus.COMPLETED
    assert await rows(
        owner,
        "SELECT count(*) FROM memory.embed_queue WHERE generation = %s AND error IS NOT NULL",
        run.generation,
    ) == [(1,)]
    # What waits in a generation that isn't live is nobody's missing vector.
    assert (await find(store, "fine")).degraded == ("rerank_unavailable",)
    assert "dense_partial" in (await find(store, "fine", generation=run.generation)).degraded


# --- pause, cancel, retry ---


async def test_a_paused_run_is_left_alone_until_it_is_resumed(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corbits_memory.engine.replay.runs.SLICE_CAPTURES", 1)
    store = await store_of()
    await add(store, *(note(f"Note {i}.") for i in range(3)))
    run = await work(store, await begin(store), slices=1)
    assert (run.progress.done, run.progress.total, run.status) == (1, 3, RunStatus.RUNNING)
    assert run.progress.rate
    assert run.progress.seconds_left
    paused = await store.transforms.pause_transform_run(tenant_id=T, run_id=run.id, paused=True)
    assert paused.paused
    assert (await work(store, run)).progress.done == 1
    await store.transforms.pause_transform_run(tenant_id=T, run_id=run.id, paused=False)
    done = await work(store, run)
    assert (done.status, done.progress.done, done.version_count) == (RunStatus.COMPLETED, 3, 3)
    for verb in (
        store.transforms.pause_transform_run(tenant_id=T, run_id=run.id, paused=True),
        store.transforms.cancel_transform_run(tenant_id=T, run_id=run.id),
        store.transforms.retry_transform_run(tenant_id=T, run_id=run.id),
    ):
        with pytest.raises(TransformRunError):
            await verb


@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_a_slice_that_is_being_worked_on_is_given_back(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store = await store_of()
    await add(store, *(note(f"Note {i}.") for i in range(3)))
    run = await begin(store)
    embed = slicing.SliceWorker._embed

    async def stopped_meanwhile(self: slicing.SliceWorker, *arguments: object) -> None:
        if verb == "pause":
            await store.transforms.pause_transform_run(tenant_id=T, run_id=run.id, paused=True)
        else:
            await store.transforms.cancel_transform_run(tenant_id=T, run_id=run.id)
        await embed(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(slicing.SliceWorker, "_embed", stopped_meanwhile)
    stopped = await work(store, run)
    monkeypatch.undo()
    assert stopped.status is (RunStatus.RUNNING if verb == "pause" else RunStatus.FAILED)
    assert await rows(owner, "SELECT status, attempts, lease FROM memory.transform_slice") == [
        ("pending", 0, None)
    ]
    if verb == "pause":
        await store.transforms.pause_transform_run(tenant_id=T, run_id=run.id, paused=False)
    else:
        assert stopped.error == "cancelled"
        await store.transforms.retry_transform_run(tenant_id=T, run_id=run.id)
    done = await work(store, run)
    assert (done.status, done.version_count) == (RunStatus.COMPLETED, 3)


async def test_a_slice_that_fails_is_tried_again_and_then_named(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corbits_memory.engine.replay.runs.SLICE_CAPTURES", 2)
    store = await store_of()
    await add(store, *(note(f"Note {i}.") for i in range(4)))
    run = await begin(store)
    real = slicing.SliceWorker._embed

    async def away(self: slicing.SliceWorker, job: Any, part: slicing.Slice, group: Any) -> None:
        if not part.after_id:
            raise EmbedError("the model answered 503")
        await real(self, job, part, group)

    with monkeypatch.context() as patch:
        patch.setattr(slicing.SliceWorker, "_embed", away)
        for attempt in range(1, slicing.ATTEMPTS):
            run = await work(store, run)
            ((status, attempts, error, wait),) = await rows(
                owner,
                "SELECT status, attempts, error, date_part('epoch', leased_until - now()) FROM memory.transform_slice "
                "WHERE error IS NOT NULL",
            )
            assert (status, attempts, error) == ("pending", attempt, "the model answered 503")
            assert 7 * 2**attempt < wait <= 7.5 * 2**attempt
            # A worker leaves a model alone that is away: it does not go on to the next slice.
            assert (run.status, run.progress.done, run.failures[0].attempts) == (
                RunStatus.RUNNING,
                0,
                attempt,
            )
            await owner.execute("UPDATE memory.transform_slice SET leased_until = now()")
        await work(store, run)
        run = await work(store, run)
    assert run.status is RunStatus.FAILED
    assert run.error == ("2/4 raw_capture row(s) failed to re-derive; first error: the model answered 503")
    assert [(one.captures, one.attempts) for one in run.failures] == [(2, slicing.ATTEMPTS)]
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    done = await work(store, await store.transforms.retry_transform_run(tenant_id=T, run_id=run.id))
    assert (done.status, done.raw_count, done.failures) == (RunStatus.COMPLETED, 4, ())
    (key,) = (await rows(owner, "SELECT model_key FROM memory.embed_model"))[0]
    assert await rows(
        owner, f"SELECT count(*) FROM memory.embedding_{key} WHERE generation = %s", run.generation
    ) == [(4,)]


# --- many workers, and workers that die ---


async def test_many_workers_make_each_copy_once(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corbits_memory.engine.replay.runs.SLICE_CAPTURES", 3)
    stores = [await store_of() for _ in range(3)]
    documents = [note(f"Note {i} of {i % 4}.", external_ref=f"n{i % 20}") for i in range(60)]
    await add(stores[0], *documents)
    run = await begin(stores[0], SMALL)
    await asyncio.gather(*(work(store, run) for store in stores))
    run = await stores[0].transforms.transform_run(tenant_id=T, run_id=run.id)
    assert (run.status, run.raw_count, run.version_count) == (RunStatus.COMPLETED, 60, 60)
    counted = "SELECT document_id, version, status FROM memory.version WHERE generation = %s ORDER BY 1, 2"
    assert await rows(owner, counted, run.generation) == await rows(owner, counted, "g0")
    assert await rows(owner, "SELECT count(*) FROM memory.transform_slice WHERE attempts > 1") == [(0,)]


class Killed(BaseException):
    """The process is gone: nobody catches this, and nothing is given back."""


@pytest.mark.parametrize("step", ["_captures", "_copy", "_write", "_embed", "_end_slice", "_finish", "_link"])
@pytest.mark.parametrize("after", [False, True])
async def test_what_a_dead_worker_left_another_ends(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    monkeypatch.setattr("corbits_memory.engine.replay.runs.SLICE_CAPTURES", 2)
    monkeypatch.setattr("corbits_memory.engine.replay.slices.GROUP_CAPTURES", 1)
    store = await store_of()
    await add(store, *(note(f"{LONG} Note {i}.", external_ref=f"n{i}") for i in range(5)))
    run = await begin(store, SMALL)
    real = getattr(slicing.SliceWorker, step)

    async def die(self: slicing.SliceWorker, *arguments: object) -> object:
        if after:
            await real(self, *arguments)
        raise Killed

    monkeypatch.setattr(slicing.SliceWorker, step, die)
    with pytest.raises(Killed):
        await work(store, run)
    monkeypatch.setattr(slicing.SliceWorker, step, real)
    left = await work(store, run)
    if step not in ("_finish", "_link") and (step, after) != ("_end_slice", True):
        # It is another's until its lease ends.
        assert left.status is RunStatus.RUNNING
        await owner.execute("UPDATE memory.transform_slice SET leased_until = now() WHERE lease IS NOT NULL")
    await owner.execute("UPDATE memory.embed_queue SET not_before = now()")
    done = await work(store, run)
    assert (done.status, done.raw_count, done.version_count) == (RunStatus.COMPLETED, 5, 5)
    whole = await replay(store, SMALL)
    shape = (
        "SELECT v.document_id, v.version, c.ordinal, c.text, r.chunk_id IS NOT NULL FROM memory.version v "
        "JOIN memory.chunk c ON c.version_id = v.id LEFT JOIN memory.search_row r ON r.chunk_id = c.id "
        "WHERE v.generation = %s ORDER BY 1, 2, 3"
    )
    assert await rows(owner, shape, done.generation) == await rows(owner, shape, whole.generation)
    assert await rows(owner, "SELECT count(*) FROM memory.embed_queue") == [(0,)]


async def test_a_slice_that_kills_its_workers_is_given_up(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await store_of()
    await add(store, note("One."))
    run = await begin(store)

    async def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(slicing.SliceWorker, "_copy", die)
        for _ in range(slicing.ATTEMPTS):
            with pytest.raises(Killed):
                await work(store, run)
            await owner.execute("UPDATE memory.transform_slice SET leased_until = now()")
    run = await work(store, run)
    assert run.status is RunStatus.FAILED
    assert "every worker that took this slice died" in (run.error or "")


async def test_two_workers_on_one_slice_do_no_harm(
    store_of: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is slow, its lease ends, another takes the slice; then the first goes on."""
    slow, quick = await store_of(), await store_of()
    await add(slow, *(note(f"Note {i}.") for i in range(3)))
    run = await begin(slow)
    copied, go_on = asyncio.Event(), asyncio.Event()
    real = slicing.SliceWorker._embed

    async def wait(self: slicing.SliceWorker, *arguments: object) -> None:
        if self is slow.replays.slices:
            copied.set()
            await go_on.wait()
        await real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(slicing.SliceWorker, "_embed", wait)
    working = asyncio.create_task(work(slow, run))
    await copied.wait()
    await owner.execute("UPDATE memory.transform_slice SET leased_until = now()")
    done = await work(quick, run)
    go_on.set()
    await working
    assert (done.status, done.version_count) == (RunStatus.COMPLETED, 3)
    again = await quick.transforms.transform_run(tenant_id=T, run_id=run.id)
    assert (again.status, again.version_count, again.completed_at) == (done.status, 3, done.completed_at)
    assert P
