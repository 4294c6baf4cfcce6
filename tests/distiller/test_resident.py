"""A distiller that stays: its cursor, what it tries again, and what it gives up. With both stores of cursors."""

from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from corbits_memory.core.enums import FeedOp
from corbits_memory.distiller import (
    CursorStore,
    DistillEntry,
    DistillUnavailableError,
    LeaseLostError,
    Outcome,
    PlaneMemory,
    Poison,
    ResidentTick,
    Skip,
)
from corbits_memory.distiller.file import FileCursors
from corbits_memory.distiller.postgres import PostgresCursors
from corbits_memory.errors import DatabaseError, ForbiddenError, InvalidCursorError
from corbits_memory.plane import Memory
from corbits_memory.wire.feed import FeedEntryResponse, FeedResponse
from corbits_memory.wire.responses import AddResponse
from tests.distiller.support import ANN, CONSUMER, TENANT, Recorder, claims, put, resident, write

Owner = psycopg.AsyncConnection[Any]


@pytest.fixture(params=["postgres", "file"])
def kept(request: pytest.FixtureRequest, cursors: PostgresCursors, tmp_path: Path) -> CursorStore:
    return cursors if request.param == "postgres" else FileCursors(tmp_path / "state" / "cursor.json")


def failing(*titles: str) -> Recorder:
    def distill(entry: DistillEntry) -> Outcome:
        if entry.title in titles:
            raise ValueError(f"no idea of {entry.text}")
        return write(entry)

    return Recorder(distill)


