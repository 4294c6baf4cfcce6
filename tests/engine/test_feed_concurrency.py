"""Many writers and readers of one feed; waking, and what happens when nothing wakes."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from corbits_memory.engine import feed_signal
from corbits_memory.engine.feed_signal import FeedSignal
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.plane import Memory
from corbits_memory.ports import FeedQuery
from tests.engine.support import OpenStore, P, T, add, note

Owner = psycopg.AsyncConnection[Any]
WRITERS, ROUNDS = 16, 10
LONGEST_PAUSE = 0.02


def dawdle(store: PostgresDocumentStore, seed: int) -> None:
    """Have each transaction of a store wait a random time, after its last statement, before it commits."""
    database, chance = store._database, random.Random(seed)
    quick = database.tenant

    @asynccontextmanager
    async def slow(tenant_id: str, **options: Any) -> AsyncIterator[Connection]:
        async with quick(tenant_id, **options) as conn:
            yield conn
            await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE))

    database.tenant = slow  # type: ignore[method-assign]


async def write(store: PostgresDocumentStore, number: int) -> int:
    """Batches of random size, some of them new versions of what others write too; the versions written."""
    chance, written = random.Random(number), 0
    for turn in range(ROUNDS):
        size = chance.choice((1, 1, 2, 5, 20))
        names = [f"{chance.choice(('shared', number))}:{turn}:{n}" for n in range(size)]
        answers = await add(store, *(note(f"{number}.{turn}.{n}", external_ref=n) for n in names))
        written += len(answers)
        await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE))
    return written


class Seen:
    """What one reader was told, in order, and when it has all."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []

    async def until(self, count: int) -> None:
        while len(self.entries) < count:  # noqa: ASYNC110 - another process may be the one that reads
            await asyncio.sleep(0.02)


async def read_here(store: PostgresDocumentStore, seen: Seen) -> None:
    async with Memory(store) as memory:
        async for entry in memory.follow(tenant_id=T, principal_id=P):
            seen.entries.append((entry.seq, str(entry.version_id)))


async def read_in_pages(store: PostgresDocumentStore, seen: Seen) -> None:
    """As a client with a cursor of its own does: asking again and again, with plain integers."""
    after = 0
    while True:
        query = FeedQuery(after=after, limit=7)
        page = await store.feed(tenant_id=T, principal_id=P, query=query)
        seen.entries += [(entry.seq, str(entry.version_id)) for entry in page.entries]
        after = after if page.next_cursor is None else page.next_cursor
        if not page.has_more:
            await asyncio.sleep(0.005)


async def read_in_a_process(url: str, seen: Seen, lives: list[int]) -> None:
    """Killed again and again, started again after the last entry that came out of it."""
    for life in lives:
        process = await _reader(url, after=seen.entries[-1][0] if seen.entries else 0)
        assert process.stdout is not None
        told = 0
        try:
            while told < life:
                line = (await process.stdout.readline()).decode()
                assert line.endswith("\n"), "the reader ended by itself"
                number, version = line.split()
                seen.entries.append((int(number), version))
                told += 1
        finally:
            process.kill()
            await process.communicate()


async def _reader(url: str, *, after: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.engine.feed_reader", url, T, P, str(after), stdout=PIPE
    )


async def test_many_writers_lose_nothing_for_any_reader(
    open_store: OpenStore, database_url: str, owner: Owner
) -> None:
    """Sixteen writers of random transactions, three readers, one of them killed: each is told of every
    committed version once, in order."""
    writers = [await open_store(db_pool_max=2) for _ in range(WRITERS)]
    for number, store in enumerate(writers):
        dawdle(store, number)
    following, paging, killed = Seen(), Seen(), Seen()
    forever = 1_000_000
    readers = [
        asyncio.create_task(read_here(await open_store(), following)),
        asyncio.create_task(read_in_pages(await open_store(), paging)),
        asyncio.create_task(read_in_a_process(database_url, killed, [40, 150, forever])),
    ]
    written = sum(await asyncio.gather(*(write(store, n) for n, store in enumerate(writers))))
    async with asyncio.timeout(60):
        for seen in (following, paging, killed):
            await seen.until(written)
    await asyncio.sleep(0.1)
    for reader in readers:
        assert not reader.done()
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    rows = await (
        await owner.execute("SELECT feed_seq, id FROM memory.version WHERE tenant_id = %s ORDER BY 1", [T])
    ).fetchall()
    assert [number for number, _ in rows] == list(range(1, written + 1))
    assert following.entries == rows
    assert paging.entries == rows
    assert killed.entries == rows


