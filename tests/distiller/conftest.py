"""A migrated database, an open memory over it, and ways to it."""

from collections.abc import AsyncIterator

import pytest

from corbits_memory.config import EngineConfig, MemoryConfig
from corbits_memory.distiller import PlaneMemory
from corbits_memory.distiller.postgres import PostgresCursors
from corbits_memory.engine.pool import Database
from corbits_memory.plane import Memory
from corbits_memory.server.startup import open_plane
from tests.distiller.support import ANN, TENANT
from tests.engine.conftest import database_url, migrated_template, owner
from tests.models.conftest import few_certificates, nobody, server

__all__ = ["database_url", "few_certificates", "migrated_template", "nobody", "owner", "server"]


@pytest.fixture
async def memory(database_url: str) -> AsyncIterator[Memory]:
    config = MemoryConfig(memory=EngineConfig(database_url=database_url, db_pool_max=4))
    async with open_plane(config, run_worker=False) as plane:
        yield plane.memory


@pytest.fixture
def anns(memory: Memory) -> PlaneMemory:
    return PlaneMemory(memory, tenant_id=TENANT, principal_id=ANN)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, pool_max=4)
    await opened.open()
    try:
        assert opened.second_lock
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def cursors(database: Database) -> PostgresCursors:
    return PostgresCursors(database)
