"""What servers answer, and how the plane's values become it. camelCase, times as ISO milliseconds Z."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from corbits_memory.core.enums import AddStatus, Channel, EvidenceLevel
from corbits_memory.core.instants import iso_instant
from corbits_memory.errors import MemoryError
from corbits_memory.ports import (
    AddResult,
    Attribution,
    Citation,
    SearchItem,
    SearchResult,
    SharedDocument,
    ShareReceipt,
    StoreCapabilities,
    TimelineEvent,
)


class Response(BaseModel):
    """Fields that were not set are left out of the JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)

    def to_json(self) -> dict[str, Any]:
        # A store may put anything into an explanation or an error's details.
        return self.model_dump(mode="json", exclude_unset=True, fallback=str)


class ErrorBody(Response):
    code: str
    message: str
    details: dict[str, Any] | list[dict[str, Any]] | None = None


class ErrorResponse(Response):
    error: ErrorBody


class ShareReceiptResponse(Response):
    tags: list[str]
    principals: list[str]
    grants_materialized: bool
    reason: str | None = None
    withheld: list[str] | None = None


class ShareResponse(Response):
    document_id: str
    version_id: str
    share: ShareReceiptResponse


class AddResponse(Response):
    document_id: str
    version_id: str
    version: int
    status: AddStatus
    chunks: int
    degraded: list[str] | None = None
    share: ShareReceiptResponse | None = None


class AddBatchResponse(Response):
    results: list[AddResponse | ErrorResponse]


class OpenTargetResponse(Response):
    type: str
    id: str
    url: str | None = None


class CitationResponse(Response):
    adapter: str
    external_ref: str = Field(alias="external_ref")
    open: OpenTargetResponse


class AttributionResponse(Response):
    version_id: str
    version: int
    status: str
    created_by_kind: str
    chunk_id: str | None = None
    owner: str | None = None
    author: str | None = None
    thread: str | None = None
    generator_agent_id: str | None = None
    provenance: str | None = None
    source_class: str | None = None
    temporal_class: str | None = None
    occurred_at: str | None = None
    valid_until: str | None = None
    evidence: EvidenceLevel | None = None
    supports: int
    contradicts: int
    derived_from: list[str] | None = None
    entity_ids: list[str] | None = None
    channels: list[Channel] | None = None


class SearchItemResponse(Response):
    document_id: str
    title: str
    snippet: str
    score: float
    kind: str
    external_ref: str
    citation: CitationResponse
    chunk_id: str | None = None
    attribution: AttributionResponse | None = None
    updated_at: str | None = None
    explain: dict[str, Any] | None = None


class FoundResponse(Response):
    """A page of hits by itself."""

    items: list[SearchItemResponse]
    evidence: EvidenceLevel | None = None
    degraded: list[str] | None = None


class SearchResponse(FoundResponse):
    next_cursor: str | None = Field(
        default=None, description="Ask with it for the hits after these; null when nothing more is known."
    )


class TimelineEventResponse(Response):
    at: str
    title: str
    source: str
    tenant_id: str
    principal_id: str
    document_id: str
    version_id: str
    kind: str
    owner: str | None = None
    author: str | None = None


class ListResponse(Response):
    events: list[TimelineEventResponse]
    next_cursor: str | None = Field(description="Ask with it for the events after these; null at the end.")


class CapabilitiesResponse(Response):
    tenant_id: str
    principal_id: str = Field(description="As whom the caller acts.")
    embeddings_configured: bool
    enforces_grants: bool
    supports_feed: bool
    supports_retention: bool
    supports_list: bool
    pending_vectors: int = Field(
        description="How many of the caller's chunks are found by their words alone until they are embedded."
    )


def error_response(error: MemoryError) -> ErrorResponse:
    details = error.details
    told = dict(details) if isinstance(details, Mapping) else list(details or ())
    return ErrorResponse(
        error=ErrorBody(code=error.code, message=error.message, **given(details=told or None))
    )


def add_response(result: AddResult) -> AddResponse:
    return AddResponse(
        document_id=result.document_id,
        version_id=result.version_id,
        version=result.version,
        status=result.status,
        chunks=result.chunks,
        **given(degraded=list(result.degraded), share=result.share and _share_receipt(result.share)),
    )


