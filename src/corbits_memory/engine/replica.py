"""A streaming replica that answers reads: used while it keeps up, passed over while it doesn't.

What holds: nobody who wrote through this process reads a state from before that write; a replica that is away, too
far behind, or none at all costs no caller an error. How far it is comes from places in the write-ahead log, asked of
the very connection that is to be read from: several replicas behind one address may be at different places.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import namedtuple_row
from psycopg_pool import PoolTimeout

from corbits_memory.engine.pool import Connection, Database, may_take_role
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.watermarks import Watermarks
from corbits_memory.errors import (
    DatabaseError,
    InvalidCursorError,
    MemoryError,
    NotFoundError,
    UnavailableError,
)

logger = logging.getLogger("corbits_memory.replica")

LOOK_SECONDS = 1.0
ANSWER_SECONDS = 3.0
"""How long a replica may take to say how far it is."""
ACQUIRE_SECONDS = 1.0
"""How long a reader waits for a connection to the replica before it asks the primary."""
SAMPLES = 600
"""Places of the primary that a replica has not reached yet; of more, the newest stands for those left out."""

UNSEEN = "the read replica was not looked at yet"
AWAY = "the read replica can't be reached, so all reads go to the primary; look at DATABASE_READ_URL"
BEHIND = "the read replica is more than {seconds:.0f} s behind, so all reads go to the primary"
PRIMARY = (
    "DATABASE_READ_URL leads to a server that replays nothing, so all reads go to the primary; "
    "let it name a streaming replica, or unset it"
)
FOREIGN = "DATABASE_READ_URL leads to a replica of another database than DATABASE_URL, so all reads go to the primary"
UNLOCKED = (
    "the login of DATABASE_READ_URL may not take the role corbits_memory_app, so all reads go to the primary, "
    "where row-level security is on"
)

T = TypeVar("T")

_GONE = ("08", "57P")
"""Classes of SQLSTATE that say that the server or the connection is gone."""


class BehindError(DatabaseError):
    """The replica has not replayed this tenant's last write yet."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """Which database of which cluster: the same on a primary and its replicas."""

    system: int
    database: int


class ReplicaDatabase(Database):
    """Connections to the replica. A transaction only begins on one that has come far enough for its tenant."""

    def __init__(self, url: str, *, pool_max: int, watermarks: Watermarks) -> None:
        super().__init__(url, pool_max=pool_max, pool_min=0, seconds=ACQUIRE_SECONDS)
        self._reached = watermarks
        self._places: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    async def open(self) -> None:
        """Without connecting: the replica may be away."""
        await self._pool.open(wait=False)

    def trust(self, *, second_lock: bool) -> None:
        """Work under the role that the primary is read under."""
        self._take_role(allowed=second_lock)

    @asynccontextmanager
    async def _connection(
        self, tenant_id: str | None, seconds: float | None = None
    ) -> AsyncIterator[Connection]:
        async with super()._connection(tenant_id, seconds) as conn:
            needed = self._reached.needed(tenant_id)
            if self._places.get(conn, 0) < needed:
                place = await _replayed(conn)
                self._places[conn] = place
                if place < needed:
                    raise BehindError
            yield conn


