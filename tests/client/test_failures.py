"""What can go wrong on the way, and what a caller is told: the same of both clients."""

import time
from typing import Any

import pytest

from corbits_memory import errors
from corbits_memory.client import (
    AnswerTimeoutError,
    AnswerTooLargeError,
    Call,
    InvalidAnswerError,
    RedirectedError,
    ServerError,
    UnreachableError,
    policy,
    routes,
)
from corbits_memory.errors import ConfigError, InvalidInputError, MemoryError
from tests.client.conftest import OpenClient
from tests.models.conftest import Answer, ModelServer, Request

LISTED = Answer({"events": [], "nextCursor": None})
ADDED = Answer({"documentId": "d", "versionId": "v", "version": 1, "status": "created", "chunks": 1})


def told(status: int, code: str, message: str = "Because.", **headers: str) -> Answer:
    body = {"error": {"code": code, "message": message, "details": [{"field": "a", "problem": "b"}]}}
    return Answer(body, status=status, headers={"x-request-id": "r1", **headers})


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_input", errors.InvalidInputError),
        (400, "invalid_cursor", errors.InvalidCursorError),
        (401, "unauthorized", errors.UnauthorizedError),
        (401, "principal_required", errors.PrincipalRequiredError),
        (403, "forbidden", errors.ForbiddenError),
        (403, "tenant_mismatch", errors.TenantMismatchError),
        (404, "not_found", errors.NotFoundError),
        (409, "external_ref_in_use", errors.ExternalRefInUseError),
        (409, "durable_document", errors.DurableDocumentError),
        (409, "idempotency_key_reused", errors.IdempotencyKeyReusedError),
        (409, "of_a_newer_release", errors.ConflictError),
        (413, "too_large", errors.TooLargeError),
        (429, "rate_limited", errors.TooManyRequestsError),
        (500, "internal", errors.MemoryError),
        (501, "not_supported", errors.NotSupportedError),
        (502, "database_failed", errors.DatabaseError),
        (502, "embed_http", errors.EmbedHttpError),
        (503, "unavailable", errors.UnavailableError),
        (418, "teapot", errors.MemoryError),
        (403, "not_found", errors.ForbiddenError),
        (599, "odd", ServerError),
    ],
)
async def test_a_refusal_is_raised_in_the_class_that_it_has_on_the_server(
    open_client: OpenClient, server: ModelServer, status: int, code: str, kind: type[MemoryError]
) -> None:
    server.script(told(status, code))
    with pytest.raises(MemoryError) as raised:
        await open_client(server.url, attempts=1)(routes.list_documents())
    error = raised.value
    assert type(error) is kind
    assert (error.code, error.message, error.http_status, error.request_id) == (
        code,
        "Because.",
        status,
        "r1",
    )
    assert error.details == [{"field": "a", "problem": "b"}]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(raw=b"<html>It works!</html>", status=502),
        Answer(raw=b"", status=404),
        Answer({"error": "a text"}, status=403),
        Answer([1], status=401),
    ],
)
async def test_a_refusal_of_somebody_else_has_a_class_too(
    open_client: OpenClient, server: ModelServer, answer: Answer
) -> None:
    server.script(answer)
    with pytest.raises(MemoryError, match=str(answer.status)) as raised:
        await open_client(server.url, attempts=1)(routes.list_documents())
    assert raised.value.status == answer.status


@pytest.mark.parametrize(
    "raw", [b"", b"not json", b"[]", b"null", b'{"events": 1}', b'{"items": []}', b"\xff\xfe", b"[" * 100_000]
)
async def test_a_success_that_is_no_answer_of_ours_is_told_as_that(
    open_client: OpenClient, server: ModelServer, raw: bytes
) -> None:
    server.script(Answer(raw=raw))
    with pytest.raises(InvalidAnswerError, match=r"127\.0\.0\.1"):
        await open_client(server.url)(routes.list_documents())
    assert len(server.requests) == 1


async def test_nobody_there_is_told_of_at_once(open_client: OpenClient, nobody: str) -> None:
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="corbits-memory serve"):
        await open_client(nobody)(routes.list_documents())
    assert time.monotonic() - began < 2


