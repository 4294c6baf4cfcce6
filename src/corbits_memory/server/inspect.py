"""What state a database is in. Reads only."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from corbits_memory.engine.migrate import migration_status
from corbits_memory.engine.pool import APP_ROLE, Connection
from corbits_memory.errors import DatabaseError
from corbits_memory.server.startup import HOST_SCHEMA, host_migrations

CONNECT_SECONDS = 5
POSTGRES_MIN = 15
PGVECTOR_MIN = (0, 8)

Status = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What a database is, and what it lacks."""

    postgres: str
    major: int
    pgvector: str | None
    """The version of the extension here; None when it is not created yet."""
    pgvector_available: str | None
    second_lock: bool
    migrations: Mapping[str, Status]
    """``applied``, ``pending``, ``edited`` and ``unknown`` names of each schema."""

    @property
    def pending(self) -> bool:
        return any(status["pending"] for status in self.migrations.values())

    @property
    def damaged(self) -> bool:
        return any(status["edited"] or status["unknown"] for status in self.migrations.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "postgres": self.postgres,
            "pgvector": self.pgvector,
            "rowLevelSecurity": self.second_lock,
            "migrations": {schema: dict(status) for schema, status in self.migrations.items()},
        }


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Connection]:
    """One connection in autocommit. Raises ``DatabaseError`` that says why there is none."""
    try:
        conn = await psycopg.AsyncConnection.connect(
            url, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS
        )
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise DatabaseError(f"The database can't be reached: {reason}") from error
    async with conn:
        yield conn


async def read_facts(conn: Connection) -> DatabaseFacts:
    row = await _one(
        conn,
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int / 10000, "
        "(SELECT extversion FROM pg_extension WHERE extname = 'vector'), "
        "(SELECT default_version FROM pg_available_extensions WHERE name = 'vector'), "
        "coalesce((SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles WHERE rolname = %s), false)",
        APP_ROLE,
    )
    postgres, major, pgvector, available, second_lock = row or ("unknown", 0, None, None, False)
    return DatabaseFacts(
        postgres=postgres,
        major=major,
        pgvector=pgvector,
        pgvector_available=available,
        second_lock=second_lock,
        migrations={"memory": await migration_status(conn), HOST_SCHEMA: await _host_status(conn)},
    )


def version_of(text: str) -> tuple[int, ...]:
    """``0.8.6`` as numbers."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


async def _host_status(conn: Connection) -> Status:
    files = {migration.name: migration.checksum for migration in host_migrations()}
    ledger: dict[str, str] = {}
    found = await _one(conn, "SELECT to_regclass(%s)", f"{HOST_SCHEMA}._migrations")
    if found and found[0] is not None:
        rows = await conn.execute(
            sql.SQL("SELECT name, checksum FROM {}").format(sql.Identifier(HOST_SCHEMA, "_migrations"))
        )
        ledger = dict(await rows.fetchall())
    return {
        "applied": [name for name in files if name in ledger],
        "pending": [name for name in files if name not in ledger],
        "edited": [name for name, checksum in files.items() if ledger.get(name, checksum) != checksum],
        "unknown": sorted(ledger.keys() - files.keys()),
    }


async def _one(conn: Connection, query: str, *values: object) -> Any:
    cursor = await conn.execute(query.encode(), values)
    return await cursor.fetchone()
