"""Connections and transactions. Nothing else opens either."""

import logging
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
import stamina
from psycopg import sql
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import AsyncRowFactory, TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.watermarks import Watermarks
from corbits_memory.errors import DatabaseError, UnavailableError

logger = logging.getLogger("corbits_memory.pool")

APP_ROLE = "corbits_memory_app"
"""Owns nothing and bypasses no policy; migrations create it, each tenant's transaction works as it."""

Row = TypeVar("Row")
T = TypeVar("T")
Connection = psycopg.AsyncConnection[TupleRow]

RETRIES = 5
_RUN_AGAIN = ("40001", "40P01", "23503", "42P01")
"""SQLSTATEs after which the same transaction may simply run again: serialization failure, deadlock, and a row or
an unused model's table that has gone between being read and being referred to."""

CLUSTER_PREAMBLE = (
    " SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL hnsw.ef_search = 250;"
    " SET LOCAL hnsw.iterative_scan = 'relaxed_order'; SET LOCAL hnsw.max_scan_tuples = 40000;"
)
"""Where tables are spread over several nodes, these are told the tenant, and how exactly to search: settings that
functions make by ``set_config`` don't reach them, and recall would fall in silence."""

ACQUIRE_SECONDS = 10.0
BESIDE_SECONDS = 0.01
"""What a second connection may take that was idle a moment ago."""
READ_SECONDS = 8.0
WRITE_SECONDS = 120.0
"""Limits of one statement."""