async def test_a_silent_server_is_waited_for_no_longer_than_was_said(
    open_client: OpenClient, server: ModelServer
) -> None:
    server.script(Answer(hang=True))
    with pytest.raises(AnswerTimeoutError, match="in time"):
        await open_client(server.url, timeout=0.2, attempts=1)(routes.list_documents())


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(
    "broken", [told(429, "x"), told(502, "x"), told(503, "x"), told(504, "x"), Answer(hang=True)]
)
async def test_what_may_pass_is_tried_again(
    open_client: OpenClient, server: ModelServer, broken: Answer
) -> None:
    server.script(LISTED, broken, broken, LISTED)
    send = open_client(server.url, timeout=0.2)
    await send(routes.list_documents())
    await send(routes.list_documents())
    assert len(server.requests) == 4


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 500, 501])
async def test_what_will_not_pass_is_not_tried_again(
    open_client: OpenClient, server: ModelServer, status: int
) -> None:
    server.script(told(status, "x"))
    with pytest.raises(MemoryError):
        await open_client(server.url)(routes.list_documents())
    assert len(server.requests) == 1


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(("attempts", "sent"), [(0, 1), (1, 1), (3, 3), (policy.ATTEMPTS, policy.ATTEMPTS)])
async def test_attempts_are_counted(
    open_client: OpenClient, server: ModelServer, attempts: int, sent: int
) -> None:
    server.script(told(503, "unavailable"))
    with pytest.raises(errors.UnavailableError):
        await open_client(server.url, attempts=attempts)(routes.list_documents())
    assert len(server.requests) == sent


@pytest.mark.usefixtures("no_waiting")
async def test_retry_after_is_waited_for(open_client: OpenClient, server: ModelServer) -> None:
    server.script(told(429, "rate_limited", **{"retry-after": "0.4"}), LISTED)
    began = time.monotonic()
    await open_client(server.url)(routes.list_documents())
    assert time.monotonic() - began >= 0.4


@pytest.mark.usefixtures("no_waiting")
async def test_a_longer_retry_after_is_told_instead(open_client: OpenClient, server: ModelServer) -> None:
    wait = policy.RETRYING_SECONDS + 1
    server.script(told(429, "rate_limited", **{"retry-after": str(wait)}))
    with pytest.raises(errors.TooManyRequestsError) as raised:
        await open_client(server.url)(routes.list_documents())
    assert raised.value.retry_after == wait
    assert len(server.requests) == 1


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(
    "call",
    [routes.purge("d"), routes.subscribe("https://x"), routes.unsubscribe("s"), routes.replay("s")],
    ids=lambda call: call.path,
)
async def test_what_may_not_be_sent_twice_is_not(
    open_client: OpenClient, server: ModelServer, call: Call[Any]
) -> None:
    server.script(told(503, "unavailable"))
    with pytest.raises(errors.UnavailableError):
        await open_client(server.url)(call)
    assert len(server.requests) == 1


@pytest.mark.usefixtures("no_waiting")
async def test_each_add_has_a_key_that_its_retries_share(
    open_client: OpenClient, server: ModelServer
) -> None:
    server.script(told(503, "unavailable"), ADDED)
    send = open_client(server.url)
    await send(routes.add(title="t", text="x"))
    await send(routes.add(title="t", text="x"))
    await send(routes.add(title="t", text="x", idempotency_key="mine"))
    first, again, other, own = [request.headers["idempotency-key"] for request in server.requests]
    assert first == again != other
    assert own == "mine"


@pytest.mark.usefixtures("no_waiting")
async def test_a_store_that_keeps_no_keys_is_sent_none_and_nothing_twice(
    open_client: OpenClient, server: ModelServer
) -> None:
    def answer(request: Request) -> Answer:
        keyed = "idempotency-key" in request.headers
        return told(501, "idempotency_not_supported") if keyed else told(503, "unavailable")

    server.script(answer)
    send = open_client(server.url)
    with pytest.raises(errors.UnavailableError):
        await send(routes.add(title="t", text="x"))
    assert ["idempotency-key" in request.headers for request in server.requests] == [True, False]
    with pytest.raises(errors.IdempotencyNotSupportedError):
        await send(routes.add(title="t", text="x", idempotency_key="mine"))


# --- redirects ---------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Any:
    with ModelServer() as other:
        other.script(LISTED)
        yield other


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "call", [routes.list_documents(), routes.add(title="t", text="x")], ids=lambda c: c.method
)
async def test_the_token_goes_to_no_other_server(
    open_client: OpenClient, server: ModelServer, elsewhere: ModelServer, status: int, call: Call[Any]
) -> None:
    server.script(Answer(status=status, headers={"location": f"{elsewhere.url}/api"}))
    with pytest.raises(RedirectedError, match=f"{elsewhere.url}.*not sent"):
        await open_client(server.url)(call)
    assert elsewhere.requests == []


async def test_a_redirect_on_the_same_server_is_followed(
    open_client: OpenClient, server: ModelServer
) -> None:
    server.script(Answer(status=302, headers={"location": "/new/list?limit=7"}), LISTED)
    await open_client(server.url)(routes.list_documents(limit=7))
    assert server.requests[1].path == "/new/list?limit=7"
    assert server.requests[1].headers["authorization"] == "Bearer cmt_t"


