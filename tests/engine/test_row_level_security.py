"""The second lock, table by table and function by function: a statement that forgets its tenant gets nothing.

The tables come from the catalog, so that a table that is added later is tested too, or fails here.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from corbits_memory.engine.pool import APP_ROLE, Connection, Database
from corbits_memory.engine.rights import APPEND_ONLY, FIXED
from corbits_memory.errors import DatabaseError
from tests.engine.conftest import DIMS, word_vector
from tests.engine.support import OpenStore, add, note, turn
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]

VICTIM, ATTACKER = "victim", "attacker"
ANY_VALUE = {"N": "1", "B": "false", "D": "now", "A": "{}", "jsonb": '{"value": "x"}', "bytea": ""}
"""By type, else by category of types; text for all others."""
NOT_A_TENANTS = {"_migrations"}
"""Tables of the schema that belong to no tenant; the application role has no right on them."""

TABLES = (
    "SELECT c.relname, c.relispartition, c.relrowsecurity, c.relforcerowsecurity, pg_get_userbyid(c.relowner), "
    "EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped) "
    "FROM pg_class c WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f') "
    "ORDER BY c.relname"
)


@pytest.fixture
async def filled(open_store: OpenStore, owner: Owner, word_server: ModelServer) -> None:
    """Rows of both tenants in every table, the vector tables included."""
    store = await open_store(embed_url=word_server.url)
    for tenant in (VICTIM, ATTACKER):
        first, *_ = await add(
            store,
            note("The secret lighthouse.", external_ref="s", access_tags=("memory.space:eng",)),
            turn(1, "Which lighthouse is it?"),
            turn(2, "The secret one."),
            tenant=tenant,
        )
        await add(store, note("A claim.", external_ref="c", derived_from=(first.version_id,)), tenant=tenant)
        await store.statistics.refresh(tenant)
    for name in await tables_of_tenants(owner):
        for tenant in (VICTIM, ATTACKER):
            if await count(owner, name, tenant=tenant) == 0:
                await fill_by_hand(owner, name, tenant)


async def fill_by_hand(owner: Owner, name: str, tenant: str) -> None:
    """A row of any values, for a table that none of the above writes: to policies, values mean nothing."""
    checks = await owner.execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = format('memory.%%I', %s::text)::regclass "
        "AND contype = 'c'",
        [name],
    )
    for (constraint,) in await checks.fetchall():
        drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
        await owner.execute(drop.format(table(name), sql.Identifier(constraint)))
    columns = await owner.execute(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typcategory FROM pg_attribute a "
        "JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = format('memory.%%I', %s::text)::regclass "
        "AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''",
        [name],
    )
    names, values = [], []
    for column, kind, category in await columns.fetchall():
        any_value = ANY_VALUE.get(kind, ANY_VALUE.get(category, "x"))
        names.append(sql.Identifier(column))
        values.append(sql.Literal(tenant if column == "tenant_id" else any_value) + sql.SQL("::" + kind))
    async with owner.transaction():
        # Without the triggers that look for what a foreign key refers to.
        await owner.execute("SET LOCAL session_replication_role = replica")
        await owner.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                table(name), sql.SQL(", ").join(names), sql.SQL(", ").join(values)
            )
        )


@pytest.fixture
async def database(filled: None, database_url: str) -> AsyncIterator[Database]:
    """The engine's own way to the database, after :func:`filled`."""
    opened = Database(database_url, pool_max=2)
    await opened.open()
    try:
        assert opened.second_lock
        yield opened
    finally:
        await opened.close()


UNREADABLE = frozenset({"subscription_secret", "transform_secret"})
"""Written by a tenant's transactions, and read by none of them."""


async def tables_of_tenants(owner: Owner) -> list[str]:
    """Every table that has a tenant, partitions apart."""
    rows = await (await owner.execute(TABLES)).fetchall()
    return [name for name, partition, *_, tenant in rows if tenant and not partition]


def table(name: str) -> sql.Identifier:
    return sql.Identifier("memory", name)


async def count(conn: Connection | Owner, name: str, *, tenant: str | None = None) -> int:
    statement = sql.SQL("SELECT count(*) FROM {}").format(table(name))
    if tenant is not None:
        statement += sql.SQL(" WHERE tenant_id = {}").format(sql.Literal(tenant))
    row = await (await conn.execute(statement)).fetchone()
    assert row is not None
    return int(row[0])


# --- the role and the policies -----------------------------------------------------------------------


