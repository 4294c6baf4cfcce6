"""The feed under load: sixteen writers of random transactions, three readers in processes of their own, one of them
killed again and again. Every committed version must reach each reader once, in order.
"""

import asyncio
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg

from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, bench_server
from corbits_memory.config import EngineConfig
from corbits_memory.core.relevance import percentile
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import AddResult, NewDocument, TextPart

TENANT = "feed"
WRITERS = 16
SECONDS, QUICK_SECONDS = 120.0, 10.0
LONGEST_PAUSE = 0.02
"""A transaction waits a random time up to this between its last statement and its commit, holding its numbers."""
SIZES = (1, 1, 1, 2, 5, 20)
LIFE_SECONDS = 5.0
"""How long the reader that is killed lives each time."""
CATCH_UP_SECONDS = 60.0


@dataclass
class Reader:
    """What one reader was told: number, version, and when."""

    name: str
    seen: list[tuple[int, str, float]] = field(default_factory=list)
    lives: int = 0


async def run_feed(*, quick: bool = False) -> str:
    """Markdown of the figures. Raises ``AssertionError`` when a reader missed, repeated or misplaced anything."""
    seconds = QUICK_SECONDS if quick else SECONDS
    with bench_server() as server:
        url = await server.create_database("feed")
        readers = [Reader("follows"), Reader("follows"), Reader("is killed every 5 s")]
        reading = [asyncio.create_task(_read(url, r, killed=r is readers[-1])) for r in readers]
        try:
            written = await _write(url, seconds)
            await _catch_up(readers, len(written))
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        committed = await _committed(url)
    return _report(readers, committed, written, seconds)


async def _write(url: str, seconds: float) -> dict[str, float]:
    """When each version was known to be committed."""
    written: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(_store(url, number)) for number in range(WRITERS)]
        ends = time.monotonic() + seconds
        await asyncio.gather(*(_writer(s, n, ends, written) for n, s in enumerate(stores)))
    return written


@asynccontextmanager
async def _store(url: str, number: int) -> AsyncIterator[PostgresDocumentStore]:
    config = EngineConfig(database_url=url, run_worker=False, db_pool_max=2)
    store = PostgresDocumentStore(config, embedder=None, reranker=None)
    _dawdle(store, random.Random(number))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _dawdle(store: PostgresDocumentStore, chance: random.Random) -> None:
    database: Any = store._database  # noqa: SLF001 - the only place where transactions can be made longer
    quick = database.tenant

    @asynccontextmanager
    async def slow(tenant_id: str, **options: Any) -> AsyncIterator[Connection]:
        async with quick(tenant_id, **options) as conn:
            yield conn
            await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE))

    database.tenant = slow


async def _writer(store: PostgresDocumentStore, number: int, ends: float, written: dict[str, float]) -> None:
    chance, turn = random.Random(number), 0
    while time.monotonic() < ends:
        turn += 1
        documents = [
            NewDocument(
                title=f"Note {number}.{turn}.{n}",
                parts=(TextPart(text=f"Writer {number} wrote this in turn {turn}, as number {n}."),),
                external_ref=f"{number}:{turn}:{n}",
            )
            for n in range(chance.choice(SIZES))
        ]
        answers = await store.add(tenant_id=TENANT, principal_id=PRINCIPAL, documents=documents)
        now = time.time()
        for answer in answers:
            assert isinstance(answer, AddResult), answer
            written[answer.version_id] = now
        await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE))


async def _read(url: str, reader: Reader, *, killed: bool) -> None:
    while True:
        after = reader.seen[-1][0] if reader.seen else 0
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.feed_reader", url, TENANT, PRINCIPAL, str(after), stdout=PIPE
        )
        reader.lives += 1
        assert process.stdout is not None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIFE_SECONDS if killed else None):
                    # A line that was cut off by the kill is not counted, so its entry is asked for again.
                    while (line := await process.stdout.readline()).endswith(b"\n"):
                        number, version, at = line.decode().split()
                        reader.seen.append((int(number), version, float(at)))
                    raise AssertionError(f"a reader ended by itself after {len(reader.seen)} entries")
        finally:
            process.kill()
            await process.wait()


async def _catch_up(readers: list[Reader], count: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while any(len(reader.seen) < count for reader in readers):  # noqa: ASYNC110 - they are other processes
                await asyncio.sleep(0.1)


async def _committed(url: str) -> list[tuple[int, str]]:
    async with await psycopg.AsyncConnection.connect(url) as conn:
        rows = await conn.execute(
            "SELECT feed_seq, id FROM memory.version WHERE tenant_id = %s ORDER BY feed_seq", [TENANT]
        )
        return [(int(row[0]), str(row[1])) for row in await rows.fetchall()]


def _report(
    readers: list[Reader], committed: list[tuple[int, str]], written: dict[str, float], seconds: float
) -> str:
    assert [number for number, _ in committed] == list(range(1, len(committed) + 1)), "the numbers have gaps"
    table = Table(
        ("reader", "lives", "delivered", "lost", "repeated", "out of order", "lag p50 ms", "p99 ms")
    )
    wrong = False
    for reader in readers:
        told = [(number, version) for number, version, _ in reader.seen]
        lost, repeated = len(set(committed) - set(told)), len(told) - len(set(told))
        misplaced = sum(one >= other for (one, _), (other, _) in pairwise(told))
        wrong = wrong or told != committed
        lags = [max(0.0, at - written[version]) * 1_000 for _, version, at in reader.seen]
        table.add(
            reader.name, reader.lives, f"{len(told):,}", lost, repeated, misplaced,
            f"{percentile(lags, 0.5):.0f}", f"{percentile(lags, 0.99):,.0f}",
        )  # fmt: skip
    assert not wrong, f"not every reader was told everything once and in order:\n{table.markdown()}"
    return (
        f"{WRITERS} writers for {seconds:.0f} s, batches of {min(SIZES)} to {max(SIZES)} documents, each transaction "
        f"up to {LONGEST_PAUSE * 1_000:.0f} ms longer than it need be while it holds its numbers: "
        f"{len(committed):,} versions of one tenant, {len(committed) / seconds:.0f} a second. Lag: from the answer to "
        "the writer until the reader, a process of its own, has the entry; everything shares the machine's cores.\n\n"
        f"{table.markdown()}"
    )