async def test_a_redirected_post_stays_one_or_is_refused(
    open_client: OpenClient, server: ModelServer
) -> None:
    send = open_client(server.url)
    server.script(Answer(status=308, headers={"location": "/new/add"}), ADDED)
    await send(routes.add(title="t", text="x"))
    assert server.requests[1].body == {"title": "t", "text": "x"}
    server.requests.clear()
    server.script(Answer(status=301, headers={"location": "/new/add"}))
    with pytest.raises(RedirectedError, match="/new/add"):
        await send(routes.add(title="t", text="x"))


async def test_redirects_in_a_circle_end(open_client: OpenClient, server: ModelServer) -> None:
    server.script(Answer(status=307, headers={"location": "/again"}))
    with pytest.raises(RedirectedError, match="circle"):
        await open_client(server.url)(routes.list_documents())
    assert len(server.requests) == policy.REDIRECTS


@pytest.mark.parametrize("location", ["", "http://[", "//", "javascript:alert(1)", "https://127.0.0.1:1/x"])
async def test_odd_redirects_are_refused(open_client: OpenClient, server: ModelServer, location: str) -> None:
    server.script(Answer(status=307, headers={"location": location}))
    with pytest.raises(RedirectedError):
        await open_client(server.url)(routes.list_documents())


# --- sizes and shapes --------------------------------------------------------------------------------


async def test_an_answer_has_a_limit(
    open_client: OpenClient, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = b'{"events": [], "nextCursor": null}'
    server.script(Answer(raw=raw))
    send = open_client(server.url)
    for spare in (1, 0):
        monkeypatch.setattr(policy, "ANSWER_BYTES", len(raw) + spare)
        await send(routes.list_documents())
    monkeypatch.setattr(policy, "ANSWER_BYTES", len(raw) - 1)
    with pytest.raises(AnswerTooLargeError, match="ask for less"):
        await send(routes.list_documents())


@pytest.mark.parametrize(
    "fields", [{"text": "a\udcff"}, {"text": "x", "attributes": {"n": float("nan")}}, {"text": object()}]
)
async def test_what_is_no_json_is_an_input_error_and_never_sent(
    open_client: OpenClient, server: ModelServer, fields: dict[str, Any]
) -> None:
    server.script(ADDED)
    with pytest.raises(InvalidInputError):
        await open_client(server.url)(routes.add(title="t", **fields))
    assert server.requests == []


@pytest.mark.parametrize("identifier", ["", "  ", ".", ".."])
def test_what_leads_elsewhere_is_no_id(identifier: str) -> None:
    with pytest.raises(InvalidInputError):
        routes.document(identifier)


async def test_names_stay_in_their_place_of_the_path(open_client: OpenClient, server: ModelServer) -> None:
    server.script(Answer({}, status=404))
    send = open_client(f"{server.url}/behind/", tenant="a/../b c?#é")
    with pytest.raises(errors.NotFoundError):
        await send(routes.document("x/../../y?z=1"))
    assert server.requests[0].path == (
        "/behind/api/tenants/a%2F..%2Fb%20c%3F%23%C3%A9/memory/documents/x%2F..%2F..%2Fy%3Fz%3D1"
    )


@pytest.mark.parametrize("base", ["https://h///", "https://h", "https://h/"])
def test_slashes_at_the_end_of_the_base_are_one(base: str) -> None:
    found = policy.target(base, tenant="t", token="x", prefix=policy.PREFIX)
    assert str(found.url("/add")) == "https://h/api/tenants/t/memory/add"


@pytest.mark.parametrize(
    ("url", "tenant", "token"),
    [
        ("127.0.0.1:8765", "t", "x"),
        ("ftp://h", "t", "x"),
        ("", "t", "x"),
        ("http://", "t", "x"),
        ("https://user:pw@h", "t", "x"),
        ("https://h/?a=1", "t", "x"),
        ("https://h", " ", "x"),
        ("https://h", "t", ""),
        ("https://h", "t", "a b"),
        ("https://h", "t", "a\r\nx: y"),
        ("https://h", "t", "é"),
    ],
)
def test_what_can_not_be_used_is_told_at_once(url: str, tenant: str, token: str) -> None:
    with pytest.raises(ConfigError) as raised:
        policy.target(url, tenant=tenant, token=token, prefix=policy.PREFIX)
    assert "pw" not in raised.value.message


def test_a_token_is_in_no_repr() -> None:
    assert "secret" not in repr(policy.target("https://h", tenant="t", token="secret", prefix="/"))