class Database:
    """One pool, and the two kinds of transaction: a tenant's, and the operator's.

    Prepared statements are off: plans that psycopg prepares outlive the planner settings they were made
    under, and poolers in transaction mode refuse them.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_max: int,
        pool_min: int = 1,
        seconds: float = ACQUIRE_SECONDS,
        watermarks: Watermarks | None = None,
    ) -> None:
        """``seconds``: how long a connection is waited for. ``watermarks``: where writes are noted, if anywhere."""
        self._watermarks = watermarks
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=pool_min,
            max_size=pool_max,
            open=False,
            timeout=seconds,
            name="corbits-memory",
            kwargs={"autocommit": True, "prepare_threshold": None, "application_name": "corbits-memory"},
            configure=_register_vectors,
            check=self._check,
        )
        self._role_preamble = self._cluster_preamble = ""
        self._readers = 0
        self.second_lock = False
        """Whether transactions work under row-level security."""

    async def open(self) -> None:
        """Connect, and find out whether the application role can be taken."""
        with _driver_errors():
            await self._pool.open(wait=True, timeout=ACQUIRE_SECONDS)
            async with self._pool.connection() as conn:
                self._take_role(allowed=await may_take_role(conn))
                self._cluster_preamble = CLUSTER_PREAMBLE if await is_distributed(conn) else ""
        if not self.second_lock:
            logger.warning("row-level security is off: the login may not take the role %s", APP_ROLE)

    async def close(self) -> None:
        await self._pool.close(timeout=5)

    async def _check(self, conn: Connection) -> None:
        """Ask a connection whether it lives, but only when its socket has something to say.

        An idle one is silent until the server closes it, says why, or both: then it is asked, which fails. So a
        connection that lives costs no round trip. Where one is dead the others will be, too: a server that
        restarts ends them all, and the pool would wait longer after each that it finds.
        """
        try:
            with selectors.PollSelector() as selector:  # needs nothing of the system
                selector.register(conn.fileno(), selectors.EVENT_READ)
                spoke = bool(selector.select(0))
            if spoke:
                await AsyncConnectionPool.check_connection(conn)
        except psycopg.OperationalError:
            await self._pool.drain()
            raise

    def _take_role(self, *, allowed: bool) -> None:
        self.second_lock = allowed
        role = sql.Identifier(APP_ROLE).as_string(None)
        self._role_preamble = f"SET LOCAL ROLE {role};" if allowed else ""

    @asynccontextmanager
    async def tenant(self, tenant_id: str, *, seconds: float = WRITE_SECONDS) -> AsyncIterator[Connection]:
        """A transaction that sees one tenant: committed at the end, rolled back on an error.

        A statement that takes longer than ``seconds`` is cancelled: no caller's request may hold a connection
        that all share.
        """
        async with self._transaction(self._preamble(tenant_id, seconds), tenant_id) as conn:
            yield conn

    @asynccontextmanager
    async def reading(self, tenant_id: str, *, seconds: float | None = None) -> AsyncIterator["Reading"]:
        """Like :meth:`tenant`, for a few statements that only read, in a round trip each and none beside.

        ``seconds``: how long a connection is waited for, if not as long as always.
        """
        with _driver_errors():
            async with self._connection(tenant_id, seconds) as conn:
                self._readers += 1
                try:
                    yield Reading(conn, tenant_id, self._preamble(tenant_id, READ_SECONDS))
                except BaseException:
                    if not conn.closed:
                        await conn.rollback()
                    raise
                finally:
                    self._readers -= 1
                if conn.pgconn.transaction_status != TransactionStatus.IDLE:
                    await conn.commit()

    @asynccontextmanager
    async def reading_beside(self, tenant_id: str) -> AsyncIterator["Reading | None"]:
        """A second one for whoever has the first, at once: None when others read too, or no living connection is idle.

        It makes one caller faster, and all of them together slower.
        """
        async with AsyncExitStack() as stack:
            second = None
            if self._readers == 1 and self._pool.get_stats()["pool_available"]:
                # The idle one may be dead: nobody waits for another while holding one.
                with suppress(DatabaseError):
                    second = await stack.enter_async_context(self.reading(tenant_id, seconds=BESIDE_SECONDS))
            yield second

    def _preamble(self, tenant_id: str, seconds: float) -> str:
        # Quoted, not bound: SET takes no parameters, and tenant names come from outside.
        # UTC, whatever the server's zone is: the driver reads instants in it, and the year 9999 must not overflow.
        return (
            f"BEGIN; {self._role_preamble}{self._cluster_preamble} SET LOCAL TimeZone = 'UTC'; "
            f"SET LOCAL statement_timeout = {int(seconds * 1000)}; "
            f"SET LOCAL memory.tenant_id = {sql.Literal(tenant_id).as_string(None)}"
        )

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Connection]:
        """A transaction of the owner, across tenants: migrations, workers, diagnosis."""
        async with self._transaction("BEGIN; SET LOCAL TimeZone = 'UTC'", None) as conn:
            yield conn

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[Connection]:
        """A connection without a transaction, for statements that refuse one."""
        with _driver_errors():
            async with self._pool.connection() as conn:
                yield conn

    @asynccontextmanager
    async def _connection(
        self, tenant_id: str | None, seconds: float | None = None
    ) -> AsyncIterator[Connection]:
        """A connection for a transaction of this tenant, or of no one's."""
        async with self._pool.connection(timeout=seconds) as conn:
            yield conn

    @asynccontextmanager
    async def _transaction(self, preamble: str, tenant_id: str | None) -> AsyncIterator[Connection]:
        with _driver_errors():
            async with self._connection(tenant_id) as conn:
                try:
                    # One message, one round trip. Inside the try: its BEGIN may succeed and the rest fail.
                    await conn.execute(preamble.encode(conn.info.encoding))
                    yield conn
                except BaseException:
                    if not conn.closed:
                        await conn.rollback()
                    raise
                await self._commit(conn, tenant_id)

    async def _commit(self, conn: Connection, tenant_id: str | None) -> None:
        """Commit, and note where in the log that was, if anybody asks: in the same round trip."""
        if self._watermarks is None or conn.pgconn.transaction_status != TransactionStatus.INTRANS:
            await conn.commit()
            return
        cursor = await conn.execute(load_queries("replica")["commit"])
        wrote = await cursor.fetchone()
        while cursor.nextset():
            pass
        place = await cursor.fetchone()
        if wrote and wrote[0] and place:
            self._watermarks.note(int(place[0]), tenant_id)


