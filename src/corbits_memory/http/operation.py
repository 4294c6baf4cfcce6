"""What an operation is, and what handlers share."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from corbits_memory.core.enums import Capability
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.validation import Problems
from corbits_memory.wire import requests, responses

_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that passed the guard. ``body`` is its JSON object, ``{}`` where the route takes none."""

    memory: Memory
    caller: Caller
    request: Request
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method on one path below the prefix."""

    id: str
    method: str
    path: str
    capability: Capability
    summary: str
    handle: Callable[[Call], Awaitable[responses.Response]]
    response: type[responses.Response]
    request: type[requests.Request] | None = None
    query: tuple[Mapping[str, Any], ...] = ()
    """OpenAPI parameters."""


def document_of(call: Call) -> dict[str, str]:
    """Who asks, and about which document."""
    return {
        "tenant_id": call.caller.tenant_id,
        "principal_id": call.caller.principal_id,
        "document_id": call.request.path_params["document_id"],
    }


def query_integer(request: Request, name: str, *, high: int, default: int) -> int:
    """From the query: decimal digits, once, from 1 to ``high``; absent or empty means the default."""
    problems = Problems()
    value: object = query_value(request, name, problems)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    rule = f"must be an integer from 1 to {high}"
    number = problems.integer(name, value, low=1, high=high, default=default, rule=rule)
    problems.raise_if_any()
    return number


def query_value(request: Request, name: str, problems: Problems) -> str | None:
    """From the query, once; absent or empty is None."""
    given = request.query_params.getlist(name)
    if len(given) > 1:
        problems.add(name, "must be given once")
    return given[0] or None if given else None
