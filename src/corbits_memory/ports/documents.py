"""What goes in, what came of it, and what can be read back by id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from corbits_memory.core import limits
from corbits_memory.core.enums import (
    AddStatus,
    CreatedByKind,
    EdgeRel,
    HintEnd,
    LineageClass,
    Provenance,
    RankingSource,
    RetentionClass,
    TemporalClass,
)

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Sharing sugar of ``add``: the whole tenant, named principals, extra tags.

    ``required``: refuse the document when no grant can be written for the principals, instead of keeping it
    unshared and saying so.
    """

    tenant: bool = False
    principals: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityHint:
    kind: str
    identifier: str
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeHint:
    """An edge from the document to something. ``type`` native names a principal."""

    rel: EdgeRel
    type: HintEnd
    ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One incoming chunk of a document; ``role`` is who or what speaks in it."""

    text: str
    role: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """One document to remember, already validated by the plane.

    ``parts`` hold the text in order. ``access_tags`` None means "unchanged" on a repeat. ``occurred_at``
    None means now, and then takes no part in the no-op comparison.
    """

    title: str
    parts: tuple[TextPart, ...]
    kind: str = "note"
    adapter: str = "http"
    external_ref: str | None = None
    access_tags: tuple[str, ...] | None = None
    share: Share | None = None
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    generator_agent_id: str | None = None
    created_by_kind: CreatedByKind | None = None
    provenance: Provenance | None = None
    lineage_class: LineageClass | None = None
    temporal_class: TemporalClass | None = None
    retention_class: RetentionClass = RetentionClass.STANDARD
    derived_from: tuple[str, ...] = ()
    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    occurred_at: datetime | None = None
    thread: str | None = None
    author: str | None = None
    language: str | None = None
    entity_hints: tuple[EntityHint, ...] = ()
    edges: tuple[EdgeHint, ...] = ()
    actor_count: int = 1
    ranking_source: RankingSource = RankingSource.NATIVE
    has_social_signal: bool = False

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReceipt:
    """What became of a share request.

    ``tags`` are all that the document carries now, ``principals`` those asked for. ``withheld``: tags and
    principals that would show a claim to more readers than a source of somebody else has.
    """

    tags: tuple[str, ...]
    principals: tuple[str, ...] = ()
    grants_materialized: bool = False
    reason: str | None = None
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddResult:
    document_id: str
    version_id: str
    version: int
    status: AddStatus
    chunks: int
    degraded: tuple[str, ...] = ()
    share: ShareReceipt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A request to add that may come again: 32 bytes that stand for its key, and 32 for what it asks.

    Both are hashes, the second one keyed by the key: neither tells anything of the documents.
    """

    key: bytes
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentTags:
    """All tags that a document carries, and its newest version.

    ``withheld``: tags that were asked for and would show a claim to more readers than its sources have.
    """

    version_id: str
    tags: tuple[str, ...]
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDocument:
    """A document after ``share`` or ``unshare``."""

    document_id: str
    version_id: str
    share: ShareReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What a version says of itself, its text apart."""

    version_id: str
    version: int
    status: str
    title: str
    kind: str
    attributes: Mapping[str, Scalar]
    thread: str | None
    author: str | None
    language: str
    occurred_at: datetime
    ingested_at: datetime
    valid_from: datetime | None
    valid_until: datetime | None
    created_by_principal_id: str | None
    created_by_kind: str
    generator_agent_id: str | None
    provenance: str
    source_class: str
    temporal_class: str
    retention_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentDetail:
    """A document with its current version. ``access_tags`` are told to its owner alone.

    ``text``: as it came in, where that was asked for.
    """

    document_id: str
    adapter: str
    external_ref: str
    owner: str
    access_tags: tuple[str, ...]
    created_at: datetime
    last_seen_at: datetime
    current: VersionFacts
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupQuery:
    """Documents of one source: those with these references, or all whose references begin alike.

    ``after`` is a reference, exclusive.
    """

    adapter: str
    external_refs: tuple[str, ...] = ()
    prefix: str = ""
    after: str = ""
    limit: int = limits.LOOKUP_LIMIT_DEFAULT
    include_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPage:
    """Documents by reference, in byte order. ``next_after`` asks for the next page; None on the last."""

    documents: tuple[DocumentDetail, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A version and which of its fields differ from the version before it (none for the first)."""

    facts: VersionFacts
    superseded_at: datetime | None
    deprecated_at: datetime | None
    deprecated_reason: str | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Versions, newest first. ``next_before`` asks for the next page; None on the last."""

    document_id: str
    entries: tuple[HistoryEntry, ...]
    next_before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionText:
    """One chunk of a version."""

    chunk_id: str
    ordinal: int
    text: str
    role: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDetail:
    """A version with a page of its text. ``next_after`` asks for the next page; None on the last."""

    document_id: str
    adapter: str
    external_ref: str
    owner: str
    facts: VersionFacts
    superseded_at: datetime | None
    deprecated_at: datetime | None
    deprecated_reason: str | None
    supersedes_version_id: str | None
    text: tuple[VersionText, ...]
    next_after: int | None
    derived_from: tuple[str, ...]
    supports: tuple[str, ...]
    contradicts: tuple[str, ...]
