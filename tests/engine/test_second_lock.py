"""Row-level security: a query that forgets its tenant gets nothing."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from corbits_memory.engine.pool import Database
from corbits_memory.errors import DatabaseError
from corbits_memory.ports import TimelineQuery
from tests.engine.support import OpenStore, add, note
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]


async def tables(owner: Owner) -> list[str]:
    rows = await owner.execute(
        "SELECT DISTINCT c.relname FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
        "WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    return [name async for (name,) in rows]


async def test_without_a_tenant_predicate_no_other_tenant_shows(
    open_store: OpenStore, owner: Owner, database_url: str, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    assert store.second_lock
    await add(store, note("Secret.", external_ref="s"), tenant="victim")
    database = Database(database_url, pool_max=2)
    await database.open()
    try:
        names = await tables(owner)
        assert any(name.startswith("embedding_") for name in names)
        filled = 0
        for name in names:
            count = sql.SQL("SELECT count(*) FROM memory.{}").format(sql.Identifier(name))
            filled += bool((await (await owner.execute(count)).fetchone() or (0,))[0])
            for tenant in ("attacker", "", "victim'--"):
                async with database.tenant(tenant) as conn:
                    assert await (await conn.execute(count)).fetchone() == (0,), name
        assert filled >= 8
    finally:
        await database.close()


async def test_a_row_of_another_tenant_can_not_be_written(database_url: str) -> None:
    database = Database(database_url, pool_max=1)
    await database.open()
    try:
        with pytest.raises(DatabaseError, match="42501"):
            async with database.tenant("attacker") as conn:
                await conn.execute("INSERT INTO memory.tenant_state (tenant_id) VALUES ('victim')")
    finally:
        await database.close()


async def test_partitions_are_no_way_around(database_url: str) -> None:
    database = Database(database_url, pool_max=1)
    await database.open()
    try:
        for index in range(16):
            with pytest.raises(DatabaseError, match="42501"):
                async with database.tenant("attacker") as conn:
                    await conn.execute(
                        sql.SQL("SELECT * FROM memory.{}").format(sql.Identifier(f"search_row_{index:02d}"))
                    )
    finally:
        await database.close()


async def test_the_candidate_function_needs_a_tenant(database_url: str, owner: Owner) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="tenant_id is not set"):
        await owner.execute(
            'SELECT * FROM memory.lexical_candidates(\'{"principal": "p", "generation": "g0", '
            "\"statuses\": [\"active\"]}', 'secret', '{}', '{}', 10, 10)"
        )


@pytest.mark.parametrize(
    "tenant", ["o'hara", 'quo"te', "back\\slash", "ünïcode ✓", "; DROP SCHEMA memory;--", "a" * 256]
)
async def test_tenant_names_are_untrusted_text(open_store: OpenStore, tenant: str) -> None:
    store = await open_store()
    await add(store, note("Mine.", external_ref="n1"), tenant=tenant)
    events = await store.list(tenant_id=tenant, principal_id="ann", query=TimelineQuery(limit=5))
    assert len(events) == 1
