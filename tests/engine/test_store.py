"""The store's life: it opens or says why, it can be tried again, and what it opened it closes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from procrastinate import PsycopgConnector
from procrastinate.exceptions import ConnectorException
from psycopg.conninfo import make_conninfo

from corbits_memory.config import EngineConfig
from corbits_memory.engine import worker
from corbits_memory.engine.migrate import JOBS_SCHEMA, run_memory_migrations
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import DatabaseError, MigrationError, UnavailableError
from corbits_memory.plane import Memory
from corbits_memory.ports import RerankScore
from tests.engine.support import OpenStore, T, add, find, note, until_waiting
from tests.models.conftest import ModelServer
from tests.support.postgres import NewDatabase

Owner = psycopg.AsyncConnection[Any]


class Closable:
    """A reranker that knows whether it was closed."""

    model = "none"

    def __init__(self) -> None:
        self.closed = False

    async def rerank(self, query: str, documents: list[str]) -> list[RerankScore]:
        raise AssertionError("never asked")

    async def aclose(self) -> None:
        self.closed = True


def lexical(url: str, *, run_worker: bool = False, reranker: Any = None) -> PostgresDocumentStore:
    config = EngineConfig(database_url=url, embed=None, run_worker=run_worker, db_pool_max=2)
    return PostgresDocumentStore(config, embedder=None, reranker=reranker)


async def connections(owner: Owner) -> int:
    row = await (
        await owner.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name LIKE 'corbits-memory%'"
        )
    ).fetchone()
    assert row is not None
    return int(row[0])


async def until_disconnected(owner: Owner) -> None:
    """Sessions end a moment after their connections are closed."""
    async with asyncio.timeout(10):
        while await connections(owner):  # noqa: ASYNC110 - the server does it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("run_worker", [False, True], ids=["alone", "with a worker"])
async def test_opening_can_be_tried_again_after_migrating(
    new_database: NewDatabase, run_worker: bool
) -> None:
    url = new_database()
    memory = Memory(lexical(url, run_worker=run_worker))
    for _ in range(2):
        with pytest.raises(MigrationError, match="db migrate"):
            await memory.open()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
        await until_disconnected(owner)
        await run_memory_migrations(url)
        await memory.open()
        assert await memory.list(tenant_id=T, principal_id="ann") == []
        await memory.close()
        await until_disconnected(owner)


async def test_a_schema_of_another_release_is_not_ready(database_url: str) -> None:
    """A newer release has migrated meanwhile: a balancer has to know."""
    store = lexical(database_url)
    await store.open()
    await store.ready()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as owner:
        await owner.execute("INSERT INTO memory._migrations (name, checksum) VALUES ('9999_later.sql', 'x')")
    with pytest.raises(MigrationError, match=r"9999_later.*install that one"):
        await store.ready()
    await store.close()


async def test_a_failed_open_leaves_the_models_usable(new_database: NewDatabase) -> None:
    reranker = Closable()
    store = lexical(new_database(), reranker=reranker)
    with pytest.raises(MigrationError):
        await store.open()
    assert not reranker.closed
    await store.close()
    assert reranker.closed


async def test_a_closed_store_says_so(database_url: str) -> None:
    store = lexical(database_url)
    await store.open()
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(UnavailableError, match="create a new one"):
        await store.open()


async def test_a_pool_that_fails_to_close_keeps_no_model_open(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise ConnectionResetError

    reranker = Closable()
    store = lexical(database_url, reranker=reranker)
    await store.open()
    with monkeypatch.context() as patch:
        patch.setattr(type(store._database), "close", fail)
        with pytest.raises(ConnectionResetError):
            await store.close()
    assert reranker.closed
    await store._database.close()


# --- the worker's connections ---


@pytest.mark.parametrize(
    ("options", "limit"),
    [("", "0"), ("-c statement_timeout=7777", "7777ms"), ("-c search_path=public", "0")],
    ids=["none", "of the URL", "a search path of the URL"],
)
async def test_the_urls_own_options_hold_beside_the_workers(
    open_store: OpenStore, database_url: str, options: str, limit: str
) -> None:
    url = make_conninfo(database_url, options=options)
    store = await open_store(database_url=url)
    assert store._worker._app is not None
    connector: Any = store._worker._app.connector
    row = await connector.execute_query_one_async(
        "SELECT current_setting('statement_timeout') AS timeout, current_setting('search_path') AS path"
    )
    assert row == {"timeout": limit, "path": JOBS_SCHEMA}
    async with connector.pool.connection() as conn:
        # Nothing is left at the connection, which a pooler gives to others.
        left = await (await conn.execute("SELECT current_setting('search_path')")).fetchone()
    assert left == ("public" if "search_path" in options else '"$user", public',)


@pytest.fixture
def refused_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's connections are refused, as where a login has no more of them."""

    async def refuse(*_: object, **__: object) -> None:
        raise ConnectorException("too many connections")

    monkeypatch.setattr(PsycopgConnector, "open_async", refuse)