# --- waking ------------------------------------------------------------------------------------------


async def waits(store: PostgresDocumentStore, *, after: int, seconds: float = 30) -> float:
    """How long a wait took."""
    began = asyncio.get_running_loop().time()
    await store.feed_changed(tenant_id=T, after=after, seconds=seconds)
    return asyncio.get_running_loop().time() - began


async def test_a_write_in_another_process_wakes_at_once(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_signal, "LOOK_SECONDS", 60.0)
    here, there = await open_store(), await open_store()
    waiting = asyncio.create_task(waits(here, after=0))
    await _listening(here)
    await add(there, note("x"))
    async with asyncio.timeout(10):
        await waiting


async def test_without_notices_the_numbers_are_looked_at(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a pooler in transaction mode LISTEN succeeds and nothing is ever heard."""
    monkeypatch.setattr(feed_signal, "LOOK_SECONDS", 0.2)
    here, there = await open_store(), await open_store()
    monkeypatch.setattr(there.feed_signal, "tell", lambda tenant_id: None)
    waiting = asyncio.create_task(waits(here, after=0))
    await _listening(here)
    await add(there, note("x"))
    async with asyncio.timeout(5):
        await waiting


async def test_a_lost_listening_connection_is_opened_again(
    open_store: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_signal, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(feed_signal, "RETRY_SECONDS", 0.2)
    store, other = await open_store(), await open_store()
    waiting = asyncio.create_task(waits(store, after=0))
    await _listening(store)
    await owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'corbits-memory feed'"
    )
    await add(other, note("x"))
    async with asyncio.timeout(5):
        await waiting
        while not await _listeners(owner):  # noqa: ASYNC110 - the server's view
            await asyncio.sleep(0.05)


async def test_a_process_listens_on_one_connection_however_many_follow(
    open_store: OpenStore, owner: Owner
) -> None:
    store = await open_store()
    assert await _listeners(owner) == 0
    waiting = [asyncio.create_task(waits(store, after=0)) for _ in range(40)]
    await _listening(store)
    async with asyncio.timeout(5):
        while not await _listeners(owner):  # noqa: ASYNC110 - the server's view
            await asyncio.sleep(0.02)
    assert await _listeners(owner) == 1
    await add(store, note("x"))
    await asyncio.gather(*waiting)


async def test_what_is_there_already_is_not_waited_for(store: PostgresDocumentStore) -> None:
    await add(store, note("x"))
    assert await waits(store, after=0) < 5
    # A look that was on its way may wake once more, for nothing.
    assert max([await waits(store, after=1, seconds=0.1) for _ in range(3)]) >= 0.1


async def test_closing_ends_all_waits(open_store: OpenStore) -> None:
    store = await open_store()
    waiting = asyncio.create_task(waits(store, after=0))
    await _listening(store)
    await store.close()
    async with asyncio.timeout(5):
        await waiting
    assert await waits(store, after=0) < 1


async def test_notices_of_one_moment_are_one_statement(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal: FeedSignal = store.feed_signal
    for number in range(100):
        signal.tell(f"t{number}")
    assert len(signal._to_tell) == 100
    await asyncio.sleep(0)
    assert signal._to_tell == set()


async def _listening(store: PostgresDocumentStore) -> None:
    async with asyncio.timeout(10):
        while not store.feed_signal.listening or not store.feed_signal._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _listeners(owner: Owner) -> int:
    row = await (
        await owner.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'corbits-memory feed'"
        )
    ).fetchone()
    return int(row[0]) if row else 0
