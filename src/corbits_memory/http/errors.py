"""Errors of the HTTP door, and the one shape in which every error is answered."""

import logging
import re
import traceback
import uuid
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from corbits_memory.errors import (
    ForbiddenError,
    MemoryError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
)
from corbits_memory.wire.responses import error_response

REQUEST_ID = "x-request-id"

_log = logging.getLogger("corbits_memory.http")
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:+/=-]{1,128}")


class InvalidResolvedCallerError(MemoryError):
    """The host's identity function did not return a Caller with a tenant and a principal, or None."""

    code = "invalid_resolved_caller"


class RouteNotFoundError(MemoryError):
    """There is no such route."""

    status = 404
    code = "not_found"


class MethodNotAllowedError(MemoryError):
    """This route does not take that method; the Allow header lists those that it takes."""

    status = 405
    code = "method_not_allowed"


_BY_STATUS: Mapping[int, type[MemoryError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: RouteNotFoundError,
    405: MethodNotAllowedError,
    413: TooLargeError,
    429: TooManyRequestsError,
}
_KEPT_HEADERS = frozenset({"allow", "retry-after", "www-authenticate"})
# A 413 must not ask to close the connection: the server would reset it under a client that still sends, and
# the client would never see the answer.
_HEADERS: Mapping[int, Mapping[str, str]] = {401: {"www-authenticate": "Bearer"}}


def request_id_of(request: Request) -> str:
    """The id that came in, when it is a sane one, else a new one; the same for the whole request."""
    known: str | None = request.scope.get("corbits_memory.request_id")
    if known is None:
        given = request.headers.get(REQUEST_ID, "")
        known = given if _SANE_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request.scope["corbits_memory.request_id"] = known
    return known


def error_answer(request: Request, error: Exception) -> JSONResponse:
    """The answer to an error. What nobody foresaw is logged and told as ``internal``, without its text."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers = {
            name.lower(): value
            for name, value in (error.headers or {}).items()
            if name.lower() in _KEPT_HEADERS
        }
    known = told_error(request, error)
    return JSONResponse(
        error_response(known).to_json(),
        status_code=known.status,
        headers={
            **_HEADERS.get(known.status, {}),
            **headers,
            REQUEST_ID: request_id_of(request),
            "cache-control": "no-store",
        },
    )


def told_error(request: Request, error: Exception) -> MemoryError:
    """The error as it is told, logged: what nobody foresaw is ``internal``, without its text."""
    known = _known(error)
    _log_failure(request, error, known)
    return known


def _known(error: Exception) -> MemoryError:
    if isinstance(error, MemoryError):
        return error
    if isinstance(error, HTTPException):
        return _BY_STATUS.get(error.status_code, MemoryError)()
    return MemoryError()


def _log_failure(request: Request, error: Exception, known: MemoryError) -> None:
    if known.status < 500:
        return
    if isinstance(error, MemoryError):
        _log.error("request %s: %s: %s", request_id_of(request), known.code, known.message)
        return
    # The message of a foreign error may quote a document or a secret: its type and place must do.
    place = "".join(traceback.format_tb(error.__traceback__))
    _log.error("request %s: %s\n%s", request_id_of(request), type(error).__name__, place)