async def test_the_application_role_can_not_get_around_a_policy(database: Database, owner: Owner) -> None:
    row = await (
        await owner.execute(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication "
            "FROM pg_roles WHERE rolname = %s",
            [APP_ROLE],
        )
    ).fetchone()
    assert row == (False,) * 6
    memberships = await owner.execute(
        "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = %s::regrole", [APP_ROLE]
    )
    assert await memberships.fetchall() == []
    owned = await owner.execute(
        "SELECT count(*) FROM pg_class WHERE relowner = %(r)s::regrole "
        "UNION ALL SELECT count(*) FROM pg_proc WHERE proowner = %(r)s::regrole "
        "UNION ALL SELECT count(*) FROM pg_namespace WHERE nspowner = %(r)s::regrole",
        {"r": APP_ROLE},
    )
    assert await owned.fetchall() == [(0,)] * 3
    async with database.tenant(ATTACKER) as conn:
        assert await (await conn.execute("SELECT current_user")).fetchone() == (APP_ROLE,)


async def test_each_table_with_a_tenant_has_the_policy(database: Database, owner: Owner) -> None:
    rows = await (await owner.execute(TABLES)).fetchall()
    names = [name for name, partition, *_, tenant in rows if tenant and not partition]
    assert len([name for name in names if name.startswith("embedding_")]) == 1
    for name, partition, secured, _, owned_by, tenant in rows:
        assert owned_by != APP_ROLE
        if not tenant:
            assert name in NOT_A_TENANTS, f"{name} has no tenant_id"
        elif not partition:
            assert secured, f"{name} has no row-level security"
    policies = await owner.execute(
        "SELECT tablename, permissive, roles::text[], cmd, qual, with_check FROM pg_policies "
        "WHERE schemaname = 'memory'"
    )
    found: dict[str, list[tuple[Any, ...]]] = {}
    async for name, *policy in policies:
        found.setdefault(name, []).append(tuple(policy))
    rule = "(tenant_id = current_setting('memory.tenant_id'::text, true))"
    for name in names:
        # One policy for all commands and roles; without a check of its own, its condition checks new rows too.
        conditions = ("false", rule) if name in UNREADABLE else (rule, None)
        assert found[name] == [("PERMISSIVE", ["public"], "ALL", *conditions)], name


async def test_partitions_and_tables_of_nobody_are_out_of_reach(database: Database, owner: Owner) -> None:
    rows = await (await owner.execute(TABLES)).fetchall()
    closed = [name for name, partition, *_, tenant in rows if partition or not tenant]
    assert len(closed) >= 2 * 16
    for name in closed:
        reached = await (
            await owner.execute(
                "SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', "
                "'TRIGGER']) AS p WHERE has_table_privilege(%s, format('memory.%%I', %s::text), p)",
                [APP_ROLE, name],
            )
        ).fetchall()
        assert reached == [], name
    for name in closed[:1] + [n for n in closed if n.startswith("embedding_")][:1]:
        with pytest.raises(DatabaseError, match="42501"):
            async with database.tenant(VICTIM) as conn:
                await count(conn, name)


async def test_the_application_role_may_not_change_the_lock(database: Database) -> None:
    for statement in (
        "ALTER TABLE memory.document DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON memory.document",
        "CREATE POLICY open ON memory.document USING (true)",
        "TRUNCATE memory.feed_event",
        "CREATE TABLE memory.mine (tenant_id text)",
        "CREATE FUNCTION memory.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SET LOCAL row_security = off; SELECT * FROM memory.document",
        "COPY memory.document TO PROGRAM 'cat'",
    ):
        with pytest.raises(DatabaseError, match="42501"):
            async with database.tenant(ATTACKER) as conn:
                await conn.execute(statement.encode())


# --- a forgotten tenant ------------------------------------------------------------------------------


async def test_reading_without_a_tenant_predicate_shows_ones_own_rows_only(
    database: Database, owner: Owner
) -> None:
    for name in await tables_of_tenants(owner):
        assert await count(owner, name, tenant=VICTIM) > 0, f"{name} is empty: nothing would be proved"
        async with database.tenant(ATTACKER) as conn:
            own = 0 if name in UNREADABLE else await count(owner, name, tenant=ATTACKER)
            assert await count(conn, name) == own, name
            assert await count(conn, name, tenant=VICTIM) == 0, name


