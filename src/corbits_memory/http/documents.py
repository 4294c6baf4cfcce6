"""The routes that read by id."""

from collections.abc import Mapping
from typing import Any

from corbits_memory.core import limits
from corbits_memory.core.enums import Capability
from corbits_memory.http.calls import Call, Operation
from corbits_memory.http.query import number
from corbits_memory.validation import CURSOR_MAX, Problems
from corbits_memory.wire import documents, responses


async def document(call: Call) -> responses.Response:
    found = await call.memory.document(**_who(call), document_id=call.request.path_params["document_id"])
    return documents.document_response(found)


async def lookup(call: Call) -> responses.Response:
    asked: dict[str, Any] = {name: call.body.get(name) for name in documents.LookupRequest.model_fields}
    page = await call.memory.lookup(
        tenant_id=call.caller.tenant_id, principal_id=call.caller.principal_id, **asked
    )
    return documents.lookup_response(page)


async def history(call: Call) -> responses.Response:
    limit, before = _page(call, "before", limits.HISTORY_LIMIT_MAX)
    page = await call.memory.history(
        **_who(call), document_id=call.request.path_params["document_id"], limit=limit, before=before
    )
    return documents.history_response(page)


async def version(call: Call) -> responses.Response:
    limit, after = _page(call, "after", limits.CHUNK_PAGE_MAX)
    found = await call.memory.version(
        **_who(call), version_id=call.request.path_params["version_id"], limit=limit, after=after
    )
    return documents.version_response(found)


def _who(call: Call) -> dict[str, str]:
    return {"tenant_id": call.caller.tenant_id, "principal_id": call.caller.principal_id}


def _page(call: Call, cursor: str, most: int) -> tuple[int | None, int | None]:
    problems = Problems()
    limit = number(call, problems, "limit", low=1, high=most)
    place = number(call, problems, cursor, low=0, high=CURSOR_MAX)
    problems.raise_if_any()
    return limit, place


def _paging(cursor: str, what: str, *, default: int, high: int) -> tuple[Mapping[str, Any], ...]:
    return (
        {
            "name": "limit",
            "in": "query",
            "description": f"Default {default}.",
            "schema": {"type": "integer", "minimum": 1, "maximum": high},
        },
        {
            "name": cursor,
            "in": "query",
            "description": what,
            "schema": {"type": "integer", "minimum": 0, "maximum": CURSOR_MAX},
        },
    )


DOCUMENT_OPERATIONS = (
    Operation(
        id="memory_document",
        method="GET",
        path="/documents/{document_id}",
        capability=Capability.SEARCH,
        summary="A document and its current version",
        handle=document,
        response=documents.DocumentResponse,
    ),
    Operation(
        id="memory_lookup",
        method="POST",
        path="/lookup",
        capability=Capability.SEARCH,
        summary="Documents by the names that their source gave them",
        handle=lookup,
        request=documents.LookupRequest,
        response=documents.LookupResponse,
    ),
    Operation(
        id="memory_history",
        method="GET",
        path="/documents/{document_id}/history",
        capability=Capability.SEARCH,
        summary="The versions of a document, and what each changed",
        handle=history,
        response=documents.HistoryResponse,
        query=_paging(
            "before",
            "Only versions with a lower number: `nextBefore` of the page before.",
            default=limits.HISTORY_LIMIT_DEFAULT,
            high=limits.HISTORY_LIMIT_MAX,
        ),
    ),
    Operation(
        id="memory_version",
        method="GET",
        path="/versions/{version_id}",
        capability=Capability.SEARCH,
        summary="A version and its text",
        handle=version,
        response=documents.VersionResponse,
        query=_paging(
            "after",
            "Only chunks with a higher ordinal: `nextAfter` of the page before.",
            default=limits.CHUNK_PAGE_DEFAULT,
            high=limits.CHUNK_PAGE_MAX,
        ),
    ),
)
