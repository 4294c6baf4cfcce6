"""The feed's routes."""

import re
from collections.abc import Mapping
from typing import Any

from corbits_memory.core import limits
from corbits_memory.core.enums import Capability, FeedOp
from corbits_memory.http.calls import Call, Operation
from corbits_memory.ports import FeedQuery
from corbits_memory.validation import Problems, feed_query
from corbits_memory.wire import responses
from corbits_memory.wire.feed import FeedResponse, feed_response

_AFTER = "must be a non-negative integer"
_LIMIT = f"must be an integer from 1 to {limits.FEED_LIMIT_MAX}"
_INCLUDES = ("text",)
_DIGITS = re.compile(r"[0-9]{1,16}")


async def feed(call: Call) -> responses.Response:
    page = await call.memory.feed_for(
        query_of(call), tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id
    )
    return feed_response(page)


def query_of(call: Call) -> FeedQuery:
    """From the query string; what is empty counts as absent. Raises ``InvalidInputError``."""
    problems = Problems()
    after = _number(call, problems, "after", low=0, high=limits.SAFE_INTEGER, rule=_AFTER)
    limit = _number(call, problems, "limit", low=1, high=limits.FEED_LIMIT_MAX, rule=_LIMIT)
    ops = _words(call, problems, "ops", tuple(FeedOp))
    includes = _words(call, problems, "include", _INCLUDES)
    generator = _once(call, problems, "exclude_generator")
    problems.raise_if_any()
    return feed_query(
        after=after,
        limit=limit,
        ops=ops or None,
        exclude_generator=generator,
        include_text="text" in includes,
    )


def _once(call: Call, problems: Problems, name: str) -> str | None:
    given = [value for value in call.request.query_params.getlist(name) if value]
    if len(given) > 1:
        problems.add(name, "must be given once")
    return given[0] if given else None


def _number(call: Call, problems: Problems, name: str, *, low: int, high: int, rule: str) -> int | None:
    """Decimal digits."""
    given = _once(call, problems, name)
    if given is None:
        return None
    number = int(given) if _DIGITS.fullmatch(given) else -1
    if not low <= number <= high:
        problems.add(name, rule)
        return None
    return number


def _words(call: Call, problems: Problems, name: str, allowed: tuple[str, ...]) -> list[str]:
    """Words of a list, with commas or repeated."""
    words = [
        word.strip() for value in call.request.query_params.getlist(name) for word in value.split(",") if word
    ]
    if any(word not in allowed for word in words):
        problems.add(name, f"must be some of: {', '.join(allowed)}")
    return words


FILTERS: tuple[Mapping[str, Any], ...] = (
    {
        "name": "after",
        "in": "query",
        "description": "The number of the last entry that was seen. Default 0: from the beginning.",
        "schema": {"type": "integer", "minimum": 0, "maximum": limits.SAFE_INTEGER},
    },
    {
        "name": "ops",
        "in": "query",
        "description": "What kinds of entries: repeat the parameter. Default `upsert`.",
        "schema": {"type": "array", "items": {"enum": list(FeedOp)}},
    },
    {
        "name": "exclude_generator",
        "in": "query",
        "description": "Without what this agent made.",
        "schema": {"type": "string", "maxLength": limits.ID_CHARS},
    },
    {
        "name": "include",
        "in": "query",
        "description": f"`text` adds texts, {limits.FEED_TEXT_BYTES:,} bytes a page at most.",
        "schema": {"enum": list(_INCLUDES)},
    },
)
_LIMIT_PARAMETER: Mapping[str, Any] = {
    "name": "limit",
    "in": "query",
    "description": f"Default {limits.FEED_LIMIT_DEFAULT}.",
    "schema": {"type": "integer", "minimum": 1, "maximum": limits.FEED_LIMIT_MAX},
}

FEED_OPERATIONS = (
    Operation(
        id="memory_feed",
        method="GET",
        path="/feed",
        capability=Capability.SEARCH,
        summary="What was written, in order",
        handle=feed,
        response=FeedResponse,
        query=(*FILTERS, _LIMIT_PARAMETER),
    ),
)