async def test_without_the_setting_nothing_is_seen_or_written(database: Database, owner: Owner) -> None:
    names = await tables_of_tenants(owner)
    preamble = sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(APP_ROLE))
    for setting in (None, "", " ", "victim ", "VICTIM", "victim'--", "*", "%"):
        for name in names:
            async with database.operator() as conn:
                await conn.execute(preamble)
                if setting is not None:
                    await conn.execute("SELECT set_config('memory.tenant_id', %s, true)", [setting])
                assert await count(conn, name) == 0, (name, setting)
                for statement in (
                    ()
                    if name in APPEND_ONLY
                    else (
                        "UPDATE {} SET tenant_id = tenant_id",
                        "DELETE FROM {}",
                    )
                ):
                    done = await conn.execute(sql.SQL(statement).format(table(name)))
                    assert done.rowcount == 0, (name, setting)


async def test_the_setting_ends_with_its_transaction(database: Database) -> None:
    async with database.tenant(VICTIM):
        pass
    async with database.operator() as conn:
        row = await (
            await conn.execute("SELECT coalesce(current_setting('memory.tenant_id', true), ''), current_user")
        ).fetchone()
    assert row is not None
    assert row[0] == ""
    assert row[1] != APP_ROLE


async def test_updates_and_deletes_without_a_predicate_touch_ones_own_rows_only(
    database: Database, owner: Owner
) -> None:
    changeable = [name for name in await tables_of_tenants(owner) if name not in APPEND_ONLY]
    for name in changeable:
        for statement in (
            "UPDATE {} SET tenant_id = tenant_id",
            "UPDATE {} SET tenant_id = tenant_id WHERE tenant_id = 'victim'",
            "DELETE FROM {} WHERE tenant_id = 'victim'",
        ):
            before = await count(owner, name, tenant=VICTIM)
            async with database.tenant(ATTACKER) as conn:
                done = await conn.execute(sql.SQL(statement).format(table(name)))
                mine = await count(conn, name)
            assert done.rowcount == (0 if "victim" in statement else mine), (name, statement)
            assert await count(owner, name, tenant=VICTIM) == before
    # Everything at once, and what is left of the others is all of theirs.
    names = changeable
    before_all = {name: await count(owner, name, tenant=VICTIM) for name in names}
    async with database.tenant(ATTACKER) as conn:
        for name in ("version", "document", "raw_capture", "transform_run", *names):
            await conn.execute(sql.SQL("DELETE FROM {}").format(table(name)))
    assert {name: await count(owner, name, tenant=VICTIM) for name in names} == before_all
    assert {name: await count(owner, name, tenant=ATTACKER) for name in names} == dict.fromkeys(names, 0)


async def test_what_is_only_ever_added_to_is_neither_changed_nor_deleted(database: Database) -> None:
    for name in APPEND_ONLY:
        for statement in ("UPDATE {} SET tenant_id = tenant_id", "DELETE FROM {}"):
            with pytest.raises(DatabaseError, match="42501"):
                async with database.tenant(ATTACKER) as conn:
                    await conn.execute(sql.SQL(statement).format(table(name)))


TAKE_OVER = (
    "UPDATE {0} SET owner_principal_id = 'mallory'",
    "UPDATE {0} SET owner_principal_id = owner_principal_id",
    "UPDATE {0} AS t SET (kind, owner_principal_id) = (SELECT 'note', 'mallory') FROM {0} AS o WHERE o.id = t.id",
    "INSERT INTO {0} ({1}) SELECT {1} FROM {0} ON CONFLICT (tenant_id, id) DO UPDATE SET owner_principal_id = 'eve'",
    "MERGE INTO {0} AS t USING {0} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET owner_principal_id = 'mallory'",
)


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("statement", TAKE_OVER)
async def test_whose_a_document_is_never_changes(
    database: Database, owner: Owner, name: str, statement: str
) -> None:
    # Generated columns can't be written.
    columns = sql.SQL(", ").join(map(sql.Identifier, ("tenant_id", *await copied_columns(owner, name))))
    with pytest.raises(DatabaseError, match="42501"):
        async with database.tenant(ATTACKER) as conn:
            await conn.execute(sql.SQL(statement).format(table(name), columns))
    owners = await owner.execute(sql.SQL("SELECT DISTINCT owner_principal_id FROM {}").format(table(name)))
    assert await owners.fetchall() == [("ann",)]


