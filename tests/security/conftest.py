"""One host under attack a test module."""

import asyncio
from collections.abc import Iterator

import pytest

from corbits_memory.config import EngineConfig
from corbits_memory.server.startup import migrate
from tests.security.world import World, world_over
from tests.support.postgres import NewDatabase, create_database, drop_database


@pytest.fixture(scope="session")
def host_template(pg_cluster: str, database_names: Iterator[str]) -> Iterator[str]:
    """The name of a database with the memory's and the host's tables, to copy."""
    name = f"{next(database_names)}_host_template"
    asyncio.run(migrate(EngineConfig(database_url=create_database(pg_cluster, name))))
    yield name
    drop_database(pg_cluster, name)


@pytest.fixture(scope="module")
def world(new_module_database: NewDatabase, host_template: str) -> Iterator[World]:
    with world_over(new_module_database(host_template)) as found:
        yield found
