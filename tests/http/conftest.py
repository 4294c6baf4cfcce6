"""A memory over a fake store behind its own app, and clients for it."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.requests import Request

from corbits_memory.core.enums import Capability
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.testing import FakeDocumentStore

BASE = "http://memory.test/api/tenants/acme/memory"
CALLERS = {
    "Bearer ann": Caller("acme", "ann", frozenset(Capability)),
    "Bearer bob": Caller("acme", "bob", frozenset({Capability.ADD, Capability.SEARCH})),
    "Bearer reader": Caller("acme", "ann", frozenset({Capability.SEARCH})),
    "Bearer writer": Caller("acme", "ann", frozenset({Capability.ADD})),
    "Bearer other": Caller("acme-corp", "ann", frozenset(Capability)),
}


def identity(request: Request) -> Caller | None:
    return CALLERS.get(request.headers.get("authorization", ""))


def client_of(app: object, *, token: str | None = "ann", base: str = BASE) -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    transport = httpx2.ASGITransport(app=app)  # type: ignore[arg-type]
    return httpx2.AsyncClient(transport=transport, base_url=base, headers=headers)


@pytest.fixture
def store() -> FakeDocumentStore:
    return FakeDocumentStore()


@pytest.fixture
async def memory(store: FakeDocumentStore) -> AsyncIterator[Memory]:
    async with Memory(store) as memory:
        yield memory


@pytest.fixture
async def http(memory: Memory) -> AsyncIterator[httpx2.AsyncClient]:
    """Ann's client; she may do everything."""
    async with client_of(memory_app(memory, identity=identity)) as client:
        yield client
