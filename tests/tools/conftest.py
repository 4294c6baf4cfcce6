"""Tools over a scripted server, and over a memory in this process."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from corbits_memory.client import MemoryClient
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.tools import MemoryTools
from tests.http.conftest import identity
from tests.http.feeding import FeedingStore
from tests.models.conftest import few_certificates, nobody, server

__all__ = ["few_certificates", "nobody", "server"]


@pytest.fixture
def store() -> FeedingStore:
    return FeedingStore()


@pytest.fixture
async def tools(store: FeedingStore) -> AsyncIterator[MemoryTools]:
    """Ann's, over real routes and a store in memory."""
    async with Memory(store) as memory:
        transport = httpx2.ASGITransport(app=memory_app(memory, identity=identity))
        async with MemoryClient(
            "http://memory.test", tenant="acme", token="ann", transport=transport
        ) as client:
            yield MemoryTools(client)
