"""The built-in stores, without an exception."""

from collections.abc import Awaitable, Callable

import pytest

from corbits_memory.access.postgres import PostgresGrantStore
from corbits_memory.config import EngineConfig
from corbits_memory.engine.pool import Database
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.testing.conformance import (
    AbilitiesConformance,
    DocumentStoreConformance,
    GrantStoreConformance,
    VisibilityConformance,
)
from tests.support.postgres import NewDatabase


@pytest.fixture(scope="module")
def url(new_module_database: NewDatabase, migrated_template: str) -> str:
    """One database for all: each test has a tenant of its own."""
    return new_module_database(migrated_template)


class Postgres:
    @pytest.fixture
    def factory(self, url: str) -> Callable[[], PostgresDocumentStore]:
        config = EngineConfig(database_url=url, run_worker=False, db_pool_max=4)
        return lambda: PostgresDocumentStore(config, embedder=None, reranker=None)


class TestDocuments(Postgres, DocumentStoreConformance):
    pass


class TestVisibility(Postgres, VisibilityConformance):
    pass


class TestAbilities(Postgres, AbilitiesConformance):
    pass


class ClosingGrantStore(PostgresGrantStore):
    """Over a pool of its own, as far as a test goes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.close = database.close


class TestGrantStore(GrantStoreConformance):
    @pytest.fixture
    def factory(self, url: str) -> Callable[[], Awaitable[PostgresGrantStore]]:
        async def make() -> PostgresGrantStore:
            database = Database(url, pool_max=2)
            await database.open()
            return ClosingGrantStore(database)

        return make
