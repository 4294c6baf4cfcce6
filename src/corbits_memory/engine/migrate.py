"""The migration runner: numbered SQL files, a ledger with checksums, one lock."""

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

import psycopg
from psycopg import sql

from corbits_memory.engine.distribution import follow
from corbits_memory.engine.fts import check_language_name, verify_fts_language
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.rights import ensure_app_role
from corbits_memory.errors import MigrationError

logger = logging.getLogger("corbits_memory.migrate")

_FILE_NAME = re.compile(r"^\d{4}_[a-z0-9_]+\.sql$")
_LOCK = "corbits-memory migrations"
JOBS_SCHEMA = "memory_jobs"


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def engine_migrations() -> list[Migration]:
    """The engine's own files, in order."""
    return read_migrations(resources.files(__package__).joinpath("migrations"))


def read_migrations(folder: Traversable) -> list[Migration]:
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    bad = [f.name for f in files if not _FILE_NAME.match(f.name)]
    if bad:
        raise MigrationError(f"Migration files must be named NNNN_name.sql, which these are not: {bad}")
    return [Migration(f.name, f.read_text(encoding="utf-8")) for f in files]


async def run_memory_migrations(
    url: str,
    *,
    fts_language: str = "english",
    migrations: Sequence[Migration] | None = None,
    schema: str = "memory",
) -> list[str]:
    """Bring a database up to date and return the names that were applied now.

    Safe from many processes at once: they queue on one advisory lock. Each file is a transaction of its own
    with its ledger row. Raises ``MigrationError`` on an edited or missing file, ``FtsLanguageError`` when
    the index is in another language. ``url`` needs a login that may create the schema.
    """
    language = check_language_name(fts_language)
    files = list(migrations if migrations is not None else engine_migrations())
    try:
        conn: Connection = await psycopg.AsyncConnection.connect(
            url, autocommit=True, prepare_threshold=None, application_name="corbits-memory migrate"
        )
    except psycopg.Error as error:
        raise MigrationError(f"The database can't be reached for migrating: {str(error).strip()}") from error
    async with conn:
        await conn.execute("SELECT pg_advisory_lock(hashtext(%s))", [_LOCK])
        try:
            applied = await _apply_missing(conn, files, language, schema)
            if schema == "memory":
                await ensure_app_role(conn, extensions=await _extension_schemas(conn))
                await follow(conn)
        finally:
            await conn.execute("SELECT pg_advisory_unlock(hashtext(%s))", [_LOCK])
        if schema == "memory":
            await verify_fts_language(conn, language)
            await migrate_jobs(conn)
    return applied


async def migrate_jobs(conn: Connection) -> None:
    """The job library's tables, in a schema of their own. Safe from many processes at once."""
    # Imported here: only migrating needs the library's schema.
    from procrastinate.schema import SchemaManager

    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [JOBS_SCHEMA])
        found = await (
            await conn.execute("SELECT to_regclass(%s)", [f"{JOBS_SCHEMA}.procrastinate_jobs"])
        ).fetchone()
        if found and found[0] is not None:
            return
        name = sql.Identifier(JOBS_SCHEMA)
        await conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        await conn.execute(sql.SQL("SET LOCAL search_path TO {}").format(name))
        await conn.execute(SchemaManager.get_schema())


async def migration_status(conn: Connection, schema: str = "memory") -> dict[str, list[str]]:
    """Read-only: the names ``applied``, ``pending``, ``edited`` and ``unknown`` (applied, but not in this release)."""
    return _compare(engine_migrations(), await _ledger(conn, schema))


async def _apply_missing(conn: Connection, files: list[Migration], language: str, schema: str) -> list[str]:
    await _ensure_ledger(conn, schema)
    state = _compare(files, await _ledger(conn, schema))
    if state["edited"]:
        raise MigrationError(
            f"These migrations were edited after they had been applied: {state['edited']}. "
            "Restore them, or install the release that applied them."
        )
    if state["unknown"]:
        raise MigrationError(
            f"The database was migrated by a newer release: this one does not know {state['unknown']}. Upgrade it."
        )
    for migration in files:
        if migration.name not in state["pending"]:
            logger.debug("(skip) %s", migration.name)
            continue
        await _apply(conn, migration, language, schema)
        logger.info("applied %s", migration.name)
    return state["pending"]


async def _ensure_ledger(conn: Connection, schema: str) -> None:
    name = sql.Identifier(schema)
    try:
        # Looked for first: IF NOT EXISTS asks for the right to create even when there is nothing to do.
        found = await (await conn.execute("SELECT to_regnamespace(%s)", [schema])).fetchone()
        if not found or found[0] is None:
            await conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        await conn.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {}._migrations (name text PRIMARY KEY, checksum text NOT NULL, "
                "applied_at timestamptz NOT NULL DEFAULT now())"
            ).format(name)
        )
    except psycopg.Error as error:
        raise MigrationError(
            f"The schema {schema} can't be created: {str(error).strip()}. Migrate with a login that owns the "
            f"database, or have its owner run: CREATE SCHEMA {schema} AUTHORIZATION the login"
        ) from error


async def _apply(conn: Connection, migration: Migration, language: str, schema: str) -> None:
    # The file is ours and the language a checked name: nothing of a user's is in this text.
    text = migration.text.replace("{{FTS_LANGUAGE}}", language).replace(
        "{{EXTENSION_SCHEMAS}}", await _extension_schemas(conn)
    )
    try:
        async with conn.transaction():
            await conn.execute(text)
            await conn.execute(
                sql.SQL("INSERT INTO {}._migrations (name, checksum) VALUES (%s, %s)").format(
                    sql.Identifier(schema)
                ),
                [migration.name, migration.checksum],
            )
    except psycopg.Error as error:
        raise MigrationError(
            f"Migration {migration.name} failed and was rolled back: {str(error).strip()}"
        ) from error


async def _extension_schemas(conn: Connection) -> str:
    """Where pgvector and pg_trgm live, quoted: some hosts keep extensions in a schema of their own."""
    row = await (
        await conn.execute(
            "SELECT string_agg(DISTINCT quote_ident(n.nspname), ', ') FROM pg_extension e "
            "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname IN ('vector', 'pg_trgm')"
        )
    ).fetchone()
    return str(row[0]) if row and row[0] else "public"


async def _ledger(conn: Connection, schema: str) -> dict[str, str]:
    exists = await (await conn.execute("SELECT to_regclass(%s)", [f"{schema}._migrations"])).fetchone()
    if not exists or exists[0] is None:
        return {}
    rows = await conn.execute(
        sql.SQL("SELECT name, checksum FROM {}._migrations").format(sql.Identifier(schema))
    )
    return {name: checksum async for name, checksum in rows}


def _compare(files: Sequence[Migration], ledger: dict[str, str]) -> dict[str, list[str]]:
    known = {migration.name: migration.checksum for migration in files}
    return {
        "applied": [name for name in known if name in ledger],
        "pending": [name for name in known if name not in ledger],
        "edited": [name for name, checksum in known.items() if ledger.get(name, checksum) != checksum],
        "unknown": sorted(ledger.keys() - known.keys()),
    }
