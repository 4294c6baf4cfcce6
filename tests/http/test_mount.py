"""On a host's own app: FastAPI and Starlette, as the examples show, and mounted whole."""

import runpy
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import corbits_memory
from corbits_memory.http import memory_app, memory_routes, register_memory_routes
from corbits_memory.plane import Memory
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import client_of, identity
from tests.http.test_guard import error_of
from tests.http.test_server import running

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTE = {"title": "Deploys", "text": "Fridays are frozen."}
ANN = {"authorization": "Bearer ann-secret"}


@pytest.fixture(params=["mount_fastapi", "mount_starlette"])
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, store: FakeDocumentStore) -> Any:
    """The example's app, its memory over the fake store instead of a database."""
    monkeypatch.setattr(corbits_memory, "load_memory_config", lambda: None, raising=False)
    monkeypatch.setattr(corbits_memory, "create_memory", lambda config: Memory(store), raising=False)
    return runpy.run_path(str(EXAMPLES / f"{request.param}.py"))["app"]


async def test_the_examples_work_as_they_stand(example: Any, store: FakeDocumentStore) -> None:
    async with running(example) as port:
        base = f"http://127.0.0.1:{port}/api/tenants/acme/memory"
        async with httpx2.AsyncClient(base_url=base) as client:
            added = await client.post("/add", json=NOTE, headers=ANN)
            found = await client.post("/search", json={"query": "frozen"}, headers=ANN)
            stranger = await client.get("/list")
            foreign = await client.get(f"http://127.0.0.1:{port}/api/tenants/other/memory/list", headers=ANN)
    assert added.status_code == 200
    assert [item["title"] for item in found.json()["items"]] == ["Deploys"]
    assert (stranger.status_code, error_of(stranger)["code"]) == (401, "principal_required")
    assert (foreign.status_code, error_of(foreign)["code"]) == (403, "tenant_mismatch")
    assert (store.opened, store.closed) == (1, 1)


def test_the_examples_mount_the_memory_in_a_few_lines() -> None:
    for example in ("mount_fastapi.py", "mount_starlette.py"):
        text = (EXAMPLES / example).read_text("utf-8")
        statements = text[text.index("\nmemory = ") :].strip().splitlines()
        assert len(statements) <= 5


@pytest.mark.parametrize("make", [FastAPI, Starlette])
async def test_a_hosts_app_keeps_our_order_and_shape(memory: Memory, make: Any) -> None:
    app = make()
    register_memory_routes(app, memory, identity=identity)
    async with client_of(app) as client, client_of(app, token=None) as nobody:
        broken: dict[str, Any] = {"content": b"{", "headers": {"content-type": "application/json"}}
        assert (await nobody.post("/add", **broken)).status_code == 401
        answer = await client.post("/add", **broken)
        assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_input")
        refused = await client.get("/add")
        assert (refused.status_code, error_of(refused)["code"]) == (405, "method_not_allowed")
        assert (await client.post("/add", json=NOTE)).status_code == 200


async def test_the_hosts_own_routes_stay(memory: Memory) -> None:
    app = FastAPI()

    @app.get("/mine")
    async def mine() -> str:
        return "ok"

    register_memory_routes(app, memory, identity=identity)
    async with client_of(app, base="http://host.test") as client:
        assert (await client.get("/mine")).json() == "ok"
        assert set((await client.get("/openapi.json")).json()["paths"]) == {"/mine"}


async def test_identity_sees_what_the_hosts_middleware_left(memory: Memory) -> None:
    app = FastAPI()

    @app.middleware("http")
    async def login(request: Request, proceed: Any) -> Any:
        request.state.caller = identity(request)
        return await proceed(request)

    register_memory_routes(app, memory, identity=lambda request: request.state.caller)
    async with client_of(app) as client:
        assert (await client.post("/add", json=NOTE)).status_code == 200


async def test_an_identity_that_reads_the_body_leaves_it_for_us(memory: Memory) -> None:
    async def signed(request: Request) -> Any:
        assert b"Deploys" in await request.body()
        return identity(request)

    app = Starlette(routes=memory_routes(memory, identity=signed))
    async with client_of(app) as client:
        assert (await client.post("/add", json=NOTE)).status_code == 200


async def test_the_whole_app_can_be_mounted_while_the_host_opens_the_memory(store: FakeDocumentStore) -> None:
    memory = Memory(store)

    async def home(request: Request) -> PlainTextResponse:
        return PlainTextResponse("home")

    host = Starlette(
        routes=[Route("/", home), Mount("/sub", memory_app(memory, identity=identity))],
        lifespan=memory.lifespan,
    )
    async with running(host) as port:
        base = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(headers={"authorization": "Bearer ann"}) as client:
            assert (await client.get(f"{base}/")).text == "home"
            assert (await client.get(f"{base}/sub/api/tenants/acme/memory/list")).status_code == 200
            assert (await client.get(f"{base}/sub/api/tenants/other/memory/list")).status_code == 403
            assert (await client.get(f"{base}/sub/openapi.json")).status_code == 200
            assert error_of(await client.get(f"{base}/sub/nope"))["code"] == "not_found"


async def test_a_mounted_app_whose_memory_nobody_opened_says_so(store: FakeDocumentStore) -> None:
    host = Starlette(routes=[Mount("/sub", memory_app(Memory(store), identity=identity))])
    async with client_of(host, base="http://host.test/sub/api/tenants/acme/memory") as client:
        answer = await client.get("/list")
    assert answer.status_code == 503
    assert "memory.lifespan" in error_of(answer)["message"]
