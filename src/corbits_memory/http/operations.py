"""What each route does once the guard has let it pass. Routes and OpenAPI are both made from this table."""

from collections.abc import Mapping
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
from corbits_memory.validation import IDEMPOTENCY_KEY, AddInput, Problems, SearchInput
from corbits_memory.wire import context as contexts
from corbits_memory.wire import fields, requests, responses
from corbits_memory.wire.requests import IDEMPOTENCY_KEY_HEADER

_LIST_LIMIT = f"must be an integer from 1 to {limits.LIST_LIMIT_MAX}"


async def add(call: Call) -> responses.Response:
    return await _added(call, requests.add_input(call.body))


async def _added(call: Call, item: AddInput) -> responses.Response:
    (result,) = await call.memory.add_batch(
        tenant_id=call.caller.tenant_id,
        principal_id=call.caller.principal_id,
        items=[item],
        idempotency_key=_idempotency_key(call),
    )
    if isinstance(result, Exception):
        raise result
    return responses.add_response(result)


async def add_batch(call: Call) -> responses.Response:
    given = call.body.get("items")
    items: Any = [_item(item) for item in given] if isinstance(given, list) else given
    results = await call.memory.add_batch(
        tenant_id=call.caller.tenant_id,
        principal_id=call.caller.principal_id,
        items=items,
        idempotency_key=_idempotency_key(call),
    )
    return responses.add_batch_response(results)


async def add_file(call: Call) -> responses.Response:
    return await _added(call, requests.add_file_input(call.body))


async def search(call: Call) -> responses.Response:
    given = requests.search_input(call.body)
    await _check_generation(call, given)
    try:
        result = await call.memory.search_for(
            given, tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id
        )
    except InvalidInputError as error:
        raise requests.in_json_names(error) from error
    return responses.search_response(result, include_evidence=given.include_evidence is not False)


async def context(call: Call) -> responses.Response:
    given = contexts.context_input(call.body)
    await _check_generation(call, given)
    try:
        result = await call.memory.context_for(
            given,
            call.body.get("max_tokens"),
            tenant_id=call.caller.tenant_id,
            principal_id=call.caller.principal_id,
        )
    except InvalidInputError as error:
        raise requests.in_json_names(error) from error
    return contexts.context_response(result, include_evidence=given.include_evidence is not False)


async def _check_generation(call: Call, given: SearchInput) -> None:
    if given.generation is not None and not await call.memory.may(call.caller, Capability.ADMIN):
        raise ForbiddenError(f"generation needs the capability {Capability.ADMIN}")


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
    who = {"tenant_id": call.caller.tenant_id, "principal_id": call.caller.principal_id}
    pending = await call.memory.pending_vectors(**who)
    return responses.capabilities_response(call.memory.capabilities, **who, pending_vectors=pending)


async def share(call: Call) -> responses.Response:
    shared = await call.memory.share_for(call.body, **document_of(call))
    return responses.share_response(shared)


async def unshare(call: Call) -> responses.Response:
    shared = await call.memory.unshare_for(call.body, **document_of(call))
    return responses.share_response(shared)


def _idempotency_key(call: Call) -> str | None:
    given = call.request.headers.getlist(IDEMPOTENCY_KEY_HEADER)
    if len(given) > 1:
        raise InvalidInputError(f"{IDEMPOTENCY_KEY_HEADER} must be given once")
    return given[0] if given else None


def _item(item: object) -> object:
    return requests.add_input(item) if isinstance(item, dict) else item


_LIST_INSTANTS = {
    "occurred_after": "Only what occurred then or later.",
    "occurred_before": "Only what occurred earlier.",
    "as_of": "What was there at this instant, in the versions of then. Not in the future.",
}
_LIST_FILTERS = ("cursor", *_LIST_INSTANTS)

_KEY_PARAMETER: Mapping[str, Any] = {
    "name": IDEMPOTENCY_KEY_HEADER,
    "in": "header",
    "description": "Of your choice, like a UUID, a new one for each request: the same request again, within a day, "
    "gets the first answer and writes nothing.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": limits.IDEMPOTENCY_KEY_CHARS,
        "pattern": f"^{IDEMPOTENCY_KEY}$",
    },
}

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
        query=(_KEY_PARAMETER,),
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
        query=(_KEY_PARAMETER,),
    ),
    Operation(
        id="memory_add_file",
        method="POST",
        path="/add/file",
        capability=Capability.ADD,
        summary="Remember one file: PDF, DOCX, HTML, Markdown or plain text",
        handle=add_file,
        request=requests.AddFileRequest,
        response=responses.AddResponse,
        is_form=True,
        query=(_KEY_PARAMETER,),
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
        id="memory_context",
        method="POST",
        path="/context",
        capability=Capability.SEARCH,
        summary="What answers a question as one cited text within a budget",
        handle=context,
        request=contexts.ContextRequest,
        response=contexts.ContextResponse,
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
