"""Wakes followers of the feed: one listening connection a process, and a look at the numbers every two seconds.

A notice only makes it faster. Behind a pooler that lets none pass, or when the connection is lost, the look finds
what is new; and it is one query a process, however many follow.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from corbits_memory.engine.pool import ACQUIRE_SECONDS, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import MemoryError

logger = logging.getLogger("corbits_memory.feed")

CHANNEL = "corbits_memory_feed"
LOOK_SECONDS = 2.0
RETRY_SECONDS = 5.0
FLUSH_SECONDS = 2.0


class FeedSignal:
    """Tells this process's followers, and those of others, that a tenant's feed went on."""

    def __init__(self, url: str, database: Database) -> None:
        self._url = url
        self._database = database
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._anybody: set[asyncio.Event] = set()
        self._newest: dict[str, int] = {}
        """The highest number that was heard of, of tenants that are followed."""
        self._listener: asyncio.Task[None] | None = None
        self._to_tell: set[str] = set()
        self._teller: asyncio.Task[None] | None = None
        self._closed = False
        self.listening = False
        """Whether notices are heard now."""

    async def wait(self, tenant_id: str, *, after: int, seconds: float) -> None:
        """Returns when the tenant's feed may have gone beyond ``after``, at the latest after ``seconds``."""
        if self._closed:
            return
        self._listen()
        with self._waiter(self._waiting[tenant_id]) as woken:
            # Looked at by itself: what was written before the waiting began is nobody's notice any more.
            if not self._moved(tenant_id, after) and not await self._look([tenant_id], after):
                await at_most(woken, seconds)
        if not self._waiting[tenant_id]:
            del self._waiting[tenant_id]
            self._newest.pop(tenant_id, None)

    @contextmanager
    def anybody(self) -> Iterator[asyncio.Event]:
        """Set whenever any tenant's feed went on; whoever waits clears it first."""
        self._listen()
        with self._waiter(self._anybody) as woken:
            yield woken

    def wake_anybody(self) -> None:
        """Whoever waits for any tenant, in this process."""
        for woken in [*self._anybody]:
            woken.set()

    def tell(self, tenant_id: str) -> None:
        """After a commit: wake those who wait here now, and have the other processes told soon."""
        self._wake(tenant_id)
        if self._closed:
            return
        self._to_tell.add(tenant_id)
        if self._teller is None or self._teller.done():
            self._teller = asyncio.create_task(self._tell_others(), name="corbits-memory feed notices")

    async def close(self) -> None:
        """Wake all who wait, for good; what is to be told still goes out."""
        self._closed = True
        for woken in [*self._anybody, *(event for events in self._waiting.values() for event in events)]:
            woken.set()
        if self._teller is not None:
            await asyncio.wait({self._teller}, timeout=FLUSH_SECONDS)
        for task in (self._teller, self._listener):
            # Asked again and again: Python 3.11's wait_for, which the driver uses, may swallow a cancellation.
            while task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=0.5)

    @contextmanager
    def _waiter(self, waiting: set[asyncio.Event]) -> Iterator[asyncio.Event]:
        woken = asyncio.Event()
        waiting.add(woken)
        try:
            yield woken
        finally:
            waiting.discard(woken)

    def _moved(self, tenant_id: str, after: int) -> bool:
        return self._newest.get(tenant_id, 0) > after

    def _wake(self, tenant_id: str) -> None:
        for woken in [*self._waiting.get(tenant_id, ()), *self._anybody]:
            woken.set()

    def _listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._run(), name="corbits-memory feed listener")

    async def _tell_others(self) -> None:
        """One statement for all that was written meanwhile; apart from the writes, whose commits it must not hold."""
        while self._to_tell:
            tenants, self._to_tell = sorted(self._to_tell), set()
            try:
                async with self._database.autocommit() as conn:
                    await conn.execute(
                        load_queries("feed")["notify"], {"channel": CHANNEL, "tenants": tenants}
                    )
            except MemoryError as error:
                logger.warning("followers in other processes find it by themselves: %s", error.code)

    async def _run(self) -> None:
        while not self._closed:
            try:
                await self._listen_on_one_connection()
            except (psycopg.Error, OSError, MemoryError) as error:
                logger.warning("nothing is heard for now, but looked for: %s", type(error).__name__)
                await self._look_without_listening()

    async def _listen_on_one_connection(self) -> None:
        conn = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=int(ACQUIRE_SECONDS),
            application_name="corbits-memory feed",
        )
        async with conn:
            await conn.execute(f"LISTEN {CHANNEL}")
            self.listening = True
            try:
                while not self._closed:
                    # What was written before the ear was there is seen by the look.
                    await self._look_at_all()
                    async for notice in conn.notifies(timeout=LOOK_SECONDS):
                        self._wake(notice.payload)
            finally:
                self.listening = False

    async def _look_without_listening(self) -> None:
        for _ in range(round(RETRY_SECONDS / LOOK_SECONDS)):
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(MemoryError):
                await self._look_at_all()

    async def _look_at_all(self) -> None:
        if self._waiting:
            await self._look(list(self._waiting))

    async def _look(self, tenants: list[str], after: int | None = None) -> bool:
        """Whether one of the tenants went beyond what was known (or ``after``); their followers are woken."""
        async with self._database.operator() as conn:
            rows = await (await conn.execute(load_queries("feed")["newest"], {"tenants": tenants})).fetchall()
        moved = False
        for tenant_id, newest in rows:
            known = self._newest.get(tenant_id, 0) if after is None else after
            self._newest[tenant_id] = newest
            if newest > known:
                moved = True
                self._wake(tenant_id)
        return moved


async def at_most(woken: asyncio.Event, seconds: float) -> None:
    """Wait for it, no longer than so."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()
