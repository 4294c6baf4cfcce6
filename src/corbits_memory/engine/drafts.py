"""From a validated document to the rows it becomes: everything that can be settled before the database is asked."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from corbits_memory.access.tags import document_tag, resolve_access_tags, shared_peers
from corbits_memory.chunkers import chunker
from corbits_memory.core import hashing, ids, planning
from corbits_memory.core.authority import authority
from corbits_memory.core.enums import RetentionClass
from corbits_memory.core.planning import PlannedChunk, ResolvedAttribution
from corbits_memory.core.strategies import DEFAULT_CUTTING, Cutting
from corbits_memory.core.text import ends_with_question, normalise, word_count
from corbits_memory.engine.ids import new_id
from corbits_memory.errors import InvalidAdaptedDocumentError
from corbits_memory.ports import NewDocument

Row = dict[str, Any]

WORD_COUNT_CHARS = 600
"""Length counts in ranking up to about fifty words; counting on would change nothing."""


@dataclass(slots=True)
class Draft:
    """One document on its way in. ``document_id`` and what follows it are settled by the database."""

    position: int
    document: NewDocument
    external_ref: str
    language: str
    occurred_at: datetime
    attribution: ResolvedAttribution
    chunks: tuple[PlannedChunk, ...]
    head: str
    """Title and author, normalised."""
    analysed: list[Row]
    cutting: Cutting
    """What it is cut by: those of the generation that it goes into."""
    content_hash: str
    access_tags: list[str] | None
    """Asked for: the caller's own; None leaves those of a known document as they are."""
    system_tags: list[str] | None
    """Asked for by sharing; None where nothing was."""
    peers: list[str]
    """Principals to share with, without the caller."""
    owner: str
    document_id: str
    version_id: str = ""
    version: int = 1
    supersedes: str | None = None
    source_hash: str = ""
    thread_seq: int = 0
    chunk_ids: list[str] = field(default_factory=list)
    own_tags: list[str] = field(default_factory=list)
    """Settled: what the document shall carry of the caller's own tags."""
    shared_tags: list[str] = field(default_factory=list)
    """Settled: what it shall carry of the system's."""
    readers: frozenset[str] | None = None
    """The tags that sources of somebody else leave it; None: any."""
    withheld: list[str] = field(default_factory=list)
    """Tags and peers that a source of somebody else doesn't have among its readers."""
    retagged: bool = False
    retention_class: RetentionClass = RetentionClass.STANDARD
    """As asked for; that of the document where somebody else adds to it."""
    searched_tags: list[str] | None = None
    """Of a copy: what its document carries now. None: what the version is written with."""

    @property
    def key(self) -> tuple[str, str]:
        return self.document.adapter, self.external_ref

    @property
    def tags(self) -> list[str]:
        return self.own_tags + self.shared_tags

    @property
    def references(self) -> Sequence[str]:
        return (*self.document.derived_from, *self.document.supports, *self.document.contradicts)


def draft_document(
    document: NewDocument,
    *,
    position: int,
    tenant_id: str,
    principal_id: str,
    language: str,
    now: datetime,
    cutting: Cutting = DEFAULT_CUTTING,
) -> Draft:
    """Plan a document: defaults, chunks, hashes. Raises ``InvalidAdaptedDocumentError``."""
    if not document.title.strip() or not document.kind.strip():
        raise InvalidAdaptedDocumentError
    attribution = planning.resolve_attribution(
        generator_agent_id=document.generator_agent_id,
        created_by_kind=document.created_by_kind,
        provenance=document.provenance,
        lineage_class=document.lineage_class,
        temporal_class=document.temporal_class,
    )
    external_ref = document.external_ref or f"memory:{tenant_id}:{uuid.uuid4()}"
    chunks = _plan(document, cutting)
    return Draft(
        position=position,
        document=document,
        external_ref=external_ref,
        language=document.language or language,
        occurred_at=document.occurred_at or now,
        attribution=attribution,
        chunks=chunks,
        head=normalise(head_text(document.title, document.author)),
        analysed=_analyse(chunks),
        cutting=cutting,
        content_hash=_content_hash(document, external_ref, attribution),
        **_asked(document, tenant_id, principal_id),
    )


