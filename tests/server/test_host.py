"""The host over a real socket: who may do what, health, metrics, docs, headers."""

import gc
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from corbits_memory.config import EngineConfig, MemoryConfig
from corbits_memory.core.enums import Capability
from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.engine.pool import Database
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.server.app import host_app
from corbits_memory.server.identity import TokenIdentity
from corbits_memory.server.startup import open_plane
from corbits_memory.server.tokens import Tokens
from corbits_memory.testing import FakeDocumentStore
from tests.server.support import Host, bearer, route, running

ANN = Caller("acme", "ann")
DEPLOYS = {"title": "Deploys", "text": "Nobody deploys on a Friday.", "external_ref": "deploys"}


async def test_what_is_added_is_found(host: Host) -> None:
    headers = await host.token(ANN)
    added = await host.client.post(route("acme", "add"), json=DEPLOYS, headers=headers)
    assert (added.status_code, added.json()["status"]) == (200, "created")
    found = await host.client.post(route("acme", "search"), json={"query": "friday"}, headers=headers)
    assert found.json()["items"][0]["externalRef"] == "deploys"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "principal_required"),
        (bearer("cmt_nobody"), "unauthorized"),
        ({"authorization": "Bearer"}, "unauthorized"),
        ({"authorization": "Basic YTpi"}, "unauthorized"),
        (bearer("x" * 2_000), "unauthorized"),
    ],
)
async def test_without_a_known_token_it_is_401(host: Host, headers: dict[str, str], code: str) -> None:
    answer = await host.client.post(route("acme", "search"), json={"query": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, code)
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_two_authorization_headers_are_nobody(host: Host) -> None:
    headers = list((await host.token(ANN)).items()) + list(bearer("cmt_other").items())
    answer = await host.client.get(route("acme", "list"), headers=headers)
    assert answer.status_code == 401


async def test_a_path_of_another_tenant_is_403_whatever_the_body_says(host: Host) -> None:
    headers = await host.token(ANN)
    body = {**DEPLOYS, "tenant_id": "acme-corp", "principal_id": "bob"}
    other = await host.client.post(route("acme-corp", "add"), json=body, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (403, "tenant_mismatch")
    own = await host.client.post(route("acme", "add"), json={**body, "external_ref": "mine"}, headers=headers)
    assert own.status_code == 200
    listed = await host.client.get(route("acme", "list"), headers=headers)
    assert {event["owner"] for event in listed.json()["events"]} == {"ann"}


async def test_a_token_may_only_do_what_it_was_given(host: Host) -> None:
    headers = await host.token(Caller("acme", "ann", frozenset({Capability.SEARCH})))
    assert (await host.client.get(route("acme", "list"), headers=headers)).status_code == 200
    refused = await host.client.post(route("acme", "add"), json=DEPLOYS, headers=headers)
    assert refused.status_code == 403


async def test_a_revoked_token_is_refused_on_the_next_request(host: Host) -> None:
    made = await host.tokens.create(tenant_id="acme", principal_id="ann", capabilities=set(Capability))
    headers = bearer(made.secret)
    assert (await host.client.get(route("acme", "list"), headers=headers)).status_code == 200
    await host.tokens.revoke(made.token.id)
    assert (await host.client.get(route("acme", "list"), headers=headers)).status_code == 401


async def test_a_body_above_the_limit_is_413_declared_or_not(host: Host) -> None:
    headers = {**await host.token(ANN), "content-type": "application/json"}
    declared = await host.client.post(route("acme", "add"), content=b" " * (BODY_BYTES + 1), headers=headers)
    assert (declared.status_code, declared.json()["error"]["code"]) == (413, "too_large")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    chunked = await host.client.post(route("acme", "add"), content=pieces(), headers=headers)
    assert chunked.status_code == 413
    assert (await host.client.get("/healthz")).status_code == 200


async def test_health_and_readiness_need_no_token(host: Host) -> None:
    alive, ready = await host.client.get("/healthz"), await host.client.get("/readyz")
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "rowLevelSecurity": True})


