"""What is asked, and what is found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corbits_memory.core import limits
from corbits_memory.core.enums import Channel, EvidenceLevel, MinEvidence, SearchProfile
from corbits_memory.core.positions import TimelinePosition
from corbits_memory.core.shown import NOTHING_SHOWN, Shown
from corbits_memory.ports.documents import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """One validated search. Empty filter tuples mean "no filter"."""

    query: str
    limit: int = limits.SEARCH_LIMIT_DEFAULT
    kinds: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    include_deprecated: bool = False
    profile: SearchProfile | None = None
    """None: the profile that the store is configured with."""
    generation: str | None = None
    explain: bool = False
    occurred_after: datetime | None = None
    occurred_before: datetime | None = None
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    max_per_document: int = 1
    valid_at: datetime | None = None
    """Only what says that it holds at this instant; what says nothing of it always holds."""
    as_of: datetime | None = None
    """What was there at this instant, in the versions of then; None: now."""
    sample: bool = True
    """Whether it may be kept as a question that was asked, where some are."""
    min_evidence: MinEvidence | None = None
    """Only hits whose own evidence is at least this."""
    shown: Shown = NOTHING_SHOWN
    """What the pages before this one showed: it counts for ``max_per_document`` and doesn't come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTarget:
    type: str
    id: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    adapter: str
    external_ref: str
    open: OpenTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Who says it, from when, how sure."""

    version_id: str
    version: int
    status: str
    created_by_kind: str
    owner: str | None = None
    author: str | None = None
    thread: str | None = None
    generator_agent_id: str | None = None
    provenance: str | None = None
    source_class: str | None = None
    temporal_class: str | None = None
    occurred_at: datetime | None = None
    valid_until: datetime | None = None
    evidence: EvidenceLevel | None = None
    supports: int = 0
    contradicts: int = 0
    derived_from: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()
    channels: tuple[Channel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchItem:
    document_id: str
    chunk_id: str | None
    title: str
    snippet: str
    score: float
    kind: str
    adapter: str
    external_ref: str
    citation: Citation
    attribution: Attribution | None = None
    updated_at: datetime | None = None
    explain: Mapping[str, Any] | None = None
    """Each part of the score by name, when the query asked to explain."""
    text: str | None = None
    """All of the passage that the snippet is a part of, where the store has it at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    items: tuple[SearchItem, ...]
    evidence: EvidenceLevel
    degraded: tuple[str, ...] = ()
    more: bool = False
    """The store's word that it may have hits after these, and leaves out what a query says was ``shown``."""
    next_cursor: str | None = None
    """What the plane answers to ask with for the hits after these; None when nothing more is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery:
    """One validated ``list``. An empty tuple of kinds means all."""

    limit: int = limits.LIST_LIMIT_DEFAULT
    kinds: tuple[str, ...] = ()
    after: TimelinePosition | None = None
    """Where the page before ended."""
    occurred_after: datetime | None = None
    occurred_before: datetime | None = None
    as_of: datetime | None = None
    """What was there at this instant, in the versions of then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextItem:
    """A hit in a context, which cites it as ``[marker]``."""

    item: SearchItem
    marker: int
    tokens: int
    """Of its text in the block, the heading not counted."""
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextResult:
    """Hits as one block of text of at most ``max_tokens``. ``omitted``: hits for which there was no room."""

    text: str
    tokens: int
    max_tokens: int
    items: tuple[ContextItem, ...]
    omitted: tuple[SearchItem, ...]
    evidence: EvidenceLevel
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """One row of ``list``. ``principal_id`` is the caller (a contract); ``owner`` is the real author."""

    at: datetime
    title: str
    source: str
    tenant_id: str
    principal_id: str
    document_id: str
    version_id: str
    kind: str
    owner: str | None = None
    author: str | None = None

    @property
    def cursor(self) -> str:
        """What to ask with for the events after this one."""
        return str(TimelinePosition(self.at, self.version_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    embeddings_configured: bool = True
    enforces_grants: bool = False
    supports_feed: bool = False
    supports_retention: bool = False
    supports_list: bool = True
