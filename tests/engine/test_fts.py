"""The full-text language of the compat index: checked, and changed by a command."""

from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import SearchProfile
from corbits_memory.engine.fts import check_language_name, rebuild_fts, verify_fts_language
from corbits_memory.engine.migrate import run_memory_migrations
from corbits_memory.errors import FtsLanguageError
from tests.engine.support import OpenStore, add, find, note, refs
from tests.support.postgres import NewDatabase

Owner = psycopg.AsyncConnection[Any]


@pytest.mark.parametrize(
    ("given", "name"), [(None, "english"), ("", "english"), (" german ", "german"), ("a" * 63, "a" * 63)]
)
def test_names(given: str | None, name: str) -> None:
    assert check_language_name(given) == name


@pytest.mark.parametrize("given", ["English", "pg_catalog.english", "german2", "a" * 64, "x'; DROP", "dé"])
def test_names_that_are_none(given: str) -> None:
    with pytest.raises(FtsLanguageError, match=r"\[a-z_\]\{1,63\}"):
        check_language_name(given)


@pytest.mark.parametrize("language", ["english", "german", "simple"])
async def test_the_index_is_made_in_the_language(new_database: NewDatabase, language: str) -> None:
    url = new_database()
    await run_memory_migrations(url, fts_language=language)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await verify_fts_language(conn, language)


async def test_an_unknown_language_is_named(owner: Owner) -> None:
    with pytest.raises(FtsLanguageError, match="no text search configuration 'klingon'"):
        await verify_fts_language(owner, "klingon")


async def test_a_mismatch_names_both_languages_and_both_ways_out(owner: Owner, database_url: str) -> None:
    with pytest.raises(FtsLanguageError) as error:
        await verify_fts_language(owner, "german")
    for words in ("'english'", "'german'", "rebuild-fts german", "FTS_LANGUAGE=english"):
        assert words in str(error.value)
    with pytest.raises(FtsLanguageError):
        await run_memory_migrations(database_url, fts_language="german")


async def test_a_store_in_another_language_does_not_open(open_store: OpenStore) -> None:
    with pytest.raises(FtsLanguageError):
        await open_store(fts_language="german")


async def test_an_unmigrated_database_is_said(new_database: NewDatabase) -> None:
    async with await psycopg.AsyncConnection.connect(new_database(), autocommit=True) as conn:
        with pytest.raises(FtsLanguageError, match="not migrated"):
            await verify_fts_language(conn, "english")


async def test_a_qualified_or_foreign_expression_is_said(owner: Owner) -> None:
    await owner.execute("CREATE TEXT SEARCH CONFIGURATION memory.mine (COPY = english)")
    for expression, words in (
        ("to_tsvector('memory.mine'::regconfig, text)", "unqualified"),
        ("to_tsvector('english'::regconfig, upper(text))", "not one of ours"),
    ):
        await owner.execute("ALTER TABLE memory.chunk DROP COLUMN text_fts")
        await owner.execute(
            f"ALTER TABLE memory.chunk ADD COLUMN text_fts tsvector GENERATED ALWAYS AS ({expression}) STORED"
        )
        with pytest.raises(FtsLanguageError, match=words):
            await verify_fts_language(owner, "english")


@pytest.mark.parametrize(
    ("language", "query", "found"),
    [
        ("german", "Haus", True),
        ("simple", "Haus", False),
        ("simple", "Häuser", True),
        ("english", "Haus", False),
    ],
)
async def test_rebuilding_changes_how_words_are_stemmed(
    open_store: OpenStore, owner: Owner, language: str, query: str, found: bool
) -> None:
    await add(await open_store(), note("Die Häuser wurden verkauft.", external_ref="n1"))
    await rebuild_fts(owner, language)
    await verify_fts_language(owner, language)
    store = await open_store(fts_language=language, profile=SearchProfile.COMPAT)
    assert refs(await find(store, query)) == (["n1"] if found else [])
    index = await owner.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'memory.chunk_text_fts'::regclass"
    )
    assert await index.fetchone() == (True,)


async def test_an_interrupted_rebuild_is_repeated_as_it_is(owner: Owner) -> None:
    await owner.execute("DROP INDEX memory.chunk_text_fts")
    await rebuild_fts(owner, "german")
    await verify_fts_language(owner, "german")


async def test_rebuilding_to_an_unknown_language_changes_nothing(owner: Owner) -> None:
    with pytest.raises(FtsLanguageError):
        await rebuild_fts(owner, "klingon")
    await verify_fts_language(owner, "english")