def share_response(shared: SharedDocument) -> ShareResponse:
    return ShareResponse(
        document_id=shared.document_id,
        version_id=shared.version_id,
        share=_share_receipt(shared.share),
    )


def add_batch_response(results: Sequence[AddResult | MemoryError]) -> AddBatchResponse:
    return AddBatchResponse(
        results=[
            error_response(result) if isinstance(result, MemoryError) else add_response(result)
            for result in results
        ]
    )


def search_response(result: SearchResult, *, include_evidence: bool = True) -> SearchResponse:
    """``degraded`` is told whenever something was missing, asked for or not."""
    return SearchResponse(
        items=[search_item_response(item) for item in result.items],
        next_cursor=result.next_cursor,
        **given(evidence=result.evidence if include_evidence else None, degraded=list(result.degraded)),
    )


def list_response(events: Sequence[TimelineEvent], *, limit: int) -> ListResponse:
    """A page as long as ``limit`` may have one after it."""
    return ListResponse(
        next_cursor=events[-1].cursor if len(events) == limit else None,
        events=[
            TimelineEventResponse(
                at=iso_instant(event.at),
                title=event.title,
                source=event.source,
                tenant_id=event.tenant_id,
                principal_id=event.principal_id,
                document_id=event.document_id,
                version_id=event.version_id,
                kind=event.kind,
                **given(owner=event.owner, author=event.author),
            )
            for event in events
        ],
    )


def capabilities_response(
    capabilities: StoreCapabilities, *, tenant_id: str, principal_id: str, pending_vectors: int
) -> CapabilitiesResponse:
    return CapabilitiesResponse(
        tenant_id=tenant_id,
        principal_id=principal_id,
        embeddings_configured=capabilities.embeddings_configured,
        enforces_grants=capabilities.enforces_grants,
        supports_feed=capabilities.supports_feed,
        supports_retention=capabilities.supports_retention,
        supports_list=capabilities.supports_list,
        pending_vectors=pending_vectors,
    )


def _share_receipt(receipt: ShareReceipt) -> ShareReceiptResponse:
    return ShareReceiptResponse(
        tags=list(receipt.tags),
        principals=list(receipt.principals),
        grants_materialized=receipt.grants_materialized,
        **given(reason=receipt.reason, withheld=list(receipt.withheld)),
    )


def search_item_response(item: SearchItem) -> SearchItemResponse:
    return SearchItemResponse(
        document_id=item.document_id,
        title=item.title,
        snippet=item.snippet,
        score=item.score,
        kind=item.kind,
        external_ref=item.external_ref,
        citation=_citation(item.citation),
        **given(
            chunk_id=item.chunk_id,
            attribution=item.attribution and _attribution(item.attribution, chunk_id=item.chunk_id),
            updated_at=item.updated_at and iso_instant(item.updated_at),
            explain=item.explain and dict(item.explain),
        ),
    )


def _citation(citation: Citation) -> CitationResponse:
    target = citation.open
    return CitationResponse(
        adapter=citation.adapter,
        external_ref=citation.external_ref,
        open=OpenTargetResponse(type=target.type, id=target.id, **given(url=target.url)),
    )


def _attribution(attribution: Attribution, *, chunk_id: str | None) -> AttributionResponse:
    return AttributionResponse(
        version_id=attribution.version_id,
        version=attribution.version,
        status=attribution.status,
        created_by_kind=attribution.created_by_kind,
        supports=attribution.supports,
        contradicts=attribution.contradicts,
        # null says "no end"; every other absence is told by leaving the key out.
        valid_until=iso_instant(attribution.valid_until) if attribution.valid_until else None,
        **given(
            chunk_id=chunk_id,
            owner=attribution.owner,
            author=attribution.author,
            thread=attribution.thread,
            generator_agent_id=attribution.generator_agent_id,
            provenance=attribution.provenance,
            source_class=attribution.source_class,
            temporal_class=attribution.temporal_class,
            occurred_at=attribution.occurred_at and iso_instant(attribution.occurred_at),
            evidence=attribution.evidence,
            derived_from=list(attribution.derived_from),
            entity_ids=list(attribution.entity_ids),
            channels=list(attribution.channels),
        ),
    )


def given(**values: Any) -> Mapping[str, Any]:
    """Without what is None or empty."""
    return {name: value for name, value in values.items() if value is not None and value != []}