@pytest.mark.usefixtures("refused_jobs")
async def test_without_jobs_a_store_opens_all_the_same(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, *(note(f"Note {i}.") for i in range(20)))
    assert len((await find(store, "note")).items) > 0
    assert await store.embedding.due_tenants() == [T]


async def test_a_worker_without_jobs_is_an_error(
    database_url: str, owner: Owner, refused_jobs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = lexical(database_url, run_worker=True)
    with pytest.raises(DatabaseError, match="worker can't connect"):
        await store.open()
    await until_disconnected(owner)
    monkeypatch.undo()
    await store.open()
    await store.close()


async def test_jobs_of_dead_workers_are_forgotten(open_store: OpenStore, owner: Owner) -> None:
    store = await open_store()
    app = store._worker._app
    assert app is not None
    for name in ("alive", "dead", "pruned"):
        await store._worker.embed_soon(name)
    await owner.execute(f"SET search_path TO {JOBS_SCHEMA}")  # the library's triggers want it
    for name, age in (("alive", 0.0), ("dead", worker.STALLED_SECONDS + 1)):
        await owner.execute(
            "WITH w AS (INSERT INTO procrastinate_workers (last_heartbeat) "
            "VALUES (now() - make_interval(secs => %s)) RETURNING id) "
            "UPDATE procrastinate_jobs j SET status = 'doing', worker_id = w.id FROM w "
            "WHERE j.args ->> 'tenant_id' = %s",
            [age, name],
        )
    await owner.execute(
        "UPDATE procrastinate_jobs SET status = 'doing' WHERE args ->> 'tenant_id' = 'pruned'"
    )
    await store._worker._sweep(app)
    left = await owner.execute("SELECT args ->> 'tenant_id' FROM procrastinate_jobs")
    assert await left.fetchall() == [("alive",)]


# --- statistics ---


@asynccontextmanager
async def held_sample(url: str) -> AsyncIterator[None]:
    """Counting statistics stops where the sample is drawn, until the block ends."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(
            "CREATE FUNCTION public.wait_here() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END'"
        )
        await conn.execute(
            "CREATE TRIGGER wait_here BEFORE UPDATE OF sample ON memory.embed_model "
            "FOR EACH ROW EXECUTE FUNCTION public.wait_here()"
        )
        await conn.execute("SELECT pg_advisory_lock(4711)")
        yield


async def test_counting_statistics_holds_up_no_capture(
    open_store: OpenStore, word_server: ModelServer, owner: Owner, database_url: str
) -> None:
    store = await open_store(embed_url=word_server.url)
    await add(store, note("The pool closes at nine."))
    async with held_sample(database_url):
        counting = asyncio.create_task(store.statistics.refresh(T))
        await until_waiting(owner)
        async with asyncio.timeout(8):
            (added,) = await add(store, note("The bar closes at ten."))
        assert not counting.done()
    await counting
    assert added.degraded == ()