async def test_readiness_says_when_the_second_lock_is_off(host: Host, database: Database) -> None:
    database.second_lock = False
    told = (await host.client.get("/readyz")).json()
    assert told["rowLevelSecurity"] is False
    assert "row-level security is off" in told["warnings"][0]


async def test_readiness_is_503_when_the_database_is_away_but_the_process_lives(
    host: Host, database: Database
) -> None:
    await database.close()
    ready = await host.client.get("/readyz")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "unavailable")
    assert (await host.client.get("/healthz")).status_code == 200
    assert (await host.client.get("/metrics")).status_code == 200


async def test_metrics_count_by_route_and_name_no_tenant(host: Host) -> None:
    headers = await host.token(Caller("acme-secret-tenant", "ann"))
    await host.client.get(route("acme-secret-tenant", "list") + "?kinds=secretkind", headers=headers)
    await host.client.get("/no/such/page")
    text = (await host.client.get("/metrics")).text
    assert re.search(
        r'requests_total\{method="GET",route="[^"]*\{tenant_id\}/memory/list",status="200"\} 1', text
    )
    assert 'route="unmatched",status="404"' in text
    assert "corbits_memory_http_request_seconds_bucket" in text
    assert re.search(r"^corbits_memory_pending_vectors \d", text, re.MULTILINE)
    assert "secret" not in text


async def test_pending_vectors_of_all_tenants_are_counted(host: Host, database: Database) -> None:
    async with database.operator() as conn:
        await conn.execute("DELETE FROM memory.embed_queue")
    for tenant in ("one", "two"):
        headers = await host.token(Caller(tenant, "ann"))
        await host.client.post(route(tenant, "add"), json=DEPLOYS, headers=headers)
    # This host has no model, so that nobody waits for one.
    assert "corbits_memory_pending_vectors 0.0" in (await host.client.get("/metrics")).text
    with_model = FakeDocumentStore()
    assert with_model.capabilities.embeddings_configured
    async with Memory(with_model) as memory:
        app = host_app(memory, identity=TokenIdentity(host.tokens), database=database)
        async with running(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            text = (await client.get("/metrics")).text
    assert "corbits_memory_pending_vectors 2.0" in text


async def test_the_docs_tell_every_route_and_load_nothing_from_elsewhere(host: Host) -> None:
    document = (await host.client.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    page = await host.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in document["paths"]:
        assert path in page.text
    assert "<script" not in page.text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page.text)
    home = await host.client.get("/")
    assert (home.status_code, home.headers["location"]) == (307, "/docs")


@pytest.mark.parametrize("path", ["/docs", "/healthz", "/no/such/page", "/api/tenants/acme/memory/list"])
async def test_every_answer_is_safe_for_browsers_and_has_a_request_id(host: Host, path: str) -> None:
    answer = await host.client.get(path, headers={"origin": "https://evil.example"})
    headers = answer.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-request-id"]
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


async def test_an_unknown_page_has_the_one_error_shape(host: Host) -> None:
    answer = await host.client.get("/no/such/page")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


async def test_any_store_can_be_hosted(database: Database) -> None:
    tokens = Tokens(database)
    made = await tokens.create(tenant_id="acme", principal_id="ann", capabilities=set(Capability))
    async with Memory(FakeDocumentStore()) as memory:
        app = host_app(memory, identity=TokenIdentity(tokens), database=database)
        async with running(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            answer: Any = await client.post(route("acme", "add"), json=DEPLOYS, headers=bearer(made.secret))
    assert answer.status_code == 200


async def test_what_stands_at_the_start_is_set_aside_from_the_collector_while_open(
    host_database_url: str,
) -> None:
    before = gc.get_freeze_count()
    async with open_plane(
        MemoryConfig(memory=EngineConfig(database_url=host_database_url)), run_worker=False
    ):
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
