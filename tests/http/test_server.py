"""The same door over a real server and real sockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import uvicorn

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import identity
from tests.http.test_body import body_of, pieces

PATH = "/api/tenants/acme/memory"
JSON = {"content-type": "application/json", "authorization": "Bearer ann"}


@asynccontextmanager
async def running(app: object) -> AsyncIterator[int]:
    """The port of a server that runs the app, its lifespan included."""
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws="none")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        assert not task.done(), "the server did not start"
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


@pytest.fixture
async def served(store: FakeDocumentStore) -> AsyncIterator[int]:
    async with running(memory_app(Memory(store), identity=identity)) as port:
        yield port


@pytest.fixture
async def client(served: int) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served}{PATH}", headers=JSON) as client:
        yield client


async def test_the_app_opens_and_closes_its_memory(store: FakeDocumentStore) -> None:
    async with running(memory_app(Memory(store), identity=identity)):
        assert (store.opened, store.closed) == (1, 0)
    assert (store.opened, store.closed) == (1, 1)


async def test_add_search_list(client: httpx2.AsyncClient) -> None:
    added = await client.post("/add", json={"title": "Deploys", "text": "Fridays are frozen."})
    found = await client.post("/search", json={"query": "frozen"})
    listed = await client.get("/list")
    assert added.status_code == found.status_code == listed.status_code == 200
    assert found.json()["items"][0]["documentId"] == added.json()["documentId"]
    assert listed.json()["events"][0]["documentId"] == added.json()["documentId"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(BODY_BYTES, 200), (BODY_BYTES + 1, 413)])
async def test_the_body_limit_holds(
    client: httpx2.AsyncClient, size: int, status: int, chunked: bool
) -> None:
    body = body_of(size)
    answer = await client.post("/add", content=pieces(body) if chunked else body)
    assert answer.status_code == status
    assert answer.headers["x-request-id"]
    assert (await client.get("/list")).status_code == 200


async def test_a_refused_caller_with_a_large_body_sees_the_answer(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/add", content=body_of(BODY_BYTES + 1), headers={"authorization": "x"})
    assert answer.status_code == 401


async def test_a_declared_length_is_refused_before_the_body_comes(served: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    head = f"POST {PATH}/add HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ann\r\ncontent-length: {BODY_BYTES + 1}"
    writer.write(f"{head}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), timeout=5)
    assert answer.startswith(b"HTTP/1.1 413")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_large"
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_goes_away_leaves_no_document_and_no_error(
    served: int, store: FakeDocumentStore, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served)
    head = f"POST {PATH}/add HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ann\r\ncontent-length: 1000\r\n\r\n"
    writer.write(head.encode() + b'{"title":')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.2)
    assert store.documents == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_head_and_options(client: httpx2.AsyncClient) -> None:
    assert (await client.head("/list")).status_code == 200
    assert (await client.options("/list")).headers["allow"] == "GET, HEAD, OPTIONS"