def planned_again(draft: Draft, tenant_id: str, principal_id: str) -> Draft:
    """The draft as it was planned, for another transaction: nothing of what one that failed settled holds there."""
    return Draft(
        position=draft.position,
        document=draft.document,
        external_ref=draft.external_ref,
        language=draft.language,
        occurred_at=draft.occurred_at,
        attribution=draft.attribution,
        chunks=draft.chunks,
        head=draft.head,
        analysed=draft.analysed,
        cutting=draft.cutting,
        content_hash=draft.content_hash,
        **_asked(draft.document, tenant_id, principal_id),
    )


def _asked(document: NewDocument, tenant_id: str, principal_id: str) -> dict[str, Any]:
    """Fields of a draft that the database settles, as the caller asks for them."""
    own = list(dict.fromkeys(tag.strip() for tag in document.access_tags or () if tag.strip()))
    share = document.share
    shared = () if share is None else resolve_access_tags(principal_id, tenant_id, None, share)
    return {
        "access_tags": None if document.access_tags is None else own,
        "system_tags": None if share is None else [tag for tag in shared if tag not in own],
        "peers": [] if share is None else list(shared_peers(principal_id, share)),
        "owner": principal_id,
        "document_id": new_id(ids.DOCUMENT),
        "retention_class": document.retention_class,
    }


def cut_anew(planned: Sequence[Draft], cutting: Cutting) -> None:
    """Other chunks, for drafts that go into another generation than they were planned for."""
    for draft in planned:
        chunks = _plan(draft.document, cutting)
        draft.cutting, draft.chunks, draft.analysed = cutting, chunks, _analyse(chunks)


def document_row(draft: Draft, principal_id: str, tenant_id: str) -> Row:
    """The row of ``claim_documents``: what a new document starts with."""
    document = draft.document
    own = draft.access_tags or []
    system = draft.system_tags or resolve_access_tags(principal_id, tenant_id)
    return {
        "position": draft.position,
        "id": draft.document_id,
        "kind": document.kind,
        "title": document.title,
        "adapter": document.adapter,
        "external_ref": draft.external_ref,
        "access_tags": own,
        "system_tags": [
            # A tag stands once: else a repeat would seem to move it.
            *(tag for tag in system if tag not in own),
            *([document_tag(draft.document_id)] if draft.peers else ()),
        ],
        "attributes": dict(document.attributes),
        "thread": document.thread,
        "author": document.author,
    }


def raw_capture(draft: Draft) -> Row:
    """The row of ``keep_raw_captures``, without an id: the payload as received.

    Settles the draft's ``source_hash``, which makes an identical one the same capture: that is
    :func:`hashing.source_hash` of the same fields, without writing them out a second time.
    """
    occurred_at = iso(draft.occurred_at)
    payload = hashing.canonical_json(
        {"adapter": draft.document.adapter, "occurredAt": occurred_at, "document": _payload(draft)}
    )
    draft.source_hash = hashing.sha256_hex(payload)
    return {
        "adapter": draft.document.adapter,
        "external_ref": draft.external_ref,
        "raw_text": payload,
        "occurred_at": occurred_at,
        "source_hash": draft.source_hash,
    }


def version_row(draft: Draft) -> Row:
    document, attribution = draft.document, draft.attribution
    return {
        "id": draft.version_id,
        "document_id": draft.document_id,
        "version": draft.version,
        "supersedes": draft.supersedes,
        "content_hash": draft.content_hash,
        "title": document.title,
        "head": draft.head,
        "kind": document.kind,
        "attributes": dict(document.attributes),
        "owner": draft.owner,
        "tags": draft.tags,
        "access_tags": draft.own_tags,
        "system_tags": draft.shared_tags,
        "thread": document.thread,
        "author": document.author,
        "language": draft.language,
        "occurred_at": draft.occurred_at.isoformat(),
        "created_by_kind": attribution.created_by_kind,
        "generator_agent_id": document.generator_agent_id,
        "authority": authority(
            attribution.created_by_kind,
            document.actor_count,
            document.ranking_source,
            document.has_social_signal,
        ),
        "actor_count": document.actor_count,
        "has_social_signal": document.has_social_signal,
        "source_class": attribution.lineage_class,
        "source_hash": draft.source_hash,
        "provenance": attribution.provenance,
        "temporal_class": attribution.temporal_class,
        "valid_from": _optional_iso(document.valid_from),
        "valid_until": _optional_iso(document.valid_until),
        "retention_class": draft.retention_class,
    }


