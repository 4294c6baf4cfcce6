"""What callers hand in, before it is checked.

The annotations say what is meant; a value that came off a wire may be anything until
:mod:`corbits_memory.validation` has looked at it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from corbits_memory.core.enums import (
    CreatedByKind,
    LineageClass,
    MinEvidence,
    Provenance,
    RetentionClass,
    SearchProfile,
    TemporalClass,
)
from corbits_memory.core.limits import SEARCH_LIMIT_DEFAULT
from corbits_memory.ports import Scalar, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A document as text."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A document as a file; the host's text extractor reads it."""

    data: bytes
    mime_type: str | None = None
    filename: str | None = None
    title: str | None = None
    """Wins over the title that the extractor finds, and that over the file name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddInput:
    """One document for ``add`` or ``add_batch``: exactly one of ``content`` and ``file``.

    The fields are those of :meth:`corbits_memory.plane.Memory.add`, which describes them.
    """

    content: Content | None = None
    file: File | None = None
    kind: str | None = None
    adapter: str | None = None
    external_ref: str | None = None
    access_tags: Sequence[str] | None = None
    share: Share | None = None
    attributes: Mapping[str, Scalar] | None = None
    generator_agent_id: str | None = None
    created_by_kind: CreatedByKind | str | None = None
    """What kind of actor made it; for code in this process alone, no door takes it. Default: by the generator."""
    provenance: Provenance | str | None = None
    lineage_class: LineageClass | str | None = None
    temporal_class: TemporalClass | str | None = None
    retention_class: RetentionClass | str | None = None
    derived_from: Sequence[str] | None = None
    supports: Sequence[str] | None = None
    contradicts: Sequence[str] | None = None
    valid_from: datetime | str | None = None
    valid_until: datetime | str | None = None
    occurred_at: datetime | str | None = None
    thread: str | None = None
    author: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInput:
    """One search; the fields are those of :meth:`corbits_memory.plane.Memory.search`."""

    query: str
    limit: int | None = SEARCH_LIMIT_DEFAULT
    kinds: Sequence[str] | None = None
    entity_ids: Sequence[str] | None = None
    sources: Sequence[str] | None = None
    include_deprecated: bool | None = False
    include_evidence: bool | None = True
    """Whether a door tells ``evidence``; the plane always has it."""
    profile: SearchProfile | str | None = None
    generation: str | None = None
    explain: bool | None = False
    occurred_after: datetime | str | None = None
    occurred_before: datetime | str | None = None
    attributes: Mapping[str, Scalar] | None = None
    max_per_document: int | None = 1
    valid_at: datetime | str | None = None
    as_of: datetime | str | None = None
    sample: bool | None = True
    min_evidence: MinEvidence | str | None = None
    cursor: str | None = None
