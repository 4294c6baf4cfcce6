"""The README's five lines, on a real database: a host's own app, identity and lifespan."""

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
BASE = "http://host.test/api/tenants/acme/memory"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["mount_fastapi", "mount_starlette"])
async def client(
    request: pytest.FixtureRequest, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx2.AsyncClient]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("EMBED_PROVIDER", "local")
    app: Any = load(request.param).app
    headers = {"authorization": "Bearer ann-secret"}
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE, headers=headers) as client,
    ):
        yield client


async def test_add_and_search_with_the_hosts_identity(client: httpx2.AsyncClient) -> None:
    body = {"title": "Deploys", "text": "We never deploy on Fridays.", "external_ref": "n1"}
    added = (await client.post("/add", json=body)).json()
    assert added["status"] == "created"
    found = (await client.post("/search", json={"query": "An welchen Tagen wird nicht ausgerollt?"})).json()
    assert found["items"][0]["externalRef"] == "n1"
    assert found["items"][0]["attribution"]["owner"] == "ann"
    assert found["degraded"] == ["rerank_unavailable"]
    again = (await client.post("/add", json=body)).json()
    assert (again["status"], again["versionId"]) == ("unchanged", added["versionId"])


async def test_nobody_else_gets_in(client: httpx2.AsyncClient) -> None:
    assert (
        await client.post("/search", json={"query": "x"}, headers={"authorization": ""})
    ).status_code == 401
    other = str(client.base_url).replace("/acme/", "/acme-corp/")
    assert (await client.post(f"{other}search", json={"query": "x"})).status_code == 403
