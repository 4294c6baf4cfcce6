"""Stores over the reference host on Postgres: Ann's, Bob's, and of another tenant."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from corbits_memory.adapters.langgraph import CorbitsMemoryStore
from corbits_memory.client import MemoryClient, SyncMemoryClient
from corbits_memory.ports import Caller
from tests.models.conftest import few_certificates
from tests.server.conftest import database, host, host_database_url
from tests.server.support import Host

__all__ = ["database", "few_certificates", "host", "host_database_url"]

OpenStore = Callable[..., Awaitable[CorbitsMemoryStore]]


@pytest.fixture(params=["async", "sync"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def open_store(host: Host, colour: str, request: pytest.FixtureRequest) -> AsyncIterator[OpenStore]:
    """``await open_store(principal="ann", tenant=…)``; each test has a tenant of its own."""
    async with AsyncExitStack() as stack:

        async def make(
            principal: str = "ann", *, tenant: str | None = None, **options: object
        ) -> CorbitsMemoryStore:
            tenant = tenant or f"t{abs(hash(request.node.nodeid))}"
            headers = await host.token(Caller(tenant, principal))
            token = headers["authorization"].removeprefix("Bearer ")
            if colour == "async":
                client = await stack.enter_async_context(
                    MemoryClient(host.url, tenant=tenant, token=token, trust_env=False)
                )
                return CorbitsMemoryStore(client, **options)  # type: ignore[arg-type]
            blocking = stack.enter_context(
                SyncMemoryClient(host.url, tenant=tenant, token=token, trust_env=False)
            )
            return CorbitsMemoryStore(blocking, **options)  # type: ignore[arg-type]

        yield make


@pytest.fixture
async def store(open_store: OpenStore) -> CorbitsMemoryStore:
    return await open_store()