async def test_every_other_column_of_a_document_can_be_changed(database: Database, owner: Owner) -> None:
    for name, fixed in FIXED.items():
        columns = ["tenant_id", *await copied_columns(owner, name)]
        assert set(fixed) < set(columns)
        for column in set(columns) - set(fixed):
            async with database.tenant(ATTACKER) as conn:
                done = await conn.execute(
                    sql.SQL("UPDATE {0} SET {1} = {1}").format(table(name), sql.Identifier(column))
                )
                assert done.rowcount > 0, (name, column)


async def test_a_row_can_neither_be_written_for_nor_moved_to_another_tenant(
    database: Database, owner: Owner
) -> None:
    for name in await tables_of_tenants(owner):
        if name in UNREADABLE:
            continue
        columns = await copied_columns(owner, name)
        others = sql.SQL(", ").join(map(sql.Identifier, columns))
        for statement in (
            sql.SQL("INSERT INTO {0} (tenant_id, {1}) SELECT 'victim', {1} FROM {0}"),
            sql.SQL("INSERT INTO {0} (tenant_id, {1}) SELECT 'nobody', {1} FROM {0}"),
            sql.SQL("UPDATE {0} SET tenant_id = 'victim'"),
        ):
            with pytest.raises(DatabaseError, match="42501"):
                async with database.tenant(ATTACKER) as conn:
                    await conn.execute(statement.format(table(name), others))
            assert await count(owner, name, tenant="nobody") == 0


async def copied_columns(owner: Owner, name: str) -> Sequence[str]:
    """The columns that a copy of a row has to name."""
    rows = await owner.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = format('memory.%%I', %s::text)::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attname <> 'tenant_id'",
        [name],
    )
    return [column async for (column,) in rows]


async def test_an_upsert_can_not_take_over_anothers_row(database: Database, owner: Owner) -> None:
    with pytest.raises(DatabaseError, match="42501"):
        async with database.tenant(ATTACKER) as conn:
            await conn.execute(
                "INSERT INTO memory.tenant_state (tenant_id) VALUES ('victim') "
                "ON CONFLICT (tenant_id) DO UPDATE SET live_generation = 'taken'"
            )
    async with database.tenant(ATTACKER) as conn:
        done = await conn.execute(
            "MERGE INTO memory.tenant_state t USING (VALUES ('victim')) AS s(tenant) ON t.tenant_id = s.tenant "
            "WHEN MATCHED THEN UPDATE SET live_generation = 'taken'"
        )
        assert done.rowcount == 0
    row = await (
        await owner.execute("SELECT live_generation FROM memory.tenant_state WHERE tenant_id = 'victim'")
    ).fetchone()
    assert row == ("g0",)


async def test_locks_and_joins_without_a_predicate_reach_ones_own_rows_only(database: Database) -> None:
    async with database.tenant(ATTACKER) as conn:
        for statement in (
            "SELECT tenant_id FROM memory.document FOR UPDATE",
            "SELECT d.tenant_id FROM memory.document d JOIN memory.version v ON v.document_id = d.id",
            "SELECT c.tenant_id FROM memory.chunk c JOIN memory.search_row r ON r.chunk_id = c.id",
            "SELECT r.tenant_id FROM memory.search_row r WHERE r.access_tags && '{memory.space:eng}'",
            "SELECT tenant_id FROM memory.chunk WHERE text_fts @@ to_tsquery('secret:*')",
            "SELECT tenant_id FROM memory.document TABLESAMPLE SYSTEM (100)",
        ):
            rows = await (await conn.execute(statement.encode())).fetchall()
            assert rows
            assert {tenant for (tenant,) in rows} == {ATTACKER}, statement


# --- functions that run as the owner -----------------------------------------------------------------

DEFINERS = (
    "SELECT p.proname, pg_get_function_identity_arguments(p.oid), p.proconfig FROM pg_proc p "
    "WHERE p.pronamespace = 'memory'::regnamespace AND p.prosecdef ORDER BY 1"
)
HOSTILE_SCOPE = {
    # Whose rows: everybody's, of each tenant, by each name that a scope might be read by.
    "tenant": VICTIM,
    "tenant_id": VICTIM,
    "principal": "ann",
    "everything": True,
    "allowed": ["memory.space:eng", "memory.owner:ann"],
    "generation": "g0",
    "statuses": ["active", "superseded", "deprecated"],
}
QUOTES = "g0' OR r.tenant_id = 'victim' OR 'a' = 'b"
CALLS = {
    "lexical_candidates": "SELECT l.chunk_ids FROM memory.lexical_candidates(%(scope)s, 'secret', '{}', '{}', 9, 9) l",
    "compat_lexical": "SELECT l.chunk_ids FROM memory.compat_lexical(%(scope)s, 'secret', 'english', 50, 10) l",
    "timeline": "SELECT memory.timeline(%(scope)s, 50, 10)",
    "visible_chunks": "SELECT memory.visible_chunks(%(scope)s, 50)",
    "reachable_documents": "SELECT memory.reachable_documents(ARRAY(SELECT jsonb_array_elements_text("
    "%(scope)s -> 'allowed')), 50)",
}
"""How each function that runs as the owner is called; a new one needs a call here."""


