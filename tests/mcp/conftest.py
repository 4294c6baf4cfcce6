"""The official client, over HTTP to the reference host and over stdio to real processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from corbits_memory.ports import Caller
from mcp import Client
from tests.models.conftest import few_certificates
from tests.server.conftest import database, host, host_database_url
from tests.server.support import Host

__all__ = ["database", "few_certificates", "host", "host_database_url"]


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """How client and server settle on a version of the protocol: today's, and the one before."""
    return str(request.param)


@asynccontextmanager
async def connected(
    host: Host, caller: Caller | None, *, mode: str = "auto", headers: dict[str, str] | None = None
) -> AsyncIterator[Client]:
    """A client that sends the caller's token."""
    sent = await host.token(caller) if caller is not None else {}
    async with httpx2.AsyncClient(headers=sent | (headers or {}), trust_env=False, timeout=30) as http:
        transport = streamable_http_client(f"{host.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client
