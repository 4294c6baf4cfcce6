"""Both channels of a search at once, over two connections."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row

from corbits_memory.engine.pool import Database, Reading
from corbits_memory.engine.search.crowded import CrowdedScopes
from corbits_memory.engine.search.retrieval import AT_ONCE_ROWS, QueryVector, Retrieved, retrieve
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import DatabaseError
from corbits_memory.ports import SearchQuery, Visibility
from tests.engine.conftest import word_vector
from tests.engine.large.conftest import vector_table
from tests.engine.support import NOON, Owner, P, T, add, find, note, refs


class Asides:
    """Counts the second connections that searches get; with ``refused`` they get none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given = 0
        self.refused = False
        beside = Database.reading_beside

        @asynccontextmanager
        async def give(database: Database, tenant_id: str) -> AsyncIterator[Reading | None]:
            async with beside(database, tenant_id) as second:
                self.given += second is not None and not self.refused
                yield None if self.refused else second

        monkeypatch.setattr(Database, "reading_beside", give)


@pytest.fixture
def asides(monkeypatch: pytest.MonkeyPatch) -> Asides:
    return Asides(monkeypatch)


@pytest.fixture(autouse=True)
async def many_rows(owner: Owner) -> None:
    """Below them one message is faster; the rows that there are do as well here."""
    await owner.execute("UPDATE memory.tenant_state SET chunk_count = %s", [AT_ONCE_ROWS])


Answer = Callable[[], Awaitable[list[Any]]]


def when_dense_is_asked(
    monkeypatch: pytest.MonkeyPatch, instead: Callable[[Reading, Answer], Awaitable[list[Any]]]
) -> None:
    fetch = Reading.fetch

    async def asked(reading: Reading, query: Any, *given: Any, **named: Any) -> list[Any]:
        if "dense_channel" not in query:
            return await fetch(reading, query, *given, **named)
        return await instead(reading, lambda: fetch(reading, query, *given, **named))

    monkeypatch.setattr(Reading, "fetch", asked)


async def test_both_channels_at_once_find_what_one_after_the_other_finds(
    corpus: PostgresDocumentStore, asides: Asides
) -> None:
    await add(
        corpus,
        note("w399 and a zeppelin", external_ref="one", thread="t"),
        note("w398 above it", external_ref="two", thread="t"),
    )
    await corpus.statistics.refresh(T)
    queries = [" ".join(f"w{n}" for n in random.Random(i).sample(range(1, 400), 5)) for i in range(15)]
    queries += ["zeppelin w399", "w1", "nothing of that", "zepelin"]
    await find(corpus, "w1")  # which finds out that the rows are many
    assert asides.given == 0
    for query in queries:
        asides.refused = False
        at_once = await find(corpus, query, limit=20, explain=True)
        asides.refused = True
        assert await find(corpus, query, limit=20, explain=True) == at_once
    assert asides.given == len(queries)


@pytest.mark.parametrize(
    "asked",
    [
        {"query": "w399 -w1"},
        {"query": '"w399"'},
        {"kinds": ("note",)},
        {"occurred_after": NOON},
        {"attributes": {"a": 1}},
        {"principal": "eve"},
    ],
)
async def test_filters_and_few_rows_are_answered_over_one_connection(
    corpus: PostgresDocumentStore, asides: Asides, asked: dict[str, Any]
) -> None:
    asked = {"query": "w399 w1", **asked}
    for _ in range(2):
        await find(corpus, **asked)
    assert asides.given == 0


@pytest.mark.parametrize(("rows", "given"), [(-1, 0), (0, 1), (1, 1)])
async def test_of_fewer_rows_one_message_is_enough(
    corpus: PostgresDocumentStore, owner: Owner, asides: Asides, rows: int, given: int
) -> None:
    await owner.execute("UPDATE memory.tenant_state SET chunk_count = %s", [AT_ONCE_ROWS + rows])
    for _ in range(2):
        await find(corpus, "w399 w1")
    assert asides.given == given


async def test_searches_beside_each_other_take_a_connection_each(
    corpus: PostgresDocumentStore, asides: Asides
) -> None:
    alone = await find(corpus, "w399 w2")
    answers = await asyncio.gather(*(find(corpus, "w399 w2") for _ in range(20)))
    assert all(answer == alone for answer in answers)
    assert asides.given <= 5  # the first and the last may be alone


