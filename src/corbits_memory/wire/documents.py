"""What reads by id answer."""

from typing import Annotated, Any

from pydantic import Field

from corbits_memory.core import limits
from corbits_memory.core.instants import iso_instant
from corbits_memory.ports import (
    DocumentDetail,
    HistoryEntry,
    HistoryPage,
    LookupPage,
    VersionDetail,
    VersionFacts,
)
from corbits_memory.wire import fields
from corbits_memory.wire.requests import Request
from corbits_memory.wire.responses import Response, given


class VersionFactsResponse(Response):
    version_id: str
    version: int
    status: str
    title: str
    kind: str
    attributes: dict[str, Any]
    language: str
    occurred_at: str
    ingested_at: str
    created_by_kind: str
    provenance: str
    source_class: str
    temporal_class: str
    retention_class: str
    thread: str | None = None
    author: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    created_by_principal_id: str | None = None
    generator_agent_id: str | None = None


class DocumentResponse(Response):
    document_id: str
    adapter: str
    external_ref: str
    owner: str
    created_at: str
    last_seen_at: str
    current: VersionFactsResponse
    access_tags: list[str] | None = Field(None, description="All tags; for its owner alone.")
    text: str | None = Field(None, description="As it came in, where a look-up asked for it.")


class LookupRequest(Request):
    """Which documents of a source: those named, or all whose references begin alike."""

    adapter: fields.Id
    external_refs: Annotated[list[fields.ExternalRef], Field(max_length=limits.LOOKUP_REFS)] | None = None
    prefix: fields.ExternalRef | None = Field(None, description="How their references begin.")
    after: fields.ExternalRef | None = Field(None, description="`nextAfter` of the page before.")
    limit: Annotated[int, Field(ge=1, le=limits.LOOKUP_LIMIT_MAX)] | None = Field(
        None, description=f"Default {limits.LOOKUP_LIMIT_DEFAULT}."
    )
    include_text: bool | None = Field(
        None,
        description=f"A page of texts ends before the one beyond {limits.LOOKUP_TEXT_BYTES:,} bytes, if not the first.",
    )


class LookupResponse(Response):
    documents: list[DocumentResponse]
    next_after: str | None = Field(None, description="Absent on the last page.")


class HistoryEntryResponse(VersionFactsResponse):
    superseded_at: str | None = None
    deprecated_at: str | None = None
    deprecated_reason: str | None = None
    changed: list[str] = Field(description="Fields that differ from the version before; none for the first.")


class HistoryResponse(Response):
    document_id: str
    versions: list[HistoryEntryResponse]
    next_before: int | None = Field(None, description="Absent on the last page.")


class VersionTextResponse(Response):
    chunk_id: str
    ordinal: int
    text: str
    role: str | None = None


class VersionResponse(VersionFactsResponse):
    document_id: str
    adapter: str
    external_ref: str
    owner: str
    text: list[VersionTextResponse]
    superseded_at: str | None = None
    deprecated_at: str | None = None
    deprecated_reason: str | None = None
    supersedes_version_id: str | None = None
    derived_from: list[str] | None = None
    supports: list[str] | None = None
    contradicts: list[str] | None = None
    next_after: int | None = Field(None, description="Absent on the last page.")


def document_response(document: DocumentDetail) -> DocumentResponse:
    return DocumentResponse(
        document_id=document.document_id,
        adapter=document.adapter,
        external_ref=document.external_ref,
        owner=document.owner,
        created_at=iso_instant(document.created_at),
        last_seen_at=iso_instant(document.last_seen_at),
        current=VersionFactsResponse(**_facts(document.current)),
        **given(access_tags=list(document.access_tags), text=document.text),
    )


def lookup_response(page: LookupPage) -> LookupResponse:
    return LookupResponse(
        documents=[document_response(document) for document in page.documents],
        **given(next_after=page.next_after),
    )


def history_response(page: HistoryPage) -> HistoryResponse:
    return HistoryResponse(
        document_id=page.document_id,
        versions=[
            HistoryEntryResponse(
                **_facts(entry.facts), **_endings(entry), changed=[_NAMES.get(n, n) for n in entry.changed]
            )
            for entry in page.entries
        ],
        **given(next_before=page.next_before),
    )


def version_response(version: VersionDetail) -> VersionResponse:
    return VersionResponse(
        **_facts(version.facts),
        **_endings(version),
        document_id=version.document_id,
        adapter=version.adapter,
        external_ref=version.external_ref,
        owner=version.owner,
        text=[
            VersionTextResponse(
                chunk_id=part.chunk_id, ordinal=part.ordinal, text=part.text, **given(role=part.role)
            )
            for part in version.text
        ],
        **given(
            supersedes_version_id=version.supersedes_version_id,
            derived_from=list(version.derived_from),
            supports=list(version.supports),
            contradicts=list(version.contradicts),
            next_after=version.next_after,
        ),
    )


_NAMES = {
    "access_tags": "accessTags",
    "occurred_at": "occurredAt",
    "valid_from": "validFrom",
    "valid_until": "validUntil",
    "source_class": "sourceClass",
    "temporal_class": "temporalClass",
    "retention_class": "retentionClass",
    "generator_agent_id": "generatorAgentId",
}


def _facts(facts: VersionFacts) -> dict[str, Any]:
    return {
        "version_id": facts.version_id,
        "version": facts.version,
        "status": facts.status,
        "title": facts.title,
        "kind": facts.kind,
        "attributes": dict(facts.attributes),
        "language": facts.language,
        "occurred_at": iso_instant(facts.occurred_at),
        "ingested_at": iso_instant(facts.ingested_at),
        "created_by_kind": facts.created_by_kind,
        "provenance": facts.provenance,
        "source_class": facts.source_class,
        "temporal_class": facts.temporal_class,
        "retention_class": facts.retention_class,
        **given(
            thread=facts.thread,
            author=facts.author,
            valid_from=facts.valid_from and iso_instant(facts.valid_from),
            valid_until=facts.valid_until and iso_instant(facts.valid_until),
            created_by_principal_id=facts.created_by_principal_id,
            generator_agent_id=facts.generator_agent_id,
        ),
    }


def _endings(of: HistoryEntry | VersionDetail) -> dict[str, Any]:
    return dict(
        given(
            superseded_at=of.superseded_at and iso_instant(of.superseded_at),
            deprecated_at=of.deprecated_at and iso_instant(of.deprecated_at),
            deprecated_reason=of.deprecated_reason,
        )
    )
