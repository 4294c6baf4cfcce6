"""A migrated database a module, and a host over it a test."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from corbits_memory.config import EngineConfig, MemoryConfig
from corbits_memory.engine.pool import Database
from corbits_memory.server.app import host_app
from corbits_memory.server.identity import TokenIdentity
from corbits_memory.server.startup import migrate, open_host_database, open_plane
from corbits_memory.server.tokens import Tokens
from tests.server.support import Host, running
from tests.support.postgres import NewDatabase


@pytest.fixture(scope="module")
def host_database_url(new_module_database: NewDatabase) -> str:
    url = new_module_database()
    asyncio.run(migrate(EngineConfig(database_url=url)))
    return url


@pytest.fixture
async def database(host_database_url: str) -> AsyncIterator[Database]:
    async with open_host_database(host_database_url) as opened:
        # Tests of one module share the database, but not each other's tokens.
        async with opened.operator() as conn:
            await conn.execute("DELETE FROM memory_host.token")
        yield opened


@pytest.fixture
async def host(host_database_url: str, database: Database) -> AsyncIterator[Host]:
    config = MemoryConfig(memory=EngineConfig(database_url=host_database_url, db_pool_max=3))
    async with open_plane(config, run_worker=False) as plane:
        tokens = Tokens(database)
        app = host_app(plane.memory, identity=TokenIdentity(tokens), database=database)
        async with running(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            yield Host(url, tokens, client)
