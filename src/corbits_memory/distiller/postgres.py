"""Cursors in the memory's own database: for distillers wherever they run."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from psycopg.rows import TupleRow, class_row

from corbits_memory.distiller.cursors import (
    FAILURES_READ,
    LEASE_SECONDS,
    Consumer,
    CursorState,
    Failure,
)
from corbits_memory.distiller.errors import LeaseLostError
from corbits_memory.engine.pool import READ_SECONDS, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import MemoryError


class PostgresCursors:
    """A lease is a row that says whose it is and until when: one that died loses it after ``lease_seconds``."""

    def __init__(self, database: Database, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._queries = load_queries("distill")
        self._seconds = lease_seconds

    async def claim(
        self, consumer: Consumer, *, after: int = 0, impatient: bool = False
    ) -> "PostgresLease | None":
        named = {**_named(consumer), "lease": secrets.token_hex(16)}
        async with self._database.tenant(consumer.tenant_id) as conn:
            row = await (
                await conn.execute(
                    self._queries["claim"],
                    {**named, "after": after, "seconds": self._seconds, "impatient": impatient},
                )
            ).fetchone()
            if row is None:
                return None
            failures = await conn.execute(self._queries["open_failures"], {**named, "limit": FAILURES_READ})
            attempts = {seq: count async for seq, count in failures}
        return PostgresLease(self._database, named, int(row[0]), attempts, self._seconds)

    async def state(self, consumer: Consumer) -> CursorState:
        async with self._database.tenant(consumer.tenant_id, seconds=READ_SECONDS) as conn:
            cursor = conn.cursor(row_factory=class_row(CursorState))
            await cursor.execute(self._queries["state"], _named(consumer))
            return await cursor.fetchone() or CursorState()

    async def failures(
        self, consumer: Consumer, *, after: int = 0, limit: int = FAILURES_READ
    ) -> Sequence[Failure]:
        async with self._database.tenant(consumer.tenant_id, seconds=READ_SECONDS) as conn:
            cursor = conn.cursor(row_factory=class_row(Failure))
            await cursor.execute(
                self._queries["failures"], {**_named(consumer), "after": after, "limit": limit}
            )
            return await cursor.fetchall()

    async def retry(self, consumer: Consumer, seqs: Sequence[int] | None = None) -> int:
        async with self._database.tenant(consumer.tenant_id) as conn:
            done = await conn.execute(
                self._queries["retry"],
                {**_named(consumer), "seqs": None if seqs is None else list(seqs)},
            )
        return done.rowcount

    async def move(self, consumer: Consumer, position: int) -> bool:
        async with self._database.tenant(consumer.tenant_id) as conn:
            done = await conn.execute(self._queries["move"], {**_named(consumer), "seq": position})
        return done.rowcount > 0


class PostgresLease:
    """Every statement holds only while the row still names this lease."""

    def __init__(
        self,
        database: Database,
        named: Mapping[str, Any],
        position: int,
        attempts: Mapping[int, int],
        seconds: float,
    ) -> None:
        self._database = database
        self._named = named
        self.seconds = seconds
        self.position = position
        self.attempts = attempts

    async def renew(self) -> None:
        await self._run("renew", seconds=self.seconds)

    async def settle(self, seq: int) -> None:
        await self._run("settle", seq=seq)

    async def fail(
        self, *, seq: int, version_id: str, attempts: int, reason: str, dead: bool, wait_seconds: float
    ) -> None:
        await self._run(
            "fail",
            seq=seq,
            version=version_id,
            attempts=attempts,
            reason=reason,
            dead=dead,
            wait=wait_seconds,
        )

    async def wait(self, seconds: float) -> None:
        await self._run("wait", wait=seconds)

    async def release(self) -> None:
        with suppress(MemoryError):
            await self._execute("release")

    async def _run(self, query: str, **parameters: object) -> None:
        if await self._execute(query, **parameters) is None:
            raise LeaseLostError

    async def _execute(self, query: str, **parameters: object) -> TupleRow | None:
        async with self._database.tenant(self._named["tenant"]) as conn:
            cursor = await conn.execute(load_queries("distill")[query], {**self._named, **parameters})
            return await cursor.fetchone() if cursor.description is not None else None


def _named(consumer: Consumer) -> dict[str, Any]:
    return {
        "tenant": consumer.tenant_id,
        "principal": consumer.principal_id,
        "agent": consumer.agent_id,
    }
