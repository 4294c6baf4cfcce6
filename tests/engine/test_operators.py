"""What operators' databases look like: extensions elsewhere, roles made by somebody else, other time zones."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from corbits_memory.engine.migrate import run_memory_migrations
from corbits_memory.engine.pool import APP_ROLE
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import InvalidInputError, MigrationError
from corbits_memory.ports import TimelineQuery
from tests.engine.support import P, T, add, find, note, opened, refs
from tests.support.postgres import NewDatabase

Owner = psycopg.AsyncConnection[Any]


def as_user(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}"))


async def test_extensions_in_a_schema_of_their_own(new_database: NewDatabase) -> None:
    url = new_database()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute("CREATE SCHEMA extensions")
        await conn.execute("CREATE EXTENSION vector SCHEMA extensions")
        await conn.execute("CREATE EXTENSION pg_trgm SCHEMA extensions")
        name = sql.Identifier(conn.info.dbname)
        await conn.execute(sql.SQL("ALTER DATABASE {} SET search_path = public, extensions").format(name))
    await run_memory_migrations(url)
    store = await opened(url)
    try:
        await add(store, note("We moved the Kubernetes cluster.", external_ref="n1"))
        assert refs(await find(store, "kubernetes")) == ["n1"]
        assert refs(await find(store, "kuberntes")) == ["n1"]
    finally:
        await store.close()


@pytest.fixture
async def login(new_database: NewDatabase) -> Any:
    """(database URL of an ordinary login that owns the database, its name)."""
    url = new_database()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        name = f"login_{conn.info.dbname}"
        await conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        await conn.execute("CREATE EXTENSION vector")
        await conn.execute(
            sql.SQL("GRANT ALL ON DATABASE {} TO {}").format(
                sql.Identifier(conn.info.dbname), sql.Identifier(name)
            )
        )
        yield as_user(url, name), name, conn
        await conn.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
        await conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


async def test_a_login_that_may_not_take_the_role_works_without_the_second_lock(
    login: tuple[str, str, Owner], migrated_template: str
) -> None:
    url, name, conn = login
    await run_memory_migrations(url)
    store = await opened(url)
    assert not store.second_lock
    await add(store, note("alpha", external_ref="n1"))
    assert refs(await find(store, "alpha")) == ["n1"]
    await store.close()
    # The operator follows the advice and grants the role.
    await conn.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(APP_ROLE), sql.Identifier(name)))
    await run_memory_migrations(url)
    store = await opened(url)
    assert store.second_lock
    await add(store, note("beta", external_ref="n2"))
    assert refs(await find(store, "beta")) == ["n2"]
    await store.close()


async def test_a_login_that_may_not_create_is_told_what_to_run(new_database: NewDatabase) -> None:
    url = new_database()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        name = f"poor_{conn.info.dbname}"
        await conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        with pytest.raises(MigrationError, match="CREATE SCHEMA memory AUTHORIZATION"):
            await run_memory_migrations(as_user(url, name))
        await conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
async def test_instants_at_the_edge_in_any_time_zone(database_url: str, owner: Owner, zone: str) -> None:
    await owner.execute(
        sql.SQL("ALTER DATABASE {} SET TimeZone = {}").format(
            sql.Identifier(owner.info.dbname), sql.Literal(zone)
        )
    )
    store = await opened(database_url)
    try:
        for year, ref in ((9999, "late"), (1, "early")):
            edge = datetime(
                year, 12 if year > 1 else 1, 31 if year > 1 else 1, 23 if year > 1 else 0, tzinfo=UTC
            )
            await add(store, note(f"alpha {ref}", external_ref=ref, occurred_at=edge))
        events = await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5))
        assert [event.at.year for event in events] == [9999, 1]
        assert sorted(refs(await find(store, "alpha"))) == ["early", "late"]
    finally:
        await store.close()


async def test_a_query_of_a_thousand_exclusions_is_refused(store: PostgresDocumentStore) -> None:
    await add(store, note("common", external_ref="n1"))
    words = [f"-w{i}" for i in range(16)]
    assert refs(await find(store, "common " + " ".join(words))) == ["n1"]
    with pytest.raises(InvalidInputError, match="at most 16"):
        await find(store, "common -more " + " ".join(words))


async def test_a_key_too_long_for_an_index_spoils_no_other(store: PostgresDocumentStore) -> None:
    """The door refuses such names; a host's own code may still hand one in."""
    long = "".join(chr(0x4E00 + (i * 7919) % 20000) for i in range(1024))
    answers = await store.add(
        tenant_id=T, principal_id=P, documents=[note("a", external_ref=long), note("b", external_ref="b")]
    )
    assert isinstance(answers[0], Exception)
    assert not isinstance(answers[1], Exception)
