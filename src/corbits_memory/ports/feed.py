"""What was written, in order, and who has it sent."""

from dataclasses import dataclass, field
from datetime import datetime

from corbits_memory.core import limits
from corbits_memory.core.enums import CreatedByKind, FeedOp, LineageClass, VersionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedQuery:
    """What of the feed is asked for: entries numbered above ``after``, at most ``limit`` of them."""

    after: int = 0
    limit: int = limits.FEED_LIMIT_DEFAULT
    ops: frozenset[FeedOp] = frozenset({FeedOp.UPSERT})
    exclude_generator: str | None = None
    """Without the versions that this agent made."""
    include_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEntry:
    """One event, ``seq`` being its number. A retraction has its ids alone, a promotion nothing more."""

    seq: int
    op: FeedOp
    at: datetime
    version_id: str | None = None
    document_id: str | None = None
    version: "FeedVersion | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedVersion:
    """What an upsert tells of its version. ``access_tags``: those of the document now, and of a superseded
    version the ones that it had too. ``text`` only when asked for."""

    kind: str
    title: str
    status: VersionStatus
    created_by_kind: CreatedByKind
    generator_agent_id: str | None
    provenance: str
    source_class: LineageClass = LineageClass.NATIVE
    occurred_at: datetime
    created_at: datetime
    access_tags: tuple[str, ...]
    text: str | None = None
    text_truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Entries in order. ``next_cursor`` is what to ask after next; None: there is nothing new, keep the old one.

    A page counts entries before the caller's access is looked at, so it may be empty and not the last.
    ``position`` is where a follower goes on: at least ``next_cursor``, with what was passed over.
    """

    entries: tuple[FeedEntry, ...]
    next_cursor: int | None
    has_more: bool
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscription:
    """Whom to tell of the feed: what ``principal_id`` may see goes to ``url``. ``after`` None: from now on."""

    url: str
    principal_id: str
    ops: frozenset[FeedOp] = frozenset({FeedOp.UPSERT})
    exclude_generator: str | None = None
    include_text: bool = False
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A webhook as it stands. ``position``: everything up to this number was dealt with; ``failures`` of the
    entry that comes next; ``dead``: how many entries were given up."""

    id: str
    url: str
    principal_id: str
    created_by: str
    ops: tuple[FeedOp, ...]
    exclude_generator: str | None
    include_text: bool
    position: int
    failures: int
    last_error: str | None
    last_delivered_at: datetime | None
    created_at: datetime
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSubscription:
    """A subscription at its birth, the only time that the secret of its signatures is told."""

    subscription: Subscription
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An entry that could not be delivered. ``op`` None: the feed has no such entry any more."""

    seq: int
    op: FeedOp | None
    version_id: str | None
    failures: int
    error: str
    failed_at: datetime
