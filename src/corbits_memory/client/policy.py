"""What both clients decide alike: how to reach the server, when to send again, what an answer means. No I/O."""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx2
from pydantic import ValidationError

from corbits_memory import errors
from corbits_memory.client.calls import Call, R, Upload
from corbits_memory.client.errors import (
    AnswerTimeoutError,
    AnswerTooLargeError,
    InvalidAnswerError,
    RedirectedError,
    ServerError,
    UnreachableError,
)
from corbits_memory.core.instants import retry_after_seconds
from corbits_memory.errors import ConfigError, InvalidInputError, MemoryError

TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
ATTEMPTS = 5
RETRYING_SECONDS = 60.0
"""How long one call is tried again at most; a longer Retry-After is not waited for."""
ANSWER_BYTES = 64 * 1024 * 1024
REDIRECTS = 5
PREFIX = "/api/tenants/{tenant_id}/memory"
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")
"""Reached without a proxy: those of the environment are for the world, not for a server on this machine."""
BACKOFF: Mapping[str, float] = {"wait_initial": 0.2, "wait_max": 5.0, "wait_jitter": 0.2}

AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAME_METHOD = frozenset({307, 308})
_NOT_UTF8 = "the input holds bytes that are not UTF-8 text"
_HEADER_VALUE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the memory is, and who asks."""

    base_url: httpx2.URL
    prefix: str
    token: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.token}",
            "accept": "application/json",
            "user-agent": "corbits-memory",
        }

    def url(self, path: str) -> httpx2.URL:
        # A tenant or an id may hold what looks like dots and slashes: the path is quoted already.
        raw = self.base_url.raw_path.rstrip(b"/") + self.prefix.encode() + path.encode()
        return self.base_url.copy_with(raw_path=raw)


def target(base_url: str, *, tenant: str, token: str, prefix: str) -> Target:
    """Raises ``ConfigError`` for what can't be used; it repeats no token."""
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError):
        url = httpx2.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError("the server's URL must begin with http:// or https://, like http://127.0.0.1:8765")
    if url.userinfo or url.query or url.fragment:
        raise ConfigError("the server's URL must have no user, query or fragment; the token is given apart")
    if not _HEADER_VALUE.fullmatch(token or ""):
        raise ConfigError("the token must be printable ASCII without spaces, as the server gave it")
    if not (tenant or "").strip():
        raise ConfigError("the tenant must be non-blank text")
    return Target(
        base_url=url,
        prefix=prefix.rstrip("/").replace("{tenant_id}", quote(tenant, safe="")),
        token=token,
    )


def timeout_of(seconds: float | None) -> httpx2.Timeout:
    connect = CONNECT_SECONDS if seconds is None else min(seconds, CONNECT_SECONDS)
    return httpx2.Timeout(seconds, connect=connect)


def query(call: Call[Any]) -> httpx2.QueryParams | None:
    return httpx2.QueryParams(list(call.parameters)) if call.parameters else None


