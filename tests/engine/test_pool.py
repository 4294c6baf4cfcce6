"""Connections that end, and those that go on."""

import asyncio
from typing import Any

import psycopg

from corbits_memory.engine.pool import Database

Owner = psycopg.AsyncConnection[Any]
IDLE = 8


async def test_when_the_server_ended_all_connections_the_next_use_has_a_new_one(
    database_url: str, owner: Owner
) -> None:
    """However many there were: they are not found out one after another, each after a longer pause."""
    database = Database(database_url, pool_max=IDLE, pool_min=IDLE, seconds=3.0)
    await database.open()
    try:
        # Each of them is used, and idle again.
        await asyncio.gather(*(_use(database) for _ in range(IDLE)))
        for _ in range(2):
            await owner.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'corbits-memory'"
            )
            await _use(database)
        await asyncio.gather(*(_use(database) for _ in range(IDLE * 3)))
    finally:
        await database.close()


async def _use(database: Database) -> None:
    async with database.tenant("acme") as conn:
        await conn.execute("SELECT pg_sleep(0.05)")
