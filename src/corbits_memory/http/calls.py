"""What a route is made of."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from corbits_memory.core.enums import Capability
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.wire import requests, responses


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that passed the guard. ``body`` is its JSON object or form, ``{}`` where the route takes none."""

    memory: Memory
    caller: Caller
    request: Request
    body: Mapping[str, Any]
    guard: Callable[[], Awaitable[None]]
    """Asks again who the caller is and what it may: for answers that go on for long. Raises as the guard does."""


def document_of(call: Call) -> dict[str, str]:
    """Who asks, and about which document."""
    return {
        "tenant_id": call.caller.tenant_id,
        "principal_id": call.caller.principal_id,
        "document_id": call.request.path_params["document_id"],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method on one path below the prefix."""

    id: str
    method: str
    path: str
    capability: Capability
    summary: str
    handle: Callable[[Call], Awaitable[responses.Response | Response]]
    """Answers with JSON, or in another shape of its own."""
    response: type[responses.Response]
    request: type[requests.Request] | None = None
    is_form: bool = False
    """Whether the request comes as ``multipart/form-data``, not as JSON."""
    query: tuple[Mapping[str, Any], ...] = ()
    """OpenAPI parameters beside those of the path."""
    media_type: str = "application/json"
    """Of the answer; ``response`` is then one item of it."""
