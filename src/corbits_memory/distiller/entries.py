"""What a distiller reads, and what may come of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corbits_memory.core.enums import CreatedByKind, LineageClass, Provenance, TemporalClass, VersionStatus
from corbits_memory.wire.feed import FeedEntryResponse
from corbits_memory.wire.responses import AddResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillEntry:
    """A version as the feed tells it. ``access_tags``: all that a claim made from it may have.

    ``text_truncated``: the text is longer than a page of the feed carries.
    """

    seq: int
    version_id: str
    document_id: str | None = None
    kind: str = "note"
    title: str = ""
    text: str = ""
    text_truncated: bool = False
    status: VersionStatus = VersionStatus.ACTIVE
    created_by_kind: CreatedByKind = CreatedByKind.SYSTEM
    generator_agent_id: str | None = None
    provenance: Provenance = Provenance.UNKNOWN
    source_class: LineageClass = LineageClass.NATIVE
    occurred_at: str | None = None
    access_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Nothing worth a claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """An entry that must not be distilled; tried again only when somebody asks for it."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One claim. ``supports`` and ``contradicts`` are ids of versions that it speaks for or against."""

    title: str
    text: str
    kind: str | None = None
    temporal_class: TemporalClass | str | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()


Outcome = Skip | Poison | Write
Distill = Callable[[DistillEntry], Outcome | Awaitable[Outcome]]
"""The inference, a host's own; sync or async. What it raises says that it failed, and ``DistillUnavailableError``
that it can't work at all now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """An entry that was given up, after how many attempts, and why."""

    seq: int
    version_id: str
    reason: str
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """A claim as it was sent, and what the memory answered."""

    seq: int
    claim: dict[str, object]
    answer: AddResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillTick:
    """What came of one page. ``next_cursor``: everything up to it is dealt with.

    ``processed`` counts the page's entries, ``skipped`` those that a gate or the inference passed over.
    """

    next_cursor: int
    processed: int = 0
    skipped: int = 0
    wrote: tuple[Wrote, ...] = ()
    poisoned: tuple[Poisoned, ...] = ()
    has_more: bool = False


def read_entry(told: FeedEntryResponse) -> DistillEntry | None:
    """An entry with defaults for what was not told; None for one that is no version."""
    if told.version_id is None:
        return None
    return DistillEntry(
        seq=told.feed_seq,
        version_id=told.version_id,
        document_id=told.document_id,
        kind=told.kind or "note",
        title=told.title or "",
        text=told.text or "",
        text_truncated=bool(told.text_truncated),
        status=told.status or VersionStatus.ACTIVE,
        created_by_kind=told.created_by_kind or CreatedByKind.SYSTEM,
        generator_agent_id=told.generator_agent_id,
        provenance=told.provenance or Provenance.UNKNOWN,
        source_class=told.source_class or LineageClass.NATIVE,
        occurred_at=told.occurred_at,
        access_tags=tuple(told.access_tags or ()),
    )