async def test_each_entry_is_settled_by_itself_and_the_next_one_goes_on(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    for title in "ABC":
        await put(memory, title)
    recorder = Recorder()
    one = resident(anns, recorder, kept, limit=2)
    first = await one.tick()
    assert (first.tick.next_cursor, len(first.tick.wrote), first.tick.has_more) == (2, 2, True)
    second = await resident(anns, recorder, kept).tick()
    assert (second.tick.has_more, recorder.titles) == (False, ["A", "B", "C"])
    # Beyond its own claims, which it passed over.
    third = await one.tick()
    assert (third.tick.processed, len(await claims(memory))) == (0, 3)


async def test_what_fails_is_tried_again_then_given_up_and_the_others_go_on(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    for title in "ABC":
        await put(memory, title)
    recorder = failing("B")
    one = resident(anns, recorder, kept, attempts=3)
    ticks = [await one.tick() for _ in range(3)]
    assert recorder.titles == ["A", "B", "B", "B", "C"]
    assert [tick.tick.next_cursor for tick in ticks[:2]] == [1, 1]
    assert ticks[0].problem == "entry 2 failed for the 1. time: ValueError: no idea of All about B."
    (dead,) = await kept.failures(CONSUMER)
    assert (dead.seq, dead.attempts, dead.reason) == (2, 3, "ValueError: no idea of All about B.")
    assert ticks[2].tick.poisoned[0].attempts == 3
    assert (await kept.state(CONSUMER)).dead == 1


async def test_poison_is_given_up_at_once(memory: Memory, anns: PlaneMemory, kept: CursorStore) -> None:
    await put(memory, "A")
    done = await resident(anns, lambda _: Poison(reason="steers"), kept).tick()
    assert [(one.reason, one.attempts) for one in done.tick.poisoned] == [("steers", 1)]
    assert [one.reason for one in await kept.failures(CONSUMER)] == ["steers"]


async def test_what_was_given_up_is_tried_again_when_somebody_asks(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    for title in "AB":
        await put(memory, title)
    broken = failing("A", "B")
    await resident(anns, broken, kept, attempts=1).tick()
    assert await kept.retry(CONSUMER, [1, 99]) == 1
    recorder = Recorder()
    done = await resident(anns, recorder, kept).tick()
    assert (recorder.titles, len(done.tick.wrote)) == (["A"], 1)
    assert [one.seq for one in await kept.failures(CONSUMER)] == [2]
    assert await kept.retry(CONSUMER) == 1
    again = await resident(anns, broken, kept, attempts=1).tick()
    assert [one.seq for one in again.tick.poisoned] == [2]
    assert len(await claims(memory)) == 1


async def test_what_can_not_be_read_any_more_is_no_failure(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    added = await put(memory, "A")
    await resident(anns, failing("A"), kept, attempts=2).tick()
    await memory.forget(tenant_id=TENANT, principal_id=ANN, document_id=added.document_id)
    recorder = Recorder()
    await put(memory, "B")
    for _ in range(2):
        await resident(anns, recorder, kept).tick()
    assert recorder.titles == ["B"]
    lease = await kept.claim(CONSUMER)
    assert lease is not None
    assert dict(lease.attempts) == {}
    await lease.release()


async def test_an_inference_that_is_away_costs_no_attempt(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    await put(memory, "A")
    away = [True, True, True]

    def distill(entry: DistillEntry) -> Outcome:
        if away:
            away.pop()
            raise DistillUnavailableError("the model sleeps")
        return write(entry)

    one = resident(anns, distill, kept, attempts=1)
    for _ in range(3):
        done = await one.tick(impatient=True)
        assert (done.problem, done.tick.next_cursor) == ("the model sleeps", 0)
    assert len((await one.tick()).tick.wrote) == 1


async def test_a_pause_after_a_failure_holds_for_everybody(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    await put(memory, "A")
    one = resident(anns, failing("A"), kept, retry_seconds=60)
    done = await one.tick()
    assert 30 <= done.wait_seconds <= 60
    recorder = Recorder()
    other = resident(anns, recorder, kept)
    busy = await other.tick()
    assert (busy.busy, recorder.titles) == (True, [])
    assert 0 < busy.wait_seconds <= 60
    assert len((await other.tick(impatient=True)).tick.wrote) == 1


async def test_a_cursor_begins_where_it_is_told_and_can_be_moved(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    for title in "AB":
        await put(memory, title)
    recorder = Recorder()
    await resident(anns, recorder, kept, after=1).tick()
    assert recorder.titles == ["B"]
    assert await kept.move(CONSUMER, 0)
    await resident(anns, recorder, kept, after=1).tick()
    assert recorder.titles == ["B", "A", "B"]
    assert len(await claims(memory)) == 2
    lease = await kept.claim(CONSUMER)
    assert lease is not None
    assert not await kept.move(CONSUMER, 0)
    await lease.release()


async def test_a_cursor_that_the_feed_has_not_reached_is_told_of(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    await put(memory, "A")
    await kept.move(CONSUMER, 99)
    with pytest.raises(InvalidCursorError):
        await resident(anns, write, kept).run()
    assert not (await kept.state(CONSUMER)).held


async def test_a_resident_goes_on_until_it_is_stopped_also_in_the_middle(
    memory: Memory, anns: PlaneMemory, kept: CursorStore
) -> None:
    stop, hanging = anyio.Event(), anyio.Event()

    async def distill(entry: DistillEntry) -> Outcome:
        if entry.title == "C":
            hanging.set()
            await anyio.sleep_forever()
        return write(entry)

    ticks: list[ResidentTick] = []
    for title in "AB":
        await put(memory, title)
    one = resident(anns, distill, kept, limit=1, interval=0.05)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: one.run(on_tick=ticks.append, stop=stop))
            while len(await claims(memory)) < 2:  # noqa: ASYNC110 - the database has no event
                await anyio.sleep(0.02)
            await put(memory, "C")
            await hanging.wait()
            assert (await kept.state(CONSUMER)).held
            stop.set()
    state = await kept.state(CONSUMER)
    assert not state.held
    # The entry in the middle of which it was stopped comes again.
    recorder = Recorder()
    await resident(anns, recorder, kept).tick()
    assert recorder.titles == ["C"]


class Failing:
    """A memory whose first calls fail."""

    def __init__(self, memory: PlaneMemory, *errors: Exception) -> None:
        self._memory = memory
        self._errors = list(errors)

    async def feed(self, **asked: Any) -> Any:
        if self._errors:
            raise self._errors.pop(0)
        return await self._memory.feed(**asked)

    async def add(self, **body: Any) -> Any:
        return await self._memory.add(**body)


async def test_a_database_that_is_away_is_waited_for(
    memory: Memory, anns: PlaneMemory, cursors: PostgresCursors
) -> None:
    await put(memory, "A")
    stop, told = anyio.Event(), []

    def on_tick(tick: ResidentTick) -> None:
        told.append(tick.problem)
        if tick.tick.wrote:
            stop.set()

    away = Failing(anns, DatabaseError("gone"), DatabaseError("gone"))
    with anyio.fail_after(20):
        await resident(away, write, cursors, retry_seconds=0.01).run(on_tick=on_tick, stop=stop)
    assert told == ["gone", "gone", None]


async def test_a_missing_permission_ends_it(
    memory: Memory, anns: PlaneMemory, cursors: PostgresCursors
) -> None:
    await put(memory, "A")
    with pytest.raises(ForbiddenError):
        await resident(Failing(anns, ForbiddenError()), write, cursors).run()


async def test_whoever_lost_the_lease_is_told_and_has_the_entry_left_to_others(
    memory: Memory, anns: PlaneMemory, cursors: PostgresCursors, owner: Owner
) -> None:
    await put(memory, "A")

    async def distill(entry: DistillEntry) -> Outcome:
        await owner.execute("UPDATE memory.distill_cursor SET lease = 'somebody'")
        return Skip()

    with pytest.raises(LeaseLostError):
        await resident(anns, distill, cursors).tick()
    assert (await cursors.state(CONSUMER)).position == 0


async def test_a_reason_goes_with_the_text_that_it_quotes(
    memory: Memory, anns: PlaneMemory, cursors: PostgresCursors, owner: Owner
) -> None:
    first, second = await put(memory, "A"), await put(memory, "B")
    await resident(anns, failing("A", "B"), cursors, attempts=1).tick()
    assert len(await cursors.failures(CONSUMER)) == 2
    await memory.forget(tenant_id=TENANT, principal_id=ANN, document_id=first.document_id)
    await memory.purge(tenant_id=TENANT, principal_id=ANN, document_id=second.document_id)
    assert await (await owner.execute("SELECT count(*) FROM memory.distill_failure")).fetchone() == (0,)


async def test_of_what_was_erased_meanwhile_no_reason_is_kept(
    memory: Memory, anns: PlaneMemory, cursors: PostgresCursors
) -> None:
    added = await put(memory, "A")

    async def distill(entry: DistillEntry) -> Outcome:
        await memory.forget(tenant_id=TENANT, principal_id=ANN, document_id=added.document_id)
        raise ValueError(entry.text)

    await resident(anns, distill, cursors, attempts=1).tick()
    assert [one.reason for one in await cursors.failures(CONSUMER)] == ["erased"]


async def test_a_page_of_other_things_is_settled_too(cursors: PostgresCursors) -> None:
    """Promotions and retractions are no entries to distil; the cursor goes on behind them all the same."""
    entries = [FeedEntryResponse.model_validate({"feedSeq": seq, "op": FeedOp.PROMOTE}) for seq in (1, 2, 3)]

    class Promoted:
        async def feed(self, *, after: int, **_: object) -> FeedResponse:
            page = [entry for entry in entries if entry.feed_seq > after]
            return FeedResponse(entries=page, next_cursor=3 if page else None, has_more=False)

        async def add(self, **_: object) -> AddResponse:
            raise AssertionError("there is nothing to add")

    distiller = resident(Promoted(), write, cursors)
    assert (await distiller.tick()).tick.next_cursor == 3
    assert (await cursors.state(CONSUMER)).position == 3
