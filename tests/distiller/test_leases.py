"""Two residents and one cursor: real connections, and real processes of which one is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql

from corbits_memory.distiller import Consumer, DistillEntry, LeaseLostError, Outcome, PlaneMemory
from corbits_memory.distiller.file import FileCursors
from corbits_memory.distiller.postgres import PostgresCursors
from corbits_memory.engine.pool import Database
from corbits_memory.errors import ConfigError
from corbits_memory.plane import Memory
from tests.distiller.support import CONSUMER, TENANT, Recorder, claims, put, resident, write

Owner = psycopg.AsyncConnection[Any]

HOLDER = """
import asyncio, sys
from pathlib import Path
from corbits_memory.distiller import Consumer
from corbits_memory.distiller.file import FileCursors
from corbits_memory.distiller.postgres import PostgresCursors
from corbits_memory.engine.pool import Database

async def main(kind, place):
    consumer = Consumer(tenant_id="acme", principal_id="ann", agent_id="resident-distiller")
    if kind == "postgres":
        database = Database(place, pool_max=2)
        await database.open()
        store = PostgresCursors(database, lease_seconds=3)
    else:
        store = FileCursors(Path(place))
    lease = await store.claim(consumer)
    await lease.settle(1)
    print("held", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["postgres", "file"])
async def test_a_killed_holder_loses_its_lease_and_nothing_that_it_settled(
    kind: str, database_url: str, cursors: PostgresCursors, tmp_path: Path
) -> None:
    place = database_url if kind == "postgres" else str(tmp_path / "cursor")
    mine = cursors if kind == "postgres" else FileCursors(Path(place))
    holder = subprocess.Popen(  # noqa: ASYNC220 - begun before anything waits
        [sys.executable, "-c", HOLDER, kind, place], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert await anyio.to_thread.run_sync(holder.stdout.readline) == "held\n"
        assert await mine.claim(CONSUMER) is None
        assert (await mine.state(CONSUMER)).held
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10)
        killed = time.monotonic()
        lease = None
        while lease is None:
            assert time.monotonic() - killed < 10
            lease = await mine.claim(CONSUMER)
            await anyio.sleep(0.05)
        assert lease.position == 1
        await lease.release()
    finally:
        holder.kill()
        holder.communicate(timeout=10)


async def test_of_two_residents_at_once_one_works(
    memory: Memory, anns: PlaneMemory, database: Database, cursors: PostgresCursors
) -> None:
    for number in range(12):
        await put(memory, f"N{number}")

    async def distill(entry: DistillEntry) -> Outcome:
        await anyio.sleep(0.01)
        return write(entry)

    recorders = [Recorder(distill) for _ in range(4)]
    ticks: list[bool] = []

    async def tick(recorder: Recorder) -> None:
        done = await resident(anns, recorder, PostgresCursors(database), limit=3).tick()
        ticks.append(done.busy)

    for _ in range(6):
        async with anyio.create_task_group() as group:
            for recorder in recorders:
                group.start_soon(tick, recorder)
    seen = [title for recorder in recorders for title in recorder.titles]
    assert sorted(seen) == sorted({f"N{number}" for number in range(12)})
    assert ticks.count(False) < len(ticks)
    assert len(await claims(memory)) == 12


async def test_a_lease_that_ran_out_and_was_taken_can_do_nothing_more(database: Database) -> None:
    brief, other = PostgresCursors(database, lease_seconds=0.05), PostgresCursors(database)
    late = await brief.claim(CONSUMER)
    assert late is not None
    await anyio.sleep(0.1)
    now = await other.claim(CONSUMER)
    assert now is not None
    for call in (late.renew, lambda: late.settle(5), lambda: late.wait(1)):
        with pytest.raises(LeaseLostError):
            await call()
    with pytest.raises(LeaseLostError):
        await late.fail(seq=5, version_id="v", attempts=1, reason="r", dead=True, wait_seconds=0)
    await late.release()
    await now.renew()
    await now.settle(3)
    state = await other.state(CONSUMER)
    assert (state.position, state.held, state.dead) == (3, True, 0)


async def test_a_lease_that_is_renewed_stays(database: Database) -> None:
    store = PostgresCursors(database, lease_seconds=0.4)
    lease = await store.claim(CONSUMER)
    assert lease is not None
    for _ in range(4):
        await anyio.sleep(0.2)
        await lease.renew()
        assert await store.claim(CONSUMER) is None


async def test_a_lease_is_renewed_while_its_holder_works(
    memory: Memory, anns: PlaneMemory, database: Database
) -> None:
    """However short it is: who works longer than it lasts keeps it, and nobody does the work a second time."""
    for number in range(3):
        await put(memory, f"N{number}")

    async def slow(entry: DistillEntry) -> Outcome:
        await anyio.sleep(0.7)
        return write(entry)

    holder, other = Recorder(slow), Recorder(write)
    brief = PostgresCursors(database, lease_seconds=0.3)
    busy: list[bool] = []
    async with anyio.create_task_group() as group:

        async def hold() -> None:
            await resident(anns, holder, brief).tick()
            group.cancel_scope.cancel()

        group.start_soon(hold)
        await anyio.sleep(0.2)
        while True:
            busy.append((await resident(anns, other, brief).tick()).busy)
            await anyio.sleep(0.05)
    assert holder.titles == ["N0", "N1", "N2"]
    assert (other.titles, set(busy)) == ([], {True})


async def test_cursors_of_other_agents_principals_and_tenants_are_others(cursors: PostgresCursors) -> None:
    names = {"tenant_id": TENANT, "principal_id": "ann", "agent_id": "resident-distiller"}
    await cursors.move(CONSUMER, 7)
    for field in names:
        other = Consumer(**{**names, field: "other"})
        assert (await cursors.state(other)).position == 0
        lease = await cursors.claim(other)
        assert lease is not None
        await lease.release()


async def test_a_position_never_goes_back_while_it_is_held(cursors: PostgresCursors) -> None:
    lease = await cursors.claim(CONSUMER)
    assert lease is not None
    await lease.settle(9)
    await lease.settle(4)
    assert (await cursors.state(CONSUMER)).position == 9


async def test_the_second_lock_holds_for_cursors_and_failures(
    memory: Memory, anns: PlaneMemory, cursors: PostgresCursors, database: Database
) -> None:
    await put(memory, "A")

    def broken(entry: DistillEntry) -> Outcome:
        raise ValueError

    await resident(anns, broken, cursors, attempts=1).tick()
    for table in ("distill_cursor", "distill_failure"):
        counted = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("memory", table))
        async with database.tenant(TENANT) as conn:
            assert await (await conn.execute(counted)).fetchone() == (1,)
        async with database.tenant("other") as conn:
            assert await (await conn.execute(counted)).fetchone() == (0,)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 9, "consumer": {}, "position": 0}', "\x00"])
async def test_a_file_that_is_no_cursor_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cursor"
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(ConfigError, match="name another one"):
            await FileCursors(path).claim(CONSUMER)
    assert path.read_text() == text


async def test_a_file_of_another_distiller_is_refused(tmp_path: Path) -> None:
    store = FileCursors(tmp_path / "cursor")
    await store.move(CONSUMER, 1)
    with pytest.raises(ConfigError, match="another distiller's"):
        await store.claim(Consumer(tenant_id="other", principal_id="ann", agent_id="resident-distiller"))
    assert (tmp_path / "cursor").stat().st_mode & 0o077 == 0
