"""Clients of both colours, against a scripted server and against the reference host on Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from corbits_memory.client import Call, MemoryClient, SyncMemoryClient, policy
from tests.models.conftest import few_certificates, nobody, server
from tests.server.conftest import database, host, host_database_url

__all__ = ["database", "few_certificates", "host", "host_database_url", "nobody", "server"]

Send = Callable[[Call[Any]], Awaitable[Any]]
OpenClient = Callable[..., Send]


@pytest.fixture(params=["async", "sync"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once."""
    monkeypatch.setattr(policy, "BACKOFF", {"wait_initial": 0.0, "wait_max": 0.0, "wait_jitter": 0.0})


@pytest.fixture
async def open_client(colour: str) -> AsyncIterator[OpenClient]:
    """``send = open_client(url, token="t", **options)``: how a client of either colour sends a call."""
    async with AsyncExitStack() as stack:

        def make(url: str, *, token: str = "cmt_t", tenant: str = "acme", **options: Any) -> Send:
            if colour == "async":
                client = MemoryClient(url, tenant=tenant, token=token, trust_env=False, **options)
                stack.push_async_callback(client.aclose)
                return client.send
            blocking = SyncMemoryClient(url, tenant=tenant, token=token, trust_env=False, **options)
            stack.callback(blocking.close)
            return lambda call: asyncio.to_thread(blocking.send, call)

        yield make
