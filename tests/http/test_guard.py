"""401 before 403 before 413 before 400, one error shape, an id on every answer."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.exceptions import HTTPException

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.errors import DatabaseError, NotSupportedError, UnavailableError
from corbits_memory.http import memory_app
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.testing import FakeDocumentStore
from tests.http.conftest import BASE, client_of, identity

ROUTES = [
    ("POST", "/add"),
    ("POST", "/add/batch"),
    ("POST", "/search"),
    ("GET", "/list"),
    ("GET", "/capabilities"),
]
TOO_LARGE = {"content-length": str(BODY_BYTES + 1), "content-type": "application/json"}


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    """The error, after checking the shape that every error has."""
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) <= {"code", "message", "details"}
    assert error["code"]
    assert error["message"]
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    return error


async def ask(memory: Memory, who: Any, method: str = "GET", path: str = "/list") -> httpx2.Response:
    async with client_of(memory_app(memory, identity=who)) as client:
        return await client.request(method, path)


# --- who ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    ("headers", "code"), [({}, "principal_required"), ({"authorization": "Bearer nobody"}, "unauthorized")]
)
async def test_an_unknown_caller_is_401_whatever_it_sends(
    memory: Memory, method: str, path: str, headers: dict[str, str], code: str
) -> None:
    async with client_of(memory_app(memory, identity=identity), token=None) as client:
        answer = await client.request(method, path, headers={**TOO_LARGE, **headers})
    assert answer.status_code == 401
    assert error_of(answer)["code"] == code
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_identity_may_be_async(memory: Memory) -> None:
    async def who(request: object) -> Caller:
        await asyncio.sleep(0)
        return Caller("acme", "ann")

    assert (await ask(memory, who)).status_code == 200


@pytest.mark.parametrize(
    "found",
    [
        {"tenantId": "acme", "principalId": "ann"},
        ("acme", "ann"),
        "ann",
        False,
        Caller("", "ann"),
        Caller("acme", "\t\n"),
        Caller(" ", "ann"),
        Caller("acme", 5),  # type: ignore[arg-type]
        Caller("acme", "ann", "memory:search"),  # type: ignore[arg-type]
    ],
)
async def test_a_malformed_identity_is_500_and_seats_nobody(memory: Memory, found: object) -> None:
    answer = await ask(memory, lambda request: found)
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "invalid_resolved_caller"


async def test_a_failing_identity_is_500_without_its_text(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = "secret dsn"

    def who(request: object) -> Caller:
        raise RuntimeError(dsn)

    with caplog.at_level(logging.ERROR, "corbits_memory"):
        answer = await ask(memory, who)
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "internal"
    assert "secret" not in answer.text
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    assert answer.headers["x-request-id"] in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (HTTPException(401, "secret"), 401, "unauthorized"),
        (HTTPException(429, "secret", headers={"Retry-After": "7", "X-Secret": "s"}), 429, "rate_limited"),
        (HTTPException(418, "secret"), 500, "internal"),
        (UnavailableError("logins are down"), 503, "unavailable"),
    ],
)
async def test_an_identity_may_refuse_in_its_own_way(
    memory: Memory, error: Exception, status: int, code: str
) -> None:
    def who(request: object) -> Caller:
        raise error

    answer = await ask(memory, who)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert "secret" not in answer.text
    assert "x-secret" not in answer.headers
    assert answer.headers.get("retry-after") == ("7" if status == 429 else None)


@pytest.mark.parametrize("tenant", ["a/b", "a/memory/list", "memory", "ü?#%2F"])
async def test_a_tenant_with_a_slash_in_its_name_is_reached(memory: Memory, tenant: str) -> None:
    app = memory_app(memory, identity=lambda request: Caller(tenant, "ann"))
    base = f"http://memory.test/api/tenants/{quote(tenant, safe='')}/memory"
    async with client_of(app, base=base) as client:
        for method, path in ROUTES:
            answer = await client.request(method, path, json={} if method == "POST" else None)
            assert answer.status_code == (400 if method == "POST" else 200), path
        foreign = await client.get("http://memory.test/api/tenants/a/memory/memory/list")
        assert error_of(foreign)["code"] == "tenant_mismatch"
        assert (await client.get("http://memory.test/api/tenants/a/b/list")).status_code == 404


# --- may it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "method", "path"),
    [
        ("reader", "POST", "/add"),
        ("reader", "POST", "/add/batch"),
        ("writer", "POST", "/search"),
        ("writer", "GET", "/list"),
        ("writer", "GET", "/capabilities"),
    ],
)
async def test_a_missing_capability_is_403_before_the_body_is_looked_at(
    memory: Memory, store: FakeDocumentStore, token: str, method: str, path: str
) -> None:
    async with client_of(memory_app(memory, identity=identity), token=token) as client:
        for content, headers in ((b"{", {"content-type": "application/json"}), (b"", TOO_LARGE)):
            answer = await client.request(method, path, content=content, headers=headers)
            assert answer.status_code == 403
            assert error_of(answer) == {
                "code": "forbidden",
                "message": "You do not have permission to perform this action.",
            }
    assert store.documents == []


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_another_tenants_path_is_403(memory: Memory, method: str, path: str) -> None:
    async with client_of(memory_app(memory, identity=identity), token="other") as client:
        answer = await client.request(method, path, headers=TOO_LARGE)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "tenant_mismatch")


async def test_a_loose_tenant_path_acts_on_the_callers_tenant(
    memory: Memory, store: FakeDocumentStore
) -> None:
    app = memory_app(memory, identity=identity, strict_tenant_path=False)
    async with client_of(app, token="other") as client:
        answer = await client.post("/add", json={"title": "a", "text": "b"})
    assert answer.status_code == 200
    assert [document.tenant_id for document in store.documents] == ["acme-corp"]


async def test_a_prefix_may_name_no_tenant(memory: Memory) -> None:
    app = memory_app(memory, identity=identity, prefix="/memory/")
    async with client_of(app, base="http://memory.test/memory") as client:
        assert (await client.get("/list")).status_code == 200
        document = (await client.get("http://memory.test/openapi.json")).json()
    assert "/memory/add" in document["paths"]
    assert document["paths"]["/memory/search"]["post"]["parameters"] == []


async def test_tenant_names_are_decoded_before_they_are_compared(memory: Memory) -> None:
    def who(request: object) -> Caller:
        return Caller("ä b%", "ann")

    async with client_of(memory_app(memory, identity=who), base="http://memory.test/api/tenants") as client:
        assert (await client.get("/%C3%A4%20b%25/memory/list")).status_code == 200
        assert (await client.get("/%C3%A4%20b%2525/memory/list")).status_code == 403


async def test_identity_in_a_body_is_ignored(http: httpx2.AsyncClient, store: FakeDocumentStore) -> None:
    body = {"title": "a", "text": "b", "tenantId": "evil", "tenant_id": "evil", "principalId": "eve"}
    answer = await http.post("/add", json=body)
    assert answer.status_code == 200
    assert [(kept.tenant_id, kept.owner) for kept in store.documents] == [("acme", "ann")]


# --- one shape ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_other_methods_are_405_and_name_the_allowed_ones(
    http: httpx2.AsyncClient, method: str, path: str
) -> None:
    allowed = {"GET", "HEAD", "OPTIONS"} if method == "GET" else {"POST", "OPTIONS"}
    for other in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY"} - allowed:
        answer = await http.request(other, path)
        assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == allowed
    answer = await http.options(path)
    assert answer.status_code == 204
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert answer.headers["x-request-id"]


async def test_head_has_the_head_of_get(http: httpx2.AsyncClient) -> None:
    got, head = await http.get("/list"), await http.head("/list")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    assert head.headers["x-request-id"]
    refused = await http.head("/list?limit=0")
    assert (refused.status_code, refused.content) == (400, b"")


@pytest.mark.parametrize("path", ["/nope", "/add/", "/list/5", "/../../../x"])
async def test_unknown_paths_are_404_in_our_shape(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")


@pytest.mark.parametrize("given", ["abc-123", "A" * 128, "a.b_c:d/e+f=="])
async def test_a_sane_request_id_comes_back(http: httpx2.AsyncClient, given: str) -> None:
    for path in ("/list", "/nope", "/list?limit=0"):
        assert (await http.get(path, headers={"x-request-id": given})).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "A" * 129, "<script>", "ä".encode()])
async def test_another_request_id_is_replaced(http: httpx2.AsyncClient, given: str | bytes) -> None:
    answer = await http.get(
        "/list", headers=[(b"x-request-id", given if isinstance(given, bytes) else given.encode())]
    )
    assert len(answer.headers["x-request-id"]) == 32


async def test_answers_are_not_cached(http: httpx2.AsyncClient) -> None:
    for path in ("/list", "/list?limit=0"):
        assert (await http.get(path)).headers["cache-control"] == "no-store"


# --- what goes wrong below ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DatabaseError(), 502, "database_failed"),
        (NotSupportedError(), 501, "not_supported"),
        (UnavailableError(), 503, "unavailable"),
        (ValueError("secret text"), 500, "internal"),
    ],
)
async def test_a_failure_of_the_store_has_its_status(
    error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Store(FakeDocumentStore):
        async def list(self, **call: Any) -> Any:
            raise error

    async with Memory(Store()) as memory:
        answer = await ask(memory, identity_of_ann)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert "secret" not in answer.text
    assert "secret text" not in caplog.text


def identity_of_ann(request: object) -> Caller:
    return Caller("acme", "ann")


async def test_an_errors_details_are_told_whatever_a_store_puts_there() -> None:
    class Store(FakeDocumentStore):
        async def list(self, **call: Any) -> Any:
            raise DatabaseError(details={"at": datetime(2026, 1, 1, tzinfo=UTC), "ids": ("a",), "odd": 1j})

    async with Memory(Store()) as memory:
        answer = await ask(memory, identity_of_ann)
    assert answer.status_code == 502
    assert error_of(answer)["details"] == {"at": "2026-01-01T00:00:00Z", "ids": ["a"], "odd": "1j"}


async def test_before_opening_and_after_closing_it_is_503() -> None:
    memory = Memory(FakeDocumentStore())
    assert (await ask(memory, identity_of_ann)).status_code == 503
    await memory.open()
    assert (await ask(memory, identity_of_ann)).status_code == 200
    await memory.close()
    answer = await ask(memory, identity_of_ann)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")


def test_the_base_is_the_documented_one() -> None:
    assert BASE.endswith("/api/tenants/acme/memory")