async def run_again(work: Callable[[], Awaitable[T]]) -> T:
    """The transaction, and once more where it met another in a circle."""
    async for attempt in stamina.retry_context(
        on=_may_run_again, attempts=RETRIES, wait_initial=0.02, wait_max=1
    ):
        with attempt:
            return await work()
    raise AssertionError("the retry loop returns or raises")


def _may_run_again(error: Exception) -> bool:
    cause = error.__cause__
    return (
        isinstance(error, DatabaseError) and isinstance(cause, psycopg.Error) and cause.sqlstate in _RUN_AGAIN
    )


class Reading:
    """A tenant's transaction that begins with its first statement, in the same message, and may end with its last.

    Parameters are quoted into the statement by the driver: a message of several statements can't have any bound.
    """

    def __init__(self, conn: Connection, tenant_id: str, preamble: str) -> None:
        self.tenant_id = tenant_id
        self._conn = conn
        self._preamble = preamble

    async def fetch(
        self,
        query: LiteralString,
        parameters: Mapping[str, Any],
        row_factory: AsyncRowFactory[Row],
        *,
        last: bool = False,
    ) -> list[Row]:
        """The rows of one statement. ``last``: nothing follows, so commit along with it."""
        begin, self._preamble = self._preamble, ""
        cursor = psycopg.AsyncClientCursor(self._conn, row_factory=row_factory)
        statement = cursor.mogrify(query, parameters)
        message = "; ".join(part for part in (begin, statement, "COMMIT" if last else "") if part)
        # Everything in it is quoted by the driver or a constant of ours.
        await cursor.execute(message.encode(self._conn.info.encoding))
        # Whether there are rows, without naming the columns of each result on the way.
        while cursor.pgresult is None or cursor.pgresult.status != ExecStatus.TUPLES_OK:
            cursor.nextset()
        return await cursor.fetchall()


async def _register_vectors(conn: Connection) -> None:
    # Imported here: pgvector pulls in numpy, which only an opened database needs.
    from pgvector.psycopg import register_vector_async

    row = await (await conn.execute("SELECT to_regtype('vector') IS NOT NULL")).fetchone()
    if row and row[0]:
        await register_vector_async(conn)


async def is_distributed(conn: Connection) -> bool:
    """Whether the tenants' tables are spread over the nodes of a Citus cluster (``distribution.py``)."""
    queries = load_queries("distribution")
    return await holds(conn, queries["citus"]) and await holds(conn, queries["distributed"])


async def holds(conn: Connection, question: LiteralString) -> bool:
    """The answer to a question of yes or no."""
    row = await (await conn.execute(question)).fetchone()
    return bool(row and row[0])


async def may_take_role(conn: Connection) -> bool:
    """Whether the login may become the application role, and that role may do its work."""
    # 'SET' is known from Postgres 16 on; before, membership was enough.
    row = await (
        await conn.execute(
            "SELECT pg_has_role(current_user, oid, CASE WHEN current_setting('server_version_num')::int >= 160000 "
            "THEN 'SET' ELSE 'MEMBER' END) AND has_schema_privilege(oid, to_regnamespace('memory'), 'USAGE') "
            "AND has_table_privilege(oid, to_regclass('memory.search_row'), 'INSERT') "
            "FROM pg_roles WHERE rolname = %s",
            [APP_ROLE],
        )
    ).fetchone()
    return bool(row and row[0])


class _driver_errors:  # noqa: N801 - reads as a verb where it is used
    """Turns the driver's errors into ours, keeping the cause; the constraint's name goes along as data."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, PoolClosed):
            raise UnavailableError(
                "The database pool is closed: the memory was closed or not opened."
            ) from error
        if isinstance(error, PoolTimeout):
            raise DatabaseError(
                f"No database connection became free within {ACQUIRE_SECONDS:.0f} s; "
                "raise DB_POOL_MAX or look at the database."
            ) from error
        if isinstance(error, psycopg.Error):
            logger.error("database error %s: %s", error.sqlstate, type(error).__name__)
            raise DatabaseError(
                f"The database refused or failed ({type(error).__name__}, SQLSTATE {error.sqlstate or 'none'}).",
                details={"constraint": error.diag.constraint_name} if error.diag.constraint_name else None,
            ) from error
