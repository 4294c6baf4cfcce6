"""What the application's role may do in a database that an earlier release made."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from corbits_memory.engine.migrate import Migration, engine_migrations, run_memory_migrations
from corbits_memory.engine.pool import APP_ROLE, Database
from corbits_memory.engine.rights import FIXED
from corbits_memory.errors import DatabaseError, ExternalRefInUseError, MigrationError
from tests.engine.support import P, T, add, find, note, opened, refs
from tests.support.postgres import NewDatabase

Owner = psycopg.AsyncConnection[Any]

OWNERS = "SELECT owner_principal_id FROM memory.{} WHERE tenant_id = %s ORDER BY id"
RELEASED = "0016"
"""The last migration of a release whose role could change whole rows."""


async def make_as_before(url: str, last: str) -> None:
    """A database migrated up to ``last``, with the rights of then, and a document of Ann's."""
    await run_memory_migrations(url, migrations=[m for m in engine_migrations() if m.name[:4] <= last])
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        for name in FIXED:
            await conn.execute(
                sql.SQL(
                    "REVOKE ALL ON {0} FROM {1}; GRANT SELECT, INSERT, UPDATE, DELETE ON {0} TO {1}"
                ).format(sql.Identifier("memory", name), sql.Identifier(APP_ROLE))
            )
        await conn.execute(
            """
            INSERT INTO memory.tenant_state (tenant_id) VALUES ('acme');
            INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id)
              VALUES ('acme', 'd', 'note', 't', 'http', 'n', 'ann');
            INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, language,
              occurred_at, owner_principal_id, created_by_kind, authority, generation)
              VALUES ('acme', 'v', 'd', 1, 'h', 't', 'note', 'english', now(), 'ann', 'human', 0.4, 'g0');
            INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count)
              VALUES ('acme', 'c', 'v', 'd', 0, 'Cats.', 2)
            """
        )


async def take_over(url: str, name: str) -> None:
    database = Database(url, pool_max=1)
    await database.open()
    try:
        assert database.second_lock
        async with database.tenant(T) as conn:
            await conn.execute(
                sql.SQL("UPDATE {} SET owner_principal_id = 'mallory'").format(sql.Identifier("memory", name))
            )
    finally:
        await database.close()


async def owners(url: str, name: str) -> list[str]:
    async with await psycopg.AsyncConnection.connect(url) as conn:
        found = await conn.execute(sql.SQL(OWNERS).format(sql.Identifier(name)), [T])
        return [owner for (owner,) in await found.fetchall()]


@pytest.mark.parametrize("last", ["0001", "0011", RELEASED])
async def test_whose_a_document_is_is_fixed_when_a_release_before_is_followed(
    new_database: NewDatabase, last: str
) -> None:
    url = new_database()
    await make_as_before(url, last)
    with pytest.raises(MigrationError, match="corbits-memory db migrate"):
        await opened(url)
    assert "0017_owners.sql" in await run_memory_migrations(url)
    for name in FIXED:
        with pytest.raises(DatabaseError, match="42501"):
            await take_over(url, name)
        assert await owners(url, name) == [P]
    # And everything else of it can be changed: by Ann.
    store = await opened(url)
    try:
        (edited,) = await add(store, note("Dogs.", external_ref="n"))
        assert (edited.document_id, edited.version) == ("d", 2)
        (refused,) = await store.add(
            tenant_id=T, principal_id="bob", documents=[note("Mine.", external_ref="n")]
        )
        assert isinstance(refused, ExternalRefInUseError)
        assert refs(await find(store, "dogs")) == ["n"]
        await store.forget(tenant_id=T, principal_id=P, document_id="d")
    finally:
        await store.close()
    assert await owners(url, "document") == [P]
    assert await owners(url, "version") == [P, P]


async def test_before_it_was_followed_a_document_could_be_given_away(new_database: NewDatabase) -> None:
    """Else the test above could not fail."""
    url = new_database()
    await make_as_before(url, RELEASED)
    for name in FIXED:
        await take_over(url, name)
        assert await owners(url, name) == ["mallory"]


async def test_a_later_column_can_be_changed_and_a_right_that_came_back_is_taken_away(
    database_url: str, owner: Owner
) -> None:
    """An operator may have granted the whole table; a migration after this one may bring columns."""
    await owner.execute(sql.SQL("GRANT UPDATE ON memory.document TO {}").format(sql.Identifier(APP_ROLE)))
    later = Migration("9999_later.sql", "ALTER TABLE memory.document ADD later text")
    await run_memory_migrations(database_url, migrations=[*engine_migrations(), later])
    found = await owner.execute(
        "SELECT c, has_column_privilege(%s, 'memory.document', c, 'UPDATE') "
        "FROM unnest(ARRAY['owner_principal_id', 'later', 'title']) AS c",
        [APP_ROLE],
    )
    assert await found.fetchall() == [("owner_principal_id", False), ("later", True), ("title", True)]
