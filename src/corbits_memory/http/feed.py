"""The feed's routes."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from pydantic import TypeAdapter
from starlette.responses import Response

from corbits_memory.core import limits
from corbits_memory.core.enums import Capability, FeedOp
from corbits_memory.errors import InvalidInputError
from corbits_memory.feed_json import entry_json
from corbits_memory.http.calls import Call, Operation
from corbits_memory.http.errors import told_error
from corbits_memory.http.events import HEARTBEAT, MEDIA_TYPE, EventStream, event, position
from corbits_memory.http.query import digits, flag, number, once, words
from corbits_memory.ports import FeedPage, FeedQuery
from corbits_memory.validation import Problems, feed_query
from corbits_memory.wire import fields, responses
from corbits_memory.wire.feed import FeedEntryResponse, FeedResponse, feed_response

LAST_EVENT_ID = "Last-Event-ID"
RETRY = b"retry: 2000\n\n"
"""How many milliseconds a client waits before it comes back."""
HEARTBEAT_SECONDS = 10.0
GUARD_SECONDS = 10.0
"""How often it is asked again whether the caller is still let in."""

_AFTER = "must be a non-negative integer"
_LIMIT = f"must be an integer from 1 to {limits.FEED_LIMIT_MAX}"
_INCLUDES = ("text",)


async def feed(call: Call) -> responses.Response:
    return feed_response(await _page(call, query_of(call)))


async def stream(call: Call) -> Response:
    query = replace(query_of(call), limit=limits.FEED_LIMIT_MAX)
    resumed = call.request.headers.get(LAST_EVENT_ID, "")
    if resumed:
        query = replace(query, after=_resumed(resumed))
    # Read here, so that what can't be answered is answered in the one shape of errors.
    first = await _page(call, query)
    return EventStream(
        _events(call, query, first), watches=[partial(_stopped, call), partial(_no_longer_let_in, call)]
    )


async def _events(call: Call, query: FeedQuery, page: FeedPage) -> AsyncIterator[bytes]:
    yield RETRY
    while True:
        for entry in page.entries:
            yield event(name=entry.op, number=entry.seq, data=entry_json(entry))
        last = page.entries[-1].seq if page.entries else query.after
        if page.position > last:
            yield position(page.position)
        elif not page.entries:
            yield HEARTBEAT
        query = replace(query, after=page.position)
        try:
            if not page.has_more:
                await call.memory.feed_changed(
                    tenant_id=call.caller.tenant_id, after=query.after, seconds=HEARTBEAT_SECONDS
                )
            page = await _page(call, query)
        except Exception as error:  # noqa: BLE001 - the last door: the answer has begun, so it is told as an event
            yield _error_event(call, error)
            return


async def _stopped(call: Call) -> bytes:
    await call.memory.until_stopped()
    return b""


async def _no_longer_let_in(call: Call) -> bytes:
    while True:
        await anyio.sleep(GUARD_SECONDS)
        try:
            await call.guard()
        except Exception as error:  # noqa: BLE001 - a host's function may raise anything; then nobody is let in
            return _error_event(call, error)


def _error_event(call: Call, error: Exception) -> bytes:
    told = told_error(call.request, error)
    return event(name="error", data=responses.error_response(told).to_json())


async def _page(call: Call, query: FeedQuery) -> FeedPage:
    return await call.memory.feed_for(
        query, tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id
    )


def _resumed(value: str) -> int:
    seq = digits(value)
    if seq is None:
        raise InvalidInputError(f"{LAST_EVENT_ID} {_AFTER}")
    return seq


def query_of(call: Call) -> FeedQuery:
    """From the query string; what is empty counts as absent. Raises ``InvalidInputError``."""
    problems = Problems()
    after = number(call, problems, "after", low=0, high=limits.SAFE_INTEGER, rule=_AFTER)
    limit = number(call, problems, "limit", low=1, high=limits.FEED_LIMIT_MAX, rule=_LIMIT)
    ops = words(call, problems, "ops", tuple(FeedOp))
    includes = words(call, problems, "include", _INCLUDES)
    with_text = flag(call, problems, "include_text")
    generator = once(call, problems, "exclude_generator")
    problems.raise_if_any()
    return feed_query(
        after=after,
        limit=limit,
        ops=ops or None,
        exclude_generator=generator,
        include_text=with_text or "text" in includes,
    )


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
        "schema": TypeAdapter(fields.BlankableId).json_schema(),
    },
    {
        "name": "include",
        "in": "query",
        "description": f"`text` adds texts, {limits.FEED_TEXT_BYTES:,} bytes a page at most.",
        "schema": {"enum": list(_INCLUDES)},
    },
    {
        "name": "include_text",
        "in": "query",
        "description": "Another way to say `include=text`.",
        "schema": {"type": "boolean"},
    },
)
_LIMIT_PARAMETER: Mapping[str, Any] = {
    "name": "limit",
    "in": "query",
    "description": f"Default {limits.FEED_LIMIT_DEFAULT}.",
    "schema": {"type": "integer", "minimum": 1, "maximum": limits.FEED_LIMIT_MAX},
}

_LAST_EVENT_ID_PARAMETER: Mapping[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Goes on after this entry; wins over `after`.",
    "schema": {"type": "integer", "minimum": 0, "maximum": limits.SAFE_INTEGER},
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
    Operation(
        id="memory_feed_stream",
        method="GET",
        path="/feed/stream",
        capability=Capability.SEARCH,
        summary="The same as server-sent events, for ever",
        handle=stream,
        response=FeedEntryResponse,
        query=(*FILTERS, _LAST_EVENT_ID_PARAMETER),
        media_type=MEDIA_TYPE,
    ),
)