def _form_of(call: Call[Any], file: Upload, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    fields = {
        name: value if isinstance(value, str) else _json_text(value)
        for name, value in (call.body or {}).items()
    }
    try:
        form = httpx2.Request(
            "POST",
            "http://form",
            data=fields,
            files={"file": (file.filename, file.data, file.mime_type or "application/octet-stream")},
        )
        return form.read(), headers | {"content-type": form.headers["content-type"]}
    except UnicodeEncodeError:
        raise InvalidInputError(_NOT_UTF8) from None


def _json_text(value: Any) -> str:
    """Raises ``InvalidInputError`` for what is no JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the input is no JSON: {error}") from None


def content_of(call: Call[Any]) -> tuple[bytes | None, dict[str, str]]:
    """The body and its headers. Raises ``InvalidInputError`` for what is no JSON."""
    headers = dict(call.headers)
    if call.file is not None:
        return _form_of(call, call.file, headers)
    if call.body is None:
        return None, headers
    try:
        content = _json_text(call.body).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInputError(_NOT_UTF8) from None
    return content, headers | {"content-type": "application/json"}


def redirect_of(answer: httpx2.Response) -> httpx2.URL | None:
    """Where a redirect leads, on the same server alone; None for another answer. Raises ``RedirectedError``."""
    if answer.status_code not in _REDIRECTS:
        return None
    request = answer.request
    try:
        there = request.url.join(answer.headers.get("location", ""))
    except httpx2.InvalidURL:
        raise RedirectedError("The server answered with a redirect to nowhere.") from None
    if _origin(there) != _origin(request.url) and not _is_upgrade(request.url, there):
        raise RedirectedError(
            f"The server redirects to another one ({there.scheme}://{there.netloc.decode('ascii', 'replace')}), "
            "where the token was not sent. If you trust that one, use its address."
        )
    if request.method != "GET" and answer.status_code not in _SAME_METHOD:
        raise RedirectedError(
            f"The server redirects to {there.path}, which would make a GET of this {request.method}: use that address."
        )
    return there


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _is_upgrade(here: httpx2.URL, there: httpx2.URL) -> bool:
    """The same host, from plain HTTP to TLS, both at their usual ports."""
    return (
        here.host == there.host
        and (here.scheme, here.port or 80) == ("http", 80)
        and (there.scheme, there.port or 443) == ("https", 443)
    )


class Clock:
    """What one answer may take: its pieces may each come in time and all of them never, or never end."""

    def __init__(self, seconds: float | None) -> None:
        self._ends = math.inf if seconds is None else time.monotonic() + seconds

    def check(self, size: int) -> None:
        """``size`` bytes have come. Raises ``AnswerTooLargeError`` and ``AnswerTimeoutError``."""
        if size > ANSWER_BYTES:
            raise AnswerTooLargeError(
                f"The answer is larger than {ANSWER_BYTES:,} bytes; ask for less at once."
            )
        if time.monotonic() > self._ends:
            raise AnswerTimeoutError


@contextmanager
def transport_errors(server: Target) -> Iterator[None]:
    """Errors of the exchange become ours."""
    try:
        yield
    except httpx2.HTTPError as error:
        raise _transport_error(error, server.base_url) from error


def _transport_error(error: Exception, base_url: httpx2.URL) -> ServerError:
    if isinstance(error, httpx2.ConnectTimeout):
        return UnreachableError(
            f"The server at {base_url} can't be reached in time: is `corbits-memory serve` running there?"
        )
    if isinstance(error, httpx2.TimeoutException):
        return AnswerTimeoutError(f"The server at {base_url} did not answer in time.")
    if isinstance(error, httpx2.DecodingError):
        return InvalidAnswerError()
    return UnreachableError(
        f"The server at {base_url} can't be reached ({type(error).__name__}): "
        "is `corbits-memory serve` running there?"
    )


def read_answer(call: Call[R], answer: httpx2.Response, body: bytes) -> R:
    """The answer's model. Raises the server's refusal, or ``InvalidAnswerError``."""
    if not answer.is_success:
        raise refusal(answer, body)
    value = _json(body)
    if value is not None:
        try:
            return call.answer.model_validate(value)
        except ValidationError:
            pass
    error = InvalidAnswerError(
        f"invalid JSON response: what answers at {answer.request.url.host} is not a Corbits Memory server, or is one "
        "of another release."
    )
    error.http_status = answer.status_code
    raise error


def refusal(answer: httpx2.Response, body: bytes) -> MemoryError:
    """The error that a status and a body tell of, in the class that it has on the server."""
    status = answer.status_code
    told = (_json(body) or {}).get("error")
    told = told if isinstance(told, dict) else {}
    message = str(
        told.get("message") or f"The server answered {status} {answer.reason_phrase}".rstrip() + "."
    )
    error = told_error(str(told.get("code") or ""), message, status=status, details=told.get("details"))
    error.http_status = status
    error.request_id = answer.headers.get("x-request-id")
    error.retry_after = retry_after_seconds(answer.headers.get("retry-after"), now=datetime.now(UTC))
    return error


def told_error(code: str, message: str, *, status: int | None = None, details: Any = None) -> MemoryError:
    """An error by its code, or else by its status."""
    kind = _BY_CODE.get(code)
    # A code of a host's own, or of a newer release; and a code that another status contradicts is none.
    if kind is None or (status is not None and kind.status != status):
        kind = _BY_STATUS.get(status or 0) or (ServerError if (status or 500) >= 500 else MemoryError)
    error = kind(message)
    error.details = details if isinstance(details, (dict, list)) and details else None
    if code:
        error.code = code  # type: ignore[misc]
    return error


def wait_before_retry(error: Exception, *, repeatable: bool, reached: bool) -> bool | float:
    """Whether a failed call is sent again, perhaps after so many seconds."""
    if not repeatable or not isinstance(error, MemoryError):
        return False
    if isinstance(error, UnreachableError):
        # One that never answered is told of at once: it is not there, or elsewhere.
        return reached
    if error.http_status not in AGAIN:
        return False
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= RETRYING_SECONDS else False
    return True


def _json(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _all_errors(kind: type[MemoryError]) -> Iterator[type[MemoryError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all_errors(child)


_BY_CODE = {
    kind.code: kind
    for kind in _all_errors(MemoryError)
    if kind.__module__ == errors.__name__ and "code" in vars(kind)
}
_BY_STATUS = {
    400: InvalidInputError,
    401: errors.UnauthorizedError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    413: errors.TooLargeError,
    429: errors.TooManyRequestsError,
    501: errors.NotSupportedError,
    502: errors.UpstreamError,
    503: errors.UnavailableError,
    504: errors.UnavailableError,
}
