"""The full-text language: one name for the index and for the queries."""

import re

from psycopg import sql

from corbits_memory.engine.pool import Connection
from corbits_memory.errors import FtsLanguageError

_NAME = re.compile(r"^[a-z_]{1,63}$")
_EXPRESSION = re.compile(r"^to_tsvector\('(?P<language>[^']+)'::regconfig, text\)$")


def check_language_name(name: str | None) -> str:
    """The name, english when unset or empty. Raises ``FtsLanguageError`` on anything but ``[a-z_]{1,63}``."""
    language = (name or "").strip() or "english"
    if not _NAME.match(language):
        raise FtsLanguageError(
            "FTS_LANGUAGE must match [a-z_]{1,63}, like english or simple; only unqualified names are supported."
        )
    return language


async def verify_fts_language(conn: Connection, language: str) -> None:
    """Compare the language of ``memory.chunk.text_fts`` with the one that queries will use. Read-only.

    Raises ``FtsLanguageError`` that says which of the two ways out to take.
    """
    language = check_language_name(language)
    if not await has_language(conn, language):
        raise FtsLanguageError(
            f"This Postgres has no text search configuration {language!r}; "
            "SELECT cfgname FROM pg_ts_config lists those it has. Set FTS_LANGUAGE to one of them."
        )
    expression = await _index_expression(conn)
    match = _EXPRESSION.match(expression)
    if match is None:
        raise FtsLanguageError(
            f"The expression of memory.chunk.text_fts is not one of ours: {expression}. "
            f"Run: corbits-memory db rebuild-fts {language}"
        )
    indexed = match["language"]
    if "." in indexed:
        raise FtsLanguageError(
            f"memory.chunk.text_fts uses {indexed}; only unqualified configurations are supported. "
            f"Run: corbits-memory db rebuild-fts {language}"
        )
    if indexed != language:
        raise FtsLanguageError(
            f"The index is in {indexed!r}, but FTS_LANGUAGE says {language!r}: queries would be stemmed differently "
            f"from the index. Either run: corbits-memory db rebuild-fts {language}, "
            f"or set FTS_LANGUAGE={indexed} again."
        )


async def has_language(conn: Connection, language: str) -> bool:
    found = await (
        await conn.execute(
            "SELECT 1 FROM pg_ts_config WHERE cfgname = %s AND pg_ts_config_is_visible(oid)", [language]
        )
    ).fetchone()
    return found is not None


async def rebuild_fts(conn: Connection, language: str) -> None:
    """Give ``memory.chunk.text_fts`` another language. Rewrites the table under an exclusive lock.

    Needs a connection in autocommit: the index is created concurrently, outside any transaction. A call that
    was interrupted is repeated as it is.
    """
    language = check_language_name(language)
    if not await has_language(conn, language):
        raise FtsLanguageError(f"This Postgres has no text search configuration {language!r}.")
    await _index_expression(conn)
    async with conn.transaction():
        await conn.execute("DROP INDEX IF EXISTS memory.chunk_text_fts")
        await conn.execute("ALTER TABLE memory.chunk DROP COLUMN IF EXISTS text_fts")
        await conn.execute(
            sql.SQL(
                "ALTER TABLE memory.chunk ADD COLUMN text_fts tsvector "
                "GENERATED ALWAYS AS (to_tsvector({}::regconfig, text)) STORED"
            ).format(sql.Literal(language))
        )
        await conn.execute("ALTER TABLE memory.chunk ALTER text_fts SET STATISTICS 0")
    await conn.execute("DROP INDEX IF EXISTS memory.chunk_text_fts")
    await conn.execute("CREATE INDEX CONCURRENTLY chunk_text_fts ON memory.chunk USING gin (text_fts)")


async def _index_expression(conn: Connection) -> str:
    row = await (
        await conn.execute(
            "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a "
            "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
            "WHERE a.attrelid = to_regclass('memory.chunk') AND a.attname = 'text_fts' AND NOT a.attisdropped"
        )
    ).fetchone()
    if row is None:
        raise FtsLanguageError("The database is not migrated. Run: corbits-memory db migrate")
    if row[0] is None:
        raise FtsLanguageError(
            "memory.chunk.text_fts is not a generated column. Run: corbits-memory db rebuild-fts"
        )
    return str(row[0])
