"""Rewrites the tables, so that no file of the database holds what was erased: dead rows, old index pages, statistics.

WAL, archives and backups are the operator's (docs/erasure.md).
"""

import asyncio
import logging
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql

from corbits_memory.engine.pool import Connection
from corbits_memory.errors import ConfigError, ConflictError

logger = logging.getLogger("corbits_memory.scrub")

_TABLES = """
SELECT c.relname, c.relkind = 'p' AS partitioned, pg_has_role(current_user, c.relowner, 'USAGE') AS own
FROM pg_class c WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname
"""
# Columns whose statistics were switched off after they had been gathered keep them.
_STALE_STATISTICS = """
SELECT pg_clear_attribute_stats(n.nspname::text, c.relname::text, a.attname::text, s.stainherit)
FROM pg_statistic s JOIN pg_attribute a ON a.attrelid = s.starelid AND a.attnum = s.staattnum
JOIN pg_class c ON c.oid = s.starelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'memory' AND a.attstattarget = 0
"""
# Whoever runs a transaction that began before, in any database of the server: a table that is rewritten takes along
# what such a one could still read.
_OLDER = """
SELECT (pg_snapshot_xmin(pg_current_snapshot()) <= %(mark)s::xid8)
  OR EXISTS (SELECT FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND age(backend_xmin) > age(%(mark)s::xid8::xid))
  OR EXISTS (SELECT FROM pg_replication_slots
             WHERE greatest(age(xmin), age(catalog_xmin)) > age(%(mark)s::xid8::xid))
"""
PATIENCE_SECONDS = 30.0
STATISTICS_VERSION = 180_000
"""From this server on, statistics of one column can be cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """``tables``: how many were rewritten. ``left``: what this login may not do, as sentences."""

    tables: int
    left: tuple[str, ...] = ()


async def scrub(conn: Connection, *, patience_seconds: float = PATIENCE_SECONDS) -> Scrubbed:
    """Rewrite all tables of the memory and gather statistics anew, table by table.

    ``conn`` in autocommit, of the tables' owner. Each table is locked while it is rewritten and needs room for a
    second copy. Raises ``ConfigError`` for another login, ``ConflictError`` while an older transaction could still
    read what is to go, and ``psycopg.Error`` as it comes.
    """
    tables = await (await conn.execute(_TABLES)).fetchall()
    if not all(own for _, _, own in tables):
        # VACUUM would pass over them with a warning.
        raise ConfigError("The tables belong to another login: scrub with the one that migrates.")
    await _until_alone(conn, patience_seconds)
    plain = [sql.Identifier("memory", name) for name, partitioned, _ in tables if not partitioned]
    for table in plain:
        await conn.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(table))
    for name, partitioned, _ in tables:
        if partitioned:
            await conn.execute(sql.SQL("ANALYZE {}").format(sql.Identifier("memory", name)))
    # What was analysed just now left dead rows among the statistics.
    await _until_alone(conn, patience_seconds)
    left = [*await _scrub_statistics(conn), *await _checkpoint(conn)]
    logger.info("%d tables rewritten", len(plain))
    return Scrubbed(tables=len(plain), left=tuple(left))


async def _until_alone(conn: Connection, seconds: float) -> None:
    """Rows that an older transaction could still read would be carried over: wait until there is none."""
    row = await (await conn.execute("SELECT pg_current_xact_id()::text")).fetchone()
    mark = row and row[0]
    give_up = time.monotonic() + seconds
    while True:
        older = await (await conn.execute(_OLDER, {"mark": mark})).fetchone()
        if older and not older[0]:
            return
        if time.monotonic() > give_up:
            raise ConflictError(
                "A transaction that began before, or a replication slot, could still read what is to go: end it "
                "(pg_stat_activity and pg_replication_slots name it) and run this again."
            )
        await asyncio.sleep(0.2)


async def _scrub_statistics(conn: Connection) -> list[str]:
    if conn.info.server_version >= STATISTICS_VERSION:
        await conn.execute(_STALE_STATISTICS)
    row = await (await conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")).fetchone()
    if row is None or not row[0]:
        return [
            "old planner statistics stay in dead rows of pg_statistic until it is vacuumed by a superuser"
        ]
    await conn.execute("VACUUM FULL pg_catalog.pg_statistic")
    return []


async def _checkpoint(conn: Connection) -> list[str]:
    try:
        await conn.execute("CHECKPOINT")
    except psycopg.errors.InsufficientPrivilege:
        return ["the files that were replaced go with the next checkpoint"]
    return []