async def test_each_function_that_runs_as_the_owner_has_a_fixed_path_and_is_tried(
    database: Database, owner: Owner
) -> None:
    rows = await (await owner.execute(DEFINERS)).fetchall()
    assert {name for name, *_ in rows} == set(CALLS)
    for name, arguments, config in rows:
        assert "tenant" not in arguments, f"{name} takes its tenant from the caller"
        (path,) = [entry for entry in config or () if entry.startswith("search_path=")]
        assert path.startswith("search_path=pg_catalog, memory"), name
        assert path.endswith("pg_temp"), name


@pytest.mark.parametrize("call", CALLS)
async def test_a_function_that_runs_as_the_owner_takes_its_tenant_from_the_transaction(
    database: Database, owner: Owner, call: str
) -> None:
    victims = {
        name
        for rows in (
            "SELECT chunk_id FROM memory.search_row",
            "SELECT id FROM memory.version",
            "SELECT id FROM memory.document",
        )
        for (name,) in await (await owner.execute(f"{rows} WHERE tenant_id = 'victim'".encode())).fetchall()
    }
    async with database.tenant(VICTIM) as conn:
        found = await ids(conn, call, HOSTILE_SCOPE)
        assert found, "its own tenant finds something: else nothing is proved"
        assert found <= victims
    async with database.tenant(ATTACKER) as conn:
        found = await ids(conn, call, HOSTILE_SCOPE)
        assert found
        assert not found & victims
    async with database.tenant("nobody") as conn:
        assert await ids(conn, call, HOSTILE_SCOPE) == set()
    for quoted in (
        {"generation": QUOTES},
        {"principal": QUOTES},
        {"statuses": [QUOTES]},
        {"allowed": [QUOTES]},
        {"kinds": [QUOTES]},
        {"entities": [QUOTES]},
        {"vetoed": [QUOTES, "}'", "\\"]},
        {"attributes": {QUOTES: QUOTES}},
    ):
        async with database.tenant(ATTACKER) as conn:
            assert not await ids(conn, call, HOSTILE_SCOPE | quoted) & victims, quoted


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setting", [None, ""])
async def test_a_function_that_runs_as_the_owner_refuses_without_a_tenant(
    owner: Owner, call: str, setting: str | None
) -> None:
    async with owner.transaction(force_rollback=True):
        if setting is not None:
            await owner.execute("SELECT set_config('memory.tenant_id', %s, true)", [setting])
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="tenant_id is not set"):
            async with owner.transaction():
                await owner.execute(CALLS[call].encode(), {"scope": Jsonb(HOSTILE_SCOPE)})


async def ids(conn: Connection, call: str, scope: dict[str, Any]) -> set[str]:
    row = await (await conn.execute(CALLS[call].encode(), {"scope": Jsonb(scope)})).fetchone()
    return set(row[0] or ()) if row else set()


async def test_the_dense_channel_keeps_to_the_tenant_whatever_predicate_it_is_given(
    database: Database, owner: Owner
) -> None:
    """It assembles SQL from its arguments, so it runs under the policies and not as the owner."""
    (vectors,) = [name for name in await tables_of_tenants(owner) if name.startswith("embedding_")]
    query = str(word_vector("secret lighthouse", DIMS))
    theirs = await (
        await owner.execute(
            sql.SQL("SELECT chunk_id FROM {} WHERE tenant_id = 'victim'").format(table(vectors))
        )
    ).fetchall()
    assert theirs
    async with database.tenant(ATTACKER) as conn:
        for statement in (
            "SELECT d.chunk_ids FROM memory.dense_exact(%s, %s::halfvec, NULL, 'true', 50) d",
            "SELECT d.chunk_ids FROM memory.dense_nearest(%s, %s::halfvec, NULL, 'true', 50, NULL) d",
        ):
            row = await (await conn.execute(statement.encode(), [vectors, query])).fetchone()
            assert row is not None
            assert row[0]
            assert not set(row[0]) & {name for (name,) in theirs}
