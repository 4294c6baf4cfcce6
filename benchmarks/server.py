"""A Postgres of the benchmark's own, its databases, and stores on them."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from corbits_memory import run_memory_migrations
from corbits_memory.config import EngineConfig
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import Embedder

PRINCIPAL = "bench"


@contextmanager
def bench_server(options: Mapping[str, str] | None = None) -> Iterator["Server"]:
    """A server in a folder that goes away with it, under the product's own settings unless told otherwise."""
    folder = Path(tempfile.mkdtemp(prefix="corbits-memory-bench-"))
    try:
        with EmbeddedPostgres.start(folder / "postgres", options=options or {}) as server:
            yield Server(server.url, log_file=server.log_file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    def __init__(self, url: str, *, log_file: Path) -> None:
        self._url = url
        self.log_file = log_file

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{quote(database, safe='')}"))

    async def create_database(self, name: str) -> str:
        """An empty, migrated database; its URL."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as conn:
            await conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        await run_memory_migrations(self.url(name))
        return self.url(name)

    async def create_login(self, url: str, name: str) -> str:
        """A login that the server's log tells apart, with every right; ``url`` for it."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as conn:
            await conn.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER").format(sql.Identifier(name)))
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{quote(name)}@{parts.netloc.rpartition('@')[2]}"))

    async def version(self) -> str:
        """Postgres and pgvector."""
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as conn:
            row = await (
                await conn.execute(
                    "SELECT current_setting('server_version'), "
                    "(SELECT default_version FROM pg_available_extensions WHERE name = 'vector')"
                )
            ).fetchone()
        assert row is not None
        return f"PostgreSQL {row[0]}, pgvector {row[1]}"


@asynccontextmanager
async def open_store(
    url: str, embedder: Embedder | None, *, connections: int = 8
) -> AsyncIterator[PostgresDocumentStore]:
    """The product's store, without its background worker: the benchmark decides when vectors are made."""
    store = PostgresDocumentStore(
        EngineConfig(database_url=url, run_worker=False, db_pool_max=connections),
        embedder=embedder,
        reranker=None,
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()
