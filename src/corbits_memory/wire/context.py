"""What the route of contexts takes and answers."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from corbits_memory.core import limits
from corbits_memory.core.enums import EvidenceLevel
from corbits_memory.ports import ContextResult
from corbits_memory.validation import SearchInput
from corbits_memory.wire.requests import QuestionRequest, search_input
from corbits_memory.wire.responses import Response, SearchItemResponse, given, search_item_response


class ContextRequest(QuestionRequest):
    """A search whose hits are wanted as one text to put into a prompt."""

    max_tokens: Annotated[int, Field(ge=limits.CONTEXT_TOKENS_MIN, le=limits.CONTEXT_TOKENS_MAX)] | None = (
        Field(
            default=None,
            description=f"Of the whole text; a token is four characters. Default {limits.CONTEXT_TOKENS_DEFAULT:,}.",
        )
    )
    limit: Annotated[int, Field(ge=1, le=limits.SEARCH_LIMIT_MAX)] | None = Field(
        default=None, description=f"Hits to make it of. Default {limits.CONTEXT_LIMIT_DEFAULT}."
    )
    max_per_document: Annotated[int, Field(ge=1, le=limits.MAX_PER_DOCUMENT)] | None = Field(
        default=None, description=f"Default {limits.CONTEXT_PER_DOCUMENT_DEFAULT}."
    )


class ContextItemResponse(SearchItemResponse):
    marker: int = Field(description="The text cites it as `[marker]`.")
    tokens: int = Field(description="Of its text in the context.")
    truncated: bool = Field(description="Whether a part of it alone had room.")


class OmittedResponse(Response):
    document_id: str
    title: str
    chunk_id: str | None = None


class ContextResponse(Response):
    context: str
    tokens: int
    max_tokens: int
    items: list[ContextItemResponse] = Field(description="What the markers in the text stand for.")
    omitted: list[OmittedResponse] = Field(description="Hits for which there was no room, best first.")
    evidence: EvidenceLevel | None = None
    degraded: list[str] | None = None


def context_input(body: Any) -> SearchInput:
    """The plane's input of the search from a JSON object; nothing is checked yet."""
    asked = search_input(body)
    return replace(
        asked,
        limit=limits.CONTEXT_LIMIT_DEFAULT if asked.limit is None else asked.limit,
        max_per_document=limits.CONTEXT_PER_DOCUMENT_DEFAULT
        if asked.max_per_document is None
        else asked.max_per_document,
        cursor=None,
    )


def context_response(result: ContextResult, *, include_evidence: bool = True) -> ContextResponse:
    return ContextResponse(
        context=result.text,
        tokens=result.tokens,
        max_tokens=result.max_tokens,
        items=[
            ContextItemResponse(
                **search_item_response(place.item).to_json(),
                marker=place.marker,
                tokens=place.tokens,
                truncated=place.truncated,
            )
            for place in result.items
        ],
        omitted=[
            OmittedResponse(document_id=item.document_id, title=item.title, **given(chunk_id=item.chunk_id))
            for item in result.omitted
        ],
        **given(evidence=result.evidence if include_evidence else None, degraded=list(result.degraded)),
    )
