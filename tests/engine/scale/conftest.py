"""A primary and a streaming replica of this module's own, and stores that read from it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from corbits_memory.config import EngineConfig
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.server.startup import migrate
from tests.engine.support import NOW, OpenStore
from tests.support.postgres import create_database, database_url
from tests.support.standby import Standby, replicated, until_replayed


@dataclass(frozen=True, slots=True)
class Pair:
    """A migrated database, and its replica."""

    cluster_url: str
    url: str
    standby: Standby

    @property
    def read_url(self) -> str:
        return self.standby.url(urlsplit(self.url).path.lstrip("/"))

    def until_replayed(self) -> None:
        until_replayed(self.cluster_url, self.standby)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, Standby]]:
    # Not among pytest's folders: the server's user may not enter those of root.
    with tempfile.TemporaryDirectory(prefix="corbits-memory-test-") as name:
        Path(name).chmod(0o755)
        with replicated(Path(name)) as (url, standby):
            asyncio.run(migrate(EngineConfig(database_url=create_database(url, "template"))))
            yield url, standby


@pytest.fixture
def pair(servers: tuple[str, Standby], database_names: Iterator[str]) -> Iterator[Pair]:
    cluster_url, standby = servers
    name = next(database_names)
    create_database(cluster_url, name, "template")
    made = Pair(cluster_url, database_url(cluster_url, name), standby)
    made.until_replayed()
    yield made
    standby.resume()


@pytest.fixture
async def open_node(pair: Pair) -> AsyncIterator[OpenStore]:
    """``await open_node(**config)``: a store that reads from the replica, as one process of several."""
    async with AsyncExitStack() as stack:

        async def make(
            *, embed_url: str | None = None, rerank_url: str | None = None, **config: Any
        ) -> PostgresDocumentStore:
            fields = {
                "database_url": pair.url,
                "database_read_url": pair.read_url,
                "run_worker": False,
                "db_pool_max": 4,
                **config,
            }
            store = PostgresDocumentStore(
                EngineConfig(**fields), embedder=None, reranker=None, clock=lambda: NOW
            )
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield make
