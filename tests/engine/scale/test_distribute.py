"""`db distribute`: what is called, in which order, and what follows it later."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from corbits_memory.engine.distribution import NO_CITUS, ROLE_MAY_NOT_LOG_IN, distribute
from corbits_memory.engine.migrate import Migration, engine_migrations, run_memory_migrations
from corbits_memory.engine.pool import APP_ROLE, Database
from corbits_memory.errors import ConfigError, MigrationError
from tests.e2e.support import corbits_memory, one_json
from tests.engine.support import OpenStore, add, note
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
STAND_IN = Path(__file__).with_name("citus_stand_in.sql").read_text(encoding="utf-8")


@pytest.fixture
async def citus(database_url: str) -> str:
    """A migrated database in which Citus' functions record their calls, and refuse what Citus refuses."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute(STAND_IN.encode())
    return database_url


async def names(owner: Owner, query: str) -> list[str]:
    return [name for (name,) in await (await owner.execute(query.encode())).fetchall()]


SPREAD = "SELECT logicalrelid::text FROM pg_catalog.pg_dist_partition ORDER BY 1"
TENANTS = (
    "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND attname = 'tenant_id' "
    "WHERE relnamespace = 'memory'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
)


async def test_every_table_of_tenants_is_spread_beside_the_first(
    citus: str, owner: Owner, open_store: OpenStore, word_server: ModelServer
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("The pool closes at nine."))
    done = await distribute(owner)
    assert done.tables[0] == "memory.tenant_state"
    assert sorted(done.tables) == await names(owner, TENANTS) == await names(owner, SPREAD)
    assert any("embedding_" in table for table in done.tables)
    rows = await (
        await owner.execute("SELECT DISTINCT partkey, beside::text FROM pg_dist_partition")
    ).fetchall()
    assert sorted(rows, key=str) == [("tenant_id", "memory.tenant_state"), ("tenant_id", None)]
    assert any(function.startswith("memory.admits(") for function in done.functions)
    # What is erased later must not be left on the coordinator.
    assert await names(owner, "SELECT name::text FROM stand_in_truncated ORDER BY 1") == sorted(done.tables)


async def test_twice_is_once(citus: str, owner: Owner) -> None:
    tried = await distribute(owner, dry_run=True)
    assert await names(owner, SPREAD) == []
    assert await distribute(owner) == tried
    again = await distribute(owner)
    assert (again.tables, again.functions) == ((), ())


async def test_rights_are_on_whole_tables_there(citus: str, owner: Owner) -> None:
    """Rights on columns would not be known on the other nodes: nothing could be changed there."""

    async def on_columns() -> list[str]:
        return await names(
            owner,
            "SELECT attrelid::regclass::text || '.' || attname FROM pg_attribute WHERE attacl <> '{}' "
            "AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'memory'::regnamespace)",
        )

    whole = f"SELECT has_table_privilege('{APP_ROLE}', 'memory.document', 'UPDATE')::text"
    before = await on_columns()
    await distribute(owner, dry_run=True)
    assert before == await on_columns() != []
    for change in (distribute(owner), run_memory_migrations(citus)):
        await change
        assert (await names(owner, whole), await on_columns()) == (["true"], [])


async def test_an_interrupted_run_is_ended_by_the_next(citus: str, owner: Owner) -> None:
    await owner.execute("CREATE TABLE memory.zebra (tenant_id text, id text PRIMARY KEY)")
    with pytest.raises(MigrationError, match=r"memory\.zebra could not be distributed: unique index"):
        await distribute(owner)
    spread = await names(owner, SPREAD)
    assert len(spread) > 10
    await owner.execute("DROP TABLE memory.zebra")
    done = await distribute(owner)
    assert not set(done.tables) & set(spread)
    assert await names(owner, SPREAD) == await names(owner, TENANTS)
    assert set(await names(owner, "SELECT name::text FROM stand_in_truncated")) >= set(spread)


async def test_a_vector_table_that_comes_later_is_spread_too(
    citus: str, owner: Owner, open_store: OpenStore, word_server: ModelServer
) -> None:
    await distribute(owner)
    store = await open_store(embed_url=word_server.url)
    await add(store, note("The pool closes at nine."))
    spread = await names(owner, SPREAD)
    assert any("embedding_" in table for table in spread)
    assert spread == await names(owner, TENANTS)


async def test_so_is_what_a_migration_brings(citus: str, owner: Owner) -> None:
    await distribute(owner)
    later = Migration(
        "9999_later.sql", "CREATE TABLE memory.later (tenant_id text, id text, PRIMARY KEY (tenant_id, id))"
    )
    assert await run_memory_migrations(citus, migrations=[*engine_migrations(), later]) == [later.name]
    assert "memory.later" in await names(owner, SPREAD)


async def test_the_other_nodes_are_told_the_tenant(citus: str, owner: Owner) -> None:
    async def told() -> str | None:
        database = Database(citus, pool_max=1)
        await database.open()
        try:
            async with database.tenant("acme") as conn:
                row = await (
                    await conn.execute("SELECT current_setting('citus.propagate_set_commands', true)")
                ).fetchone()
        finally:
            await database.close()
        return None if row is None else row[0]

    assert not await told()
    await distribute(owner)
    assert await told() == "local"


async def test_before_anything_that_they_have_to_know(citus: str, owner: Owner) -> None:
    await distribute(owner)
    database = Database(citus, pool_max=1)
    await database.open()
    preamble = database._preamble("acme", 1)
    await database.close()
    place = preamble.index("SET LOCAL citus.propagate_set_commands = 'local'")
    assert all(
        place < preamble.index(name) for name in ("memory.tenant_id", "hnsw.ef_search", "hnsw.iterative_scan")
    )


async def test_an_operator_is_told_what_the_role_needs(citus: str, owner: Owner) -> None:
    assert (await distribute(owner, dry_run=True)).left == (ROLE_MAY_NOT_LOG_IN,)


async def test_without_citus_it_says_so(database_url: str, owner: Owner) -> None:
    with pytest.raises(ConfigError, match="has no Citus"):
        await distribute(owner)
    done = corbits_memory("db", "distribute", "--database-url", database_url)
    assert (done.returncode, done.stdout) == (1, "")
    assert NO_CITUS in done.stderr


async def test_the_command(citus: str, owner: Owner) -> None:
    told = corbits_memory("db", "distribute", "--dry-run", "--database-url", citus)
    assert told.returncode == 0
    assert "memory.version would be distributed by tenant_id" in told.stdout
    assert ROLE_MAY_NOT_LOG_IN in told.stderr
    assert await names(owner, SPREAD) == []
    done = one_json(corbits_memory("db", "distribute", "--json", "--database-url", citus).stdout)
    assert sorted(done["tables"]) == await names(owner, SPREAD) == await names(owner, TENANTS)
