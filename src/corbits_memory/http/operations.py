"""What each route does once the guard has let it pass. Routes and OpenAPI are both made from this table."""

from typing import Any

from pydantic import TypeAdapter

from corbits_memory.core import limits
from corbits_memory.core.enums import Capability
from corbits_memory.errors import ForbiddenError, InvalidInputError
from corbits_memory.http.calls import Call, Operation, document_of
from corbits_memory.http.documents import DOCUMENT_OPERATIONS
from corbits_memory.http.feed import FEED_OPERATIONS
from corbits_memory.http.lifecycle import LIFECYCLE_OPERATIONS
from corbits_memory.http.push import PUSH_OPERATIONS
from corbits_memory.http.query import number, once
from corbits_memory.http.transform import TRANSFORM_OPERATIONS
from corbits_memory.validation import Problems
from corbits_memory.wire import fields, requests, responses

_LIST_LIMIT = f"must be an integer from 1 to {limits.LIST_LIMIT_MAX}"


async def add(call: Call) -> responses.Response:
    (result,) = await call.memory.add_batch(
        tenant_id=call.caller.tenant_id,
        principal_id=call.caller.principal_id,
        items=[requests.add_input(call.body)],
    )
    if isinstance(result, Exception):
        raise result
    return responses.add_response(result)


async def add_batch(call: Call) -> responses.Response:
    given = call.body.get("items")
    items: Any = [_item(item) for item in given] if isinstance(given, list) else given
    results = await call.memory.add_batch(
        tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id, items=items
    )
    return responses.add_batch_response(results)


async def search(call: Call) -> responses.Response:
    given = requests.search_input(call.body)
    if given.generation is not None and not await call.memory.may(call.caller, Capability.ADMIN):
        raise ForbiddenError(f"generation needs the capability {Capability.ADMIN}")
    try:
        result = await call.memory.search_for(
            given, tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id
        )
    except InvalidInputError as error:
        raise requests.in_json_names(error) from error
    return responses.search_response(result, include_evidence=given.include_evidence is not False)


async def list_events(call: Call) -> responses.Response:
    problems = Problems()
    limit = number(call, problems, "limit", low=1, high=limits.LIST_LIMIT_MAX, rule=_LIST_LIMIT)
    named = {name: once(call, problems, name) for name in _LIST_FILTERS}
    problems.raise_if_any()
    limit = limits.LIST_LIMIT_DEFAULT if limit is None else limit
    events = await call.memory.list(
        tenant_id=call.caller.tenant_id,
        principal_id=call.caller.principal_id,
        limit=limit,
        kinds=call.request.query_params.getlist("kinds"),
        **named,
    )
    return responses.list_response(events, limit=limit)


async def capabilities(call: Call) -> responses.Response:
    pending = await call.memory.pending_vectors(
        tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id
    )
    return responses.capabilities_response(call.memory.capabilities, pending_vectors=pending)


async def share(call: Call) -> responses.Response:
    shared = await call.memory.share_for(call.body, **document_of(call))
    return responses.share_response(shared)


async def unshare(call: Call) -> responses.Response:
    shared = await call.memory.unshare_for(call.body, **document_of(call))
    return responses.share_response(shared)


def _item(item: object) -> object:
    return requests.add_input(item) if isinstance(item, dict) else item


_LIST_INSTANTS = {
    "occurred_after": "Only what occurred then or later.",
    "occurred_before": "Only what occurred earlier.",
    "as_of": "What was there at this instant, in the versions of then. Not in the future.",
}
_LIST_FILTERS = ("cursor", *_LIST_INSTANTS)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="memory_add",
        method="POST",
        path="/add",
        capability=Capability.ADD,
        summary="Remember one document",
        handle=add,
        request=requests.AddRequest,
        response=responses.AddResponse,
    ),
    Operation(
        id="memory_add_batch",
        method="POST",
        path="/add/batch",
        capability=Capability.ADD,
        summary="Remember many documents, each judged by itself",
        handle=add_batch,
        request=requests.AddBatchRequest,
        response=responses.AddBatchResponse,
    ),
    Operation(
        id="memory_search",
        method="POST",
        path="/search",
        capability=Capability.SEARCH,
        summary="Find what answers a question",
        handle=search,
        request=requests.SearchRequest,
        response=responses.SearchResponse,
    ),
    Operation(
        id="memory_list",
        method="GET",
        path="/list",
        capability=Capability.SEARCH,
        summary="The newest documents",
        handle=list_events,
        response=responses.ListResponse,
        query=(
            {
                "name": "limit",
                "in": "query",
                "description": f"Decimal digits. Default {limits.LIST_LIMIT_DEFAULT}.",
                "schema": {"type": "integer", "minimum": 1, "maximum": limits.LIST_LIMIT_MAX},
            },
            {
                "name": "kinds",
                "in": "query",
                "description": "Only these kinds; repeat the parameter.",
                "schema": {
                    "type": "array",
                    "maxItems": limits.FILTER_VALUES,
                    "items": TypeAdapter(fields.Kind).json_schema(),
                },
            },
            {
                "name": "cursor",
                "in": "query",
                "description": "`nextCursor` of the page before.",
                "schema": {"type": "string"},
            },
            *(
                {
                    "name": name,
                    "in": "query",
                    "description": description,
                    "schema": TypeAdapter(fields.Instant).json_schema(),
                }
                for name, description in _LIST_INSTANTS.items()
            ),
        ),
    ),
    Operation(
        id="memory_capabilities",
        method="GET",
        path="/capabilities",
        capability=Capability.SEARCH,
        summary="What this memory can do",
        handle=capabilities,
        response=responses.CapabilitiesResponse,
    ),
    Operation(
        id="memory_share",
        method="POST",
        path="/documents/{document_id}/share",
        capability=Capability.ADD,
        summary="Let others read a document of yours",
        handle=share,
        request=requests.ShareRequest,
        response=responses.ShareResponse,
    ),
    Operation(
        id="memory_unshare",
        method="POST",
        path="/documents/{document_id}/unshare",
        capability=Capability.ADD,
        summary="Take back what a share gave",
        handle=unshare,
        request=requests.UnshareRequest,
        response=responses.ShareResponse,
    ),
    *LIFECYCLE_OPERATIONS,
    *DOCUMENT_OPERATIONS,
    *FEED_OPERATIONS,
    *PUSH_OPERATIONS,
    *TRANSFORM_OPERATIONS,
)
