"""What every request passes: it is observed, its body must come in time, its answer carries safe headers."""

import asyncio
import logging
import time

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corbits_memory.errors import InvalidInputError, MemoryError
from corbits_memory.http.errors import REQUEST_ID, request_id_of
from corbits_memory.server.metrics import UNMATCHED, Metrics
from corbits_memory.wire.responses import error_response

_log = logging.getLogger("corbits_memory.server.access")

BODY_PAUSE_SECONDS = 15.0
"""Longest wait for the next piece of a body."""
BODY_GRACE_SECONDS = 30.0
BODY_BYTES_A_SECOND = 16 * 1024
"""A body that comes slower than this, after the grace, is given up."""

_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds: logged only when something is wrong."""

PAGE_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": PAGE_POLICY,
}


class RequestTimeoutError(MemoryError):
    """The request's body came too slowly; send it again on a faster line, or send less at once."""

    status = 408
    code = "request_timeout"


class HeadTooLargeError(MemoryError):
    """The request's path and headers are too large; send less in them."""

    status = 431
    code = "head_too_large"


class TwoLengthsError(InvalidInputError):
    """A request has either a content-length or a transfer-encoding: with both, two readers see two requests."""


class Observed:
    """Counts and logs each request: by the template of its route, so that no tenant and no text gets in."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            seconds = time.perf_counter() - began
            # 499: the client went away before there was an answer.
            self._note(scope, status=status or 499, seconds=seconds)

    def _note(self, scope: Scope, *, status: int, seconds: float) -> None:
        # As OpenAPI has it: how a router converts a parameter is no part of the route's name.
        route = getattr(scope.get("route"), "path", UNMATCHED).replace(":path}", "}")
        self._metrics.observe(method=scope["method"], route=route, status=status, seconds=seconds)
        _log.log(
            logging.DEBUG if route in _PROBES and status < 400 else logging.INFO,
            "request",
            extra={
                "method": scope["method"],
                "route": route,
                "status": status,
                "ms": round(seconds * 1_000, 1),
                "request_id": request_id_of(Request(scope)),
            },
        )


class SafeHeaders:
    """Headers that keep browsers from doing anything clever with an answer; what a route sets itself stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, add if scope["type"] == "http" else send)


class SoundHead:
    """Refuses heads that are too large, or that a proxy in front may read otherwise than this server does."""

    def __init__(self, app: ASGIApp, *, head_bytes: int) -> None:
        self._app = app
        self._head_bytes = head_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await _refusal(Request(scope), problem)(scope, receive, send)

    def _problem(self, scope: Scope) -> MemoryError | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        # The server's own limit holds for heads that come in pieces only.
        if target + sum(len(name) + len(value) + 4 for name, value in headers) > self._head_bytes:
            return HeadTooLargeError()
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
            return TwoLengthsError()
        return None


class TimelyBody:
    """Gives up bodies that trickle, with 408: they would hold memory and a place for as long as they like."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        pause_seconds: float = BODY_PAUSE_SECONDS,
        grace_seconds: float = BODY_GRACE_SECONDS,
        bytes_a_second: int = BODY_BYTES_A_SECOND,
    ) -> None:
        self._app = app
        self._pause = pause_seconds
        self._grace = grace_seconds
        self._rate = bytes_a_second

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = gave_up = complete = False
        read = 0
        began = time.monotonic()

        async def timely() -> Message:
            nonlocal gave_up, complete, read
            if complete:
                return await receive()
            left = began + self._grace + read / self._rate - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, min(self._pause, left))):
                    message = await receive()
            except TimeoutError:
                gave_up = True
                return {"type": "http.disconnect"}
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            return message

        async def once(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        await self._app(scope, timely, once)
        if gave_up and not started:
            await _refusal(Request(scope), RequestTimeoutError())(scope, receive, send)


def _refusal(request: Request, error: MemoryError) -> JSONResponse:
    """The answer, after which nothing more of this connection is read."""
    return JSONResponse(
        error_response(error).to_json(),
        status_code=error.status,
        headers={REQUEST_ID: request_id_of(request), "cache-control": "no-store", "connection": "close"},
    )