def chunk_rows(draft: Draft) -> list[Row]:
    """Rows of ``insert_texts`` and of ``insert_chunks``."""
    context = draft.document.thread or (draft.document_id if len(draft.chunks) > 1 else None)
    settled = {
        "version_id": draft.version_id,
        "document_id": draft.document_id,
        "thread_seq": draft.thread_seq,
        "context_key": context,
        **({} if draft.searched_tags is None else {"tags": draft.searched_tags}),
    }
    return [
        {"id": chunk_id, **settled, **analysed}
        for chunk_id, analysed in zip(draft.chunk_ids, draft.analysed, strict=True)
    ]


def _plan(document: NewDocument, cutting: Cutting) -> tuple[PlannedChunk, ...]:
    parts = [(part.text, part.role) for part in document.parts]
    return planning.plan_chunks(parts, cutting.caps, chunker(cutting.strategy))


def _analyse(chunks: Sequence[PlannedChunk]) -> list[Row]:
    """What of a chunk's row depends on its text alone; the costly part of a long document."""
    return [
        {
            "ordinal": chunk.ordinal,
            "text": chunk.text,
            "role": chunk.role,
            "token_count": chunk.token_count,
            "body": normalise(chunk.text),
            "words": word_count(chunk.text[:WORD_COUNT_CHARS]),
            "asks": ends_with_question(chunk.text),
        }
        for chunk in chunks
    ]


def iso(instant: datetime) -> str:
    """Milliseconds and Z, as the payloads and answers have it."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _optional_iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def head_text(title: str, author: str | None) -> str:
    """Title and author; an author whom the title names counts once."""
    author = author or ""
    if author.casefold() in title.casefold():
        return title
    return f"{title}\n{author}"


def _content_hash(document: NewDocument, external_ref: str, attribution: ResolvedAttribution) -> str:
    return hashing.noop_key(
        hashing.ContentFields(
            title=document.title,
            kind=document.kind,
            external_ref=external_ref,
            attributes=document.attributes,
            parts=[(part.text, part.role) for part in document.parts],
            thread=document.thread,
            author=document.author,
            provenance=attribution.provenance,
            lineage_class=attribution.lineage_class,
            temporal_class=attribution.temporal_class,
            retention_class=document.retention_class,
            valid_from=document.valid_from,
            valid_until=document.valid_until,
            derived_from=document.derived_from,
            supports=document.supports,
            contradicts=document.contradicts,
            entity_hints=[(hint.kind, hint.identifier, hint.label) for hint in document.entity_hints],
            edges=[(edge.rel, edge.type, edge.ref) for edge in document.edges],
            generator_agent_id=document.generator_agent_id,
            language=document.language,
            occurred_at=document.occurred_at,
        )
    )


def _payload(draft: Draft) -> Row:
    """The adapted document in its wire spelling; what a replay reads. Absent fields are left out."""
    document = draft.document
    fields: Row = {
        "kind": document.kind,
        "title": document.title,
        "externalRef": draft.external_ref,
        "accessTags": draft.tags,
        "attributes": dict(document.attributes) or None,
        "entityHints": [
            {k: v for k, v in (("kind", h.kind), ("identifier", h.identifier), ("label", h.label)) if v}
            for h in document.entity_hints
        ],
        "edges": [{"rel": e.rel, "to": {"type": e.type, "ref": e.ref}} for e in document.edges] or None,
        "chunks": [
            {"ordinal": ordinal, "text": part.text} | ({"role": part.role} if part.role else {})
            for ordinal, part in enumerate(document.parts)
        ],
        "actor": {"kind": draft.attribution.created_by_kind}
        | ({"agentId": document.generator_agent_id} if document.generator_agent_id else {}),
        "actorCount": document.actor_count if document.actor_count != 1 else None,
        "sourceClass": document.ranking_source if document.ranking_source != "native" else None,
        "hasSocialSignal": document.has_social_signal or None,
        "lineageClass": draft.attribution.lineage_class,
        "provenance": draft.attribution.provenance,
        "temporalClass": draft.attribution.temporal_class,
        "retentionClass": draft.retention_class,
        "validFrom": _optional_iso(document.valid_from),
        "validUntil": _optional_iso(document.valid_until),
        "derivedFrom": list(document.derived_from) or None,
        "supports": list(document.supports) or None,
        "contradicts": list(document.contradicts) or None,
        "thread": document.thread,
        "author": document.author,
        "language": document.language,
        "contentHash": "",
    }
    return {name: value for name, value in fields.items() if value is not None}
