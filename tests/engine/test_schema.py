"""Migrations and the rules of the schema, read from the catalog."""

import asyncio
from typing import Any

import psycopg
import pytest

from corbits_memory.core import enums
from corbits_memory.engine.migrate import (
    Migration,
    engine_migrations,
    migration_status,
    run_memory_migrations,
)
from corbits_memory.errors import MigrationError
from tests.support.postgres import NewDatabase

Owner = psycopg.AsyncConnection[Any]


async def fetch(owner: Owner, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return await (await owner.execute(query, parameters)).fetchall()


async def test_migrating_twice_applies_once(new_database: NewDatabase) -> None:
    url = new_database()
    assert await run_memory_migrations(url) == [m.name for m in engine_migrations()]
    assert await run_memory_migrations(url) == []


async def test_many_processes_may_migrate_at_once(new_database: NewDatabase) -> None:
    url = new_database()
    applied = await asyncio.gather(*(run_memory_migrations(url) for _ in range(6)))
    assert sorted(map(len, applied)) == [0] * 5 + [len(engine_migrations())]


async def test_an_edited_file_is_refused(database_url: str) -> None:
    edited = [
        Migration(m.name, m.text + "\n-- edited") if i == 0 else m for i, m in enumerate(engine_migrations())
    ]
    with pytest.raises(MigrationError, match="edited"):
        await run_memory_migrations(database_url, migrations=edited)


async def test_a_database_of_a_newer_release_is_refused(database_url: str, owner: Owner) -> None:
    await owner.execute("INSERT INTO memory._migrations (name, checksum) VALUES ('9999_future.sql', 'x')")
    with pytest.raises(MigrationError, match=r"9999_future\.sql"):
        await run_memory_migrations(database_url)


async def test_a_failing_file_leaves_nothing_and_is_tried_again(new_database: NewDatabase) -> None:
    url = new_database()
    bad = [*engine_migrations(), Migration("0099_bad.sql", "CREATE TABLE memory.half (id int); SELECT 1 / 0")]
    for _ in range(2):
        with pytest.raises(MigrationError, match=r"0099_bad\.sql failed and was rolled back"):
            await run_memory_migrations(url, migrations=bad)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        assert await fetch(conn, "SELECT to_regclass('memory.half')") == [(None,)]
        assert (await migration_status(conn))["pending"] == []


async def test_status_of_an_empty_database(new_database: NewDatabase) -> None:
    async with await psycopg.AsyncConnection.connect(new_database(), autocommit=True) as conn:
        status = await migration_status(conn)
    assert status["pending"] == [m.name for m in engine_migrations()]


def test_files_are_named_in_order() -> None:
    names = [m.name for m in engine_migrations()]
    assert names == sorted(names)
    assert len({name[:4] for name in names}) == len(names)


async def test_nothing_but_the_extension_is_in_public(owner: Owner) -> None:
    assert (
        await fetch(owner, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []
    )


async def test_every_key_and_hot_index_begins_with_the_tenant(owner: Owner) -> None:
    """So the schema is distributable by tenant as it stands."""
    rows = await fetch(
        owner,
        "SELECT c.relname, i.relname, am.amname, x.indisunique, a.attname FROM pg_index x "
        "JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid "
        "JOIN pg_am am ON am.oid = i.relam LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0] "
        "WHERE c.relnamespace = 'memory'::regnamespace AND c.relname NOT LIKE '\\_%%'",
    )
    assert rows
    assert not [row for row in rows if row[2] == "btree" and row[4] != "tenant_id"]
    assert {
        row[1] for row in rows if row[2] == "gin" and not row[1].startswith(("search_row", "chunk"))
    } == set()


async def test_no_foreign_key_leaves_its_tenant(owner: Owner) -> None:
    rows = await fetch(
        owner,
        "SELECT conname, conrelid::regclass::text, confrelid::regclass::text, "
        "(SELECT attname FROM pg_attribute WHERE attrelid = conrelid AND attnum = conkey[1]), "
        "(SELECT attname FROM pg_attribute WHERE attrelid = confrelid AND attnum = confkey[1]) "
        "FROM pg_constraint WHERE contype = 'f' AND connamespace = 'memory'::regnamespace",
    )
    assert rows
    assert {(here, there) for *_, here, there in rows} == {("tenant_id", "tenant_id")}


async def test_every_table_with_a_tenant_is_under_the_policy(owner: Owner) -> None:
    rows = await fetch(
        owner,
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
        "WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "AND NOT (c.relrowsecurity AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))",
    )
    assert rows == []


async def test_checks_and_enums_agree(owner: Owner) -> None:
    checks = dict(
        await fetch(
            owner,
            "SELECT conrelid::regclass::text || '.' || (SELECT attname FROM pg_attribute WHERE attrelid = conrelid "
            "AND attnum = conkey[1]), pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE contype = 'c' AND connamespace = 'memory'::regnamespace AND array_length(conkey, 1) = 1",
        )
    )
    expected: dict[str, type[enums.VersionStatus] | Any] = {
        "memory.version.status": enums.VersionStatus,
        "memory.version.created_by_kind": enums.CreatedByKind,
        "memory.version.source_class": enums.LineageClass,
        "memory.version.provenance": enums.Provenance,
        "memory.version.temporal_class": enums.TemporalClass,
        "memory.version.retention_class": enums.RetentionClass,
        "memory.edge.rel": enums.EdgeRel,
        "memory.edge.from_type": enums.EdgeEnd,
        "memory.edge.to_type": enums.EdgeEnd,
        "memory.embed_model.status": enums.ModelStatus,
        "memory.transform_run.status": enums.RunStatus,
    }
    for column, enum in expected.items():
        found = set(checks[column].split("'")[1::2])
        assert found == {str(value) for value in enum}, column


async def test_no_statistics_are_kept_of_text(owner: Owner) -> None:
    """The planner's statistics would hold samples of what was forgotten."""
    rows = await fetch(
        owner,
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 "
        "AND NOT a.attisdropped "
        "AND a.attname IN ('text', 'text_fts', 'raw_text', 'raw_bytes', 'title', 'attributes', 'identifiers', 'label', "
        "'fts', 'terms', 'term', 'lex', 'author', 'metadata', 'external_ref', 'thread', 'context_key', "
        "'content_hash', "
        "'source_hash', 'generator_agent_id', "
        "'to_ref', 'role', 'error', 'embedding') AND coalesce(a.attstattarget, -1) <> 0",
    )
    assert rows == []


async def test_no_trigger_of_ours(owner: Owner) -> None:
    rows = await fetch(
        owner,
        "SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "WHERE NOT tgisinternal AND c.relnamespace = 'memory'::regnamespace",
    )
    assert rows == []
