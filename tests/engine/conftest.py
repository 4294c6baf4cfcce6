"""Databases copied from one that was migrated once, and stores over them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

from corbits_memory.config import EmbedConfig, EngineConfig, RerankConfig
from corbits_memory.core.text import words
from corbits_memory.engine.migrate import run_memory_migrations
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.models.factory import ConfiguredModels, build_embedder, build_reranker
from tests.engine.support import NOW, OpenStore
from tests.models.conftest import Answer, ModelServer, Request
from tests.support.postgres import NewDatabase, create_database, drop_database


@pytest.fixture(scope="session")
def migrated_template(pg_cluster: str, database_names: Iterator[str]) -> Iterator[str]:
    name = f"{next(database_names)}_template"
    url = create_database(pg_cluster, name)
    asyncio.run(run_memory_migrations(url))
    yield name
    drop_database(pg_cluster, name)


@pytest.fixture
def database_url(new_database: NewDatabase, migrated_template: str) -> str:
    """A migrated database of the test's own."""
    return new_database(migrated_template)


@pytest.fixture
async def open_store(database_url: str) -> AsyncIterator[OpenStore]:
    """``await open_store(embed_url=…, rerank_url=…, **config)``: an open store, closed after the test."""
    async with AsyncExitStack() as stack:

        async def make(
            *, embed_url: str | None = None, rerank_url: str | None = None, **config: Any
        ) -> PostgresDocumentStore:
            embed = None
            if embed_url is not None:
                embed = EmbedConfig(base_url=embed_url, model=config.pop("model", "words"), timeout_ms=2_000)
            rerank = RerankConfig(
                base_url=rerank_url, model=config.pop("rerank_model", None), timeout_ms=1_000
            )
            fields = {"database_url": database_url, "run_worker": False, "db_pool_max": 4, **config}
            engine = EngineConfig(embed=embed, rerank=rerank, **fields)
            store = PostgresDocumentStore(
                engine,
                embedder=build_embedder(embed),
                reranker=build_reranker(rerank),
                models=ConfiguredModels(),
                clock=lambda: NOW,
            )
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield make


@pytest.fixture
async def store(open_store: OpenStore) -> PostgresDocumentStore:
    """A lexical-only store."""
    return await open_store()


@pytest.fixture
def word_server() -> Iterator[ModelServer]:
    """An embedding server whose vectors are bags of words: texts that share words are near."""
    with ModelServer() as server:
        server.script(embed_words)
        yield server


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection of the tables' owner, who sees every tenant."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        yield conn


DIMS = 64


def word_vector(text: str, dims: int = DIMS) -> list[float]:
    vector = [0.01] * dims
    for word in words(text):
        vector[sum(map(ord, word)) % dims] += 1.0
    return vector


def embed_words(request: Request) -> Answer:
    return Answer(
        {"data": [{"index": i, "embedding": word_vector(t)} for i, t in enumerate(request.body["input"])]}
    )


Script = Callable[[Request], Answer]