async def test_what_is_forgotten_between_the_channels_is_not_shown(
    corpus: PostgresDocumentStore, owner: Owner, asides: Asides, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(corpus, note("a zeppelin above w399", external_ref="gone"))
    assert refs(await find(corpus, "zeppelin w399"))[0] == "gone"

    async def after(_: Reading, answer: Answer) -> list[Any]:
        found = await answer()
        await owner.execute(
            "DELETE FROM memory.search_row WHERE document_id = (SELECT id FROM memory.document "
            "WHERE external_ref = 'gone')"
        )
        return found

    when_dense_is_asked(monkeypatch, after)
    assert "gone" not in refs(await find(corpus, "a zeppelin above w399"))
    assert asides.given == 1


@pytest.mark.usefixtures("corpus")
async def test_channels_of_two_generations_are_not_mixed(owner: Owner, database_url: str) -> None:
    preamble = "BEGIN; SET LOCAL memory.tenant_id = 'acme'"
    vector = QueryVector(
        model_key=(await vector_table(owner)).removeprefix("embedding_"), values=word_vector("w9")
    )
    crowded = CrowdedScopes()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:

        @asynccontextmanager
        async def promoted() -> AsyncIterator[Reading]:
            """By when the second is asked, after the first."""
            yield Late(other, "acme", preamble)

        class Late(Reading):
            async def fetch(self, *given: Any, **named: Any) -> list[Any]:
                await lexical_done.wait()
                await owner.execute("UPDATE memory.tenant_state SET live_generation = 'g1'")
                return await super().fetch(*given, **named)

        class First(Reading):
            async def fetch(self, *given: Any, **named: Any) -> list[Any]:
                try:
                    return await super().fetch(*given, **named)
                finally:
                    lexical_done.set()

        async def ask(second: Callable[[], AbstractAsyncContextManager[Reading | None]]) -> Retrieved:
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
                return await retrieve(
                    First(conn, "acme", preamble),
                    visibility=Visibility(principal_id=P),
                    query=SearchQuery(query="w399 w1"),
                    text="w399 w1",
                    required=[],
                    excluded=[],
                    vector=vector,
                    limit=50,
                    crowded=crowded,
                    second=second,
                )

        lexical_done = asyncio.Event()
        assert (await ask(nullcontext)).dense_ready
        lexical_done = asyncio.Event()
        mixed = await ask(promoted)
    assert (mixed.searched, mixed.columns, mixed.dense_ready) == ("g0", None, False)


async def test_an_error_of_one_channel_is_the_searchs_and_leaves_nothing_behind(
    corpus: PostgresDocumentStore, asides: Asides, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await find(corpus, "w399 w2")
    with monkeypatch.context() as patch:

        async def fail(reading: Reading, _: Answer) -> list[Any]:
            return await reading.fetch("SELECT 1 / 0", {}, tuple_row)

        when_dense_is_asked(patch, fail)
        for _ in range(20):
            with pytest.raises(DatabaseError, match="22012"):
                await find(corpus, "w399 w2")
    assert await find(corpus, "w399 w2") == expected
    assert asides.given == 21


@pytest.mark.parametrize("channel", ["lexical_channel", "dense_channel"])
async def test_a_search_that_is_cancelled_gives_both_connections_back(
    corpus: PostgresDocumentStore, asides: Asides, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    expected = await find(corpus, "w399 w2")
    asked = asyncio.Event()
    with monkeypatch.context() as patch:
        fetch = Reading.fetch

        async def sleep(reading: Reading, query: Any, *given: Any, **named: Any) -> list[Any]:
            if channel not in query:
                return await fetch(reading, query, *given, **named)
            asked.set()
            return await fetch(reading, "SELECT pg_sleep(7)", {}, tuple_row)

        patch.setattr(Reading, "fetch", sleep)
        for _ in range(10):
            asked.clear()
            search = asyncio.create_task(find(corpus, "w399 w2"))
            await asyncio.wait_for(asked.wait(), 5)
            await asyncio.sleep(0.02)
            search.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(search, 5)
    assert await find(corpus, "w399 w2") == expected
    assert asides.given == 11


async def test_a_channel_that_fails_is_not_waited_for(
    corpus: PostgresDocumentStore, asides: Asides, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await find(corpus, "w399 w2")
    with monkeypatch.context() as patch:
        fetch = Reading.fetch

        async def instead(reading: Reading, query: Any, *given: Any, **named: Any) -> list[Any]:
            if "lexical_channel" in query:
                query, given, named = "SELECT pg_sleep(7)", ({}, tuple_row), {}
            elif "dense_channel" in query:
                query, given, named = "SELECT 1 / 0", ({}, tuple_row), {}
            return await fetch(reading, query, *given, **named)

        patch.setattr(Reading, "fetch", instead)
        with pytest.raises(DatabaseError, match="22012"):
            await asyncio.wait_for(find(corpus, "w399 w2"), 5)
    assert await find(corpus, "w399 w2") == expected
    assert asides.given == 2


async def test_no_second_connection_is_waited_for(database_url: str) -> None:
    """An idle one may be dead, and no other to be had: the pool would be waited for, with the first in hand."""
    name = urlsplit(database_url).path.lstrip("/")
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format
    database = Database(database_url, pool_min=2, pool_max=2)
    await database.open()
    async with await psycopg.AsyncConnection.connect(
        make_conninfo(database_url, dbname="postgres"), autocommit=True
    ) as other:
        try:
            async with database.reading(T) as first:
                ((pid,),) = await first.fetch("SELECT pg_backend_pid()", {}, tuple_row)
                await other.execute(allow(sql.Identifier(name), sql.SQL("false")))
                ended = await other.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE application_name = 'corbits-memory' AND datname = %s AND pid <> %s",
                    [name, pid],
                )
                assert await ended.fetchall() == [(True,)]
                async with asyncio.timeout(5), database.reading_beside(T) as second:
                    assert second is None
                assert await first.fetch("SELECT 1", {}, tuple_row) == [(1,)]
        finally:
            await other.execute(allow(sql.Identifier(name), sql.SQL("true")))
            await database.close()


async def test_a_second_connection_is_for_who_reads_alone(database_url: str) -> None:
    database = Database(database_url, pool_min=2, pool_max=3)
    narrow = Database(database_url, pool_max=1)
    await database.open()
    await narrow.open()
    try:
        async with database.reading(T), database.reading_beside(T) as second:
            assert second is not None
            assert await second.fetch("SELECT 1", {}, tuple_row) == [(1,)]
        async with database.reading(T), database.reading(T), database.reading_beside(T) as second:
            assert second is None
        async with narrow.reading(T), narrow.reading_beside(T) as second:
            assert second is None
    finally:
        await database.close()
        await narrow.close()