class Replica:
    """Looks after one replica, and sends reads where they may go."""

    def __init__(
        self, url: str, primary: Database, *, pool_max: int, lag_seconds: float, watermarks: Watermarks
    ) -> None:
        self.database = ReplicaDatabase(url, pool_max=pool_max, watermarks=watermarks)
        self.problem: str | None = UNSEEN
        """Why it is passed over; None while it answers reads."""
        self.lag_seconds = 0.0
        """How long ago the primary was where the replica is now; 0.0 when it has all."""
        self._url = url
        self._primary = primary
        self._watermarks = watermarks
        self._limit = lag_seconds
        self._ahead: deque[tuple[float, int]] = deque()
        """When the primary was where, as far as the replica has not come yet."""
        self._identity: _Identity | None = None
        self._conn: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Look once, and from then on every second. A replica that is away is no error."""
        await self.database.open()
        place = await self._ask_primary()
        # Of what others wrote before this process was there, nothing is missing either.
        self._watermarks.note(place)
        await self._look()
        self._task = asyncio.create_task(self._keep_looking(), name="corbits-memory replica")

    async def close(self) -> None:
        # Asked again and again: Python 3.11's wait_for, which the driver uses, may swallow a cancellation.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.5)
        await self._hang_up()
        await self.database.close()

    async def read(self, replica: Callable[[], Awaitable[T]], primary: Callable[[], Awaitable[T]]) -> T:
        """The replica's answer, else the primary's.

        What the replica does not know (an id, a number of the feed) may only not have arrived there: the primary
        has the last word.
        """
        if self.problem is not None:
            return await primary()
        try:
            return await replica()
        except BehindError:
            logger.debug("a tenant's last write is not on the replica yet; the primary is read")
        except (NotFoundError, InvalidCursorError, UnavailableError) as error:
            logger.debug("the primary is asked after the replica said %s", error.code)
        except DatabaseError as error:
            if _is_gone(error.__cause__):
                self._judge(AWAY)
            logger.warning("a read of the replica failed, the primary is read: %s", error.message)
        return await primary()

    async def catch_up_to_now(self, tenant_id: str) -> None:
        """Have a tenant's reads see whatever the primary has now."""
        async with self._primary.autocommit() as conn:
            row = await (await conn.execute(load_queries("replica")["written_place"])).fetchone()
        if row is not None:
            self._watermarks.note(int(row[0]), tenant_id)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._ask_primary()
            except MemoryError as error:
                # It can't be said how far the replica is behind; it goes on answering as it did.
                logger.debug("the primary does not say where it is: %s", error.code)
            await self._look()

    async def _ask_primary(self) -> int:
        """Where the primary is now, in bytes of its log. Raises ``DatabaseError``."""
        async with self._primary.autocommit() as conn:
            cursor = conn.cursor(row_factory=namedtuple_row)
            await cursor.execute(load_queries("replica")["written"])
            # Named tuples have no static type; the columns are the query's.
            row: Any = await cursor.fetchone()
        if row is None:
            raise DatabaseError("The primary does not say where its log is.")
        self._identity = _Identity(row.system_identifier, row.database)
        place = int(row.place)
        if not self._ahead or self._ahead[-1][1] < place:
            if len(self._ahead) == SAMPLES:
                self._ahead.pop()
            self._ahead.append((time.monotonic(), place))
        return place

    async def _look(self) -> None:
        """Judge the replica."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                problem = await self._examine()
        except (TimeoutError, psycopg.Error, OSError):
            await self._hang_up()
            problem = AWAY
        self._judge(problem)

    async def _examine(self) -> str | None:
        if self._conn is None:
            self._conn = await psycopg.AsyncConnection.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=int(ANSWER_SECONDS),
                application_name="corbits-memory replica",
            )
        cursor = self._conn.cursor(row_factory=namedtuple_row)
        await cursor.execute(load_queries("replica")["standing"])
        row: Any = await cursor.fetchone()
        if row is None or not row.replica or row.place is None:
            return PRIMARY
        if self._identity != _Identity(row.system_identifier, row.database):
            return FOREIGN
        self._measure(int(row.place))
        if self.lag_seconds > self._limit:
            return BEHIND.format(seconds=self._limit)
        if self._primary.second_lock and not await may_take_role(self._conn):
            return UNLOCKED
        self.database.trust(second_lock=self._primary.second_lock)
        return None

    def _measure(self, replayed: int) -> None:
        while self._ahead and self._ahead[0][1] <= replayed:
            self._ahead.popleft()
        self.lag_seconds = time.monotonic() - self._ahead[0][0] if self._ahead else 0.0

    def _judge(self, problem: str | None) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        if problem is None:
            logger.info("the read replica answers reads")
        else:
            logger.warning("%s", problem)

    async def _hang_up(self) -> None:
        if self._conn is not None:
            conn, self._conn = self._conn, None
            await conn.close()


async def _replayed(conn: Connection) -> int:
    row = await (await conn.execute(load_queries("replica")["replayed"])).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def _is_gone(cause: BaseException | None) -> bool:
    """Whether the server went away, rather than refused one statement."""
    # A pool that is busy says nothing about the server.
    if not isinstance(cause, psycopg.OperationalError) or isinstance(cause, PoolTimeout):
        return False
    return cause.sqlstate is None or cause.sqlstate.startswith(_GONE)
