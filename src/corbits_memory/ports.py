"""What a host may plug in, and the values that cross those seams.

Times are aware datetimes in UTC. Sequences are tuples so that values stay frozen.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from corbits_memory.core import limits
from corbits_memory.core.enums import (
    AddStatus,
    AuditAction,
    AuditOutcome,
    AuditTarget,
    Capability,
    Channel,
    CreatedByKind,
    EdgeRel,
    Effect,
    EvidenceLevel,
    FeedOp,
    GrantOrigin,
    HintEnd,
    LineageClass,
    Provenance,
    RankingSource,
    RetentionClass,
    SearchProfile,
    TemporalClass,
    VersionStatus,
)
from corbits_memory.errors import MemoryError

Scalar = str | int | float | bool | None


# --- who ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. Comes from the host's authentication, never from a request body.

    ``capabilities`` None: the memory's grant store decides (a grant of the action on ``memory``); without a
    grant store a caller may do everything that is not an administrator's.
    """

    tenant_id: str
    principal_id: str
    capabilities: frozenset[Capability] | None = None


# --- grants ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRule:
    """One grant: who (``principal_id`` or ``role_id``) may or may not do what to which resources.

    ``resource`` and ``action`` are patterns in which ``*`` stands for any characters. ``conditions`` name
    evaluators of the host's registry, all of which must be met. ``tenant_id`` None: as the store keeps it.
    """

    id: str
    resource: str
    action: str
    effect: Effect
    origin: GrantOrigin = GrantOrigin.SYSTEM
    conditions: Mapping[str, Any] | None = None
    expires_at: datetime | None = None
    role_id: str | None = None
    principal_id: str | None = None
    tenant_id: str | None = None
    created_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionContext:
    """What a condition may look at. ``consumer`` is the tool that asks, or empty."""

    now: datetime
    resource: str
    action: str
    principal_id: str
    tenant_id: str
    consumer: str = ""


ConditionEvaluator = Callable[[Any, ConditionContext], bool | Awaitable[bool]]
"""``(the grant's value, context) -> met``, sync or async."""
ConditionRegistry = Mapping[str, ConditionEvaluator]


@runtime_checkable
class GrantStore(Protocol):
    """Where a host keeps its grants. Methods may be sync or async."""

    def collect_grants(
        self, principal_id: str, tenant_id: str
    ) -> Sequence[GrantRule] | Awaitable[Sequence[GrantRule]]:
        """The principal's own rules and those of every role that it holds, in this tenant."""
        ...


@runtime_checkable
class WritableGrantStore(GrantStore, Protocol):
    """A grant store that sharing can write to."""

    def put_grant(self, rule: GrantRule) -> Awaitable[None] | None:
        """Insert, or replace by tenant and id."""
        ...


@runtime_checkable
class RevocableGrantStore(WritableGrantStore, Protocol):
    """A grant store that unsharing can take from."""

    def delete_grant(self, tenant_id: str, grant_id: str) -> bool | Awaitable[bool]:
        """Whether there was such a grant."""
        ...


@runtime_checkable
class ResourceGrantStore(GrantStore, Protocol):
    """A grant store that can drop all grants on one resource, when the thing itself is gone."""

    def delete_resource_grants(self, tenant_id: str, resource: str) -> Any:
        """Every grant whose resource is exactly this one. Sync or async; what it answers is not looked at."""
        ...


@runtime_checkable
class VersionedGrantStore(GrantStore, Protocol):
    """A grant store that says when its grants changed, so that what was collected may be kept until then."""

    def grants_version(self, tenant_id: str) -> str | int | Awaitable[str | int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What one caller may see now: its own documents, and those that its grants reach by their tags.

    ``allowed``: the tags that a grant allows. ``everything``: all tags are allowed but the ``refused`` ones,
    and ``allowed`` says nothing. ``vetoed``: tags on which a deny without wildcard decides.
    """

    principal_id: str
    allowed: frozenset[str] = frozenset()
    vetoed: frozenset[str] = frozenset()
    everything: bool = False
    refused: frozenset[str] = frozenset()

    def admits(self, *, owner: str | None, tags: Collection[str], document_id: str) -> bool:
        """Whether a document is visible: the last line after every query.

        ``owner = principal_id OR (some tag is allowed AND no tag is vetoed)``. A deny that names the document
        (``memory.doc:<id>``) vetoes it whether it carries that tag or not.
        """
        if owner is not None and owner == self.principal_id:
            return True
        if self.everything:
            reached = any(tag not in self.refused for tag in tags)
        else:
            reached = any(tag in self.allowed for tag in tags)
        vetoed = self.vetoed
        return reached and f"memory.doc:{document_id}" not in vetoed and not any(t in vetoed for t in tags)


KnownTags = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""From patterns to the tags in use in the tenant that match one of them: what a store can look up."""


@runtime_checkable
class Access(Protocol):
    """What one caller's grants say, for the time of one request. A store enforces it on its own rows."""

    @property
    def principal_id(self) -> str: ...

    async def visibility(self, known_tags: KnownTags) -> Visibility:
        """What the caller may see. ``known_tags`` is asked only when a grant with a wildcard decides."""
        ...

    async def reaches(self, action: str, tags: Collection[str]) -> bool:
        """Whether a grant allows the action on one of these tags, and none vetoes it."""
        ...


# --- writing -----------------------------------------------------------------------------------------


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
class DocumentTags:
    """All tags that a document carries, and its newest version."""

    version_id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDocument:
    """A document after ``share`` or ``unshare``."""

    document_id: str
    version_id: str
    share: ShareReceipt


# --- finding -----------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    items: tuple[SearchItem, ...]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    embeddings_configured: bool = True
    enforces_grants: bool = False
    supports_feed: bool = False
    supports_retention: bool = False
    supports_list: bool = True


# --- lifecycle ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedDocument:
    """A document that was made from another one, and its newest version that says so."""

    document_id: str
    version_id: str
    forgotten: bool = False
    """Forgotten along with its source now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetResult:
    """``versions``: how many were forgotten now. ``derived``: what the caller may see of what was made from
    them, directly or by way of others, and is not forgotten yet or was now; at most 1,000."""

    document_id: str
    versions: int
    derived: tuple[DerivedDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """``versions``: how many rows of versions are gone. ``derived`` as in :class:`ForgetResult`."""

    document_id: str
    versions: int
    derived: tuple[DerivedDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionState:
    """A version after a change of its retention class or status."""

    version_id: str
    document_id: str
    status: str
    retention_class: RetentionClass


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    versions_deprecated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Who did what to which id, when, and what came of it. Holds no content."""

    id: str
    at: datetime
    actor_id: str
    action: AuditAction
    target_type: AuditTarget
    target_id: str
    outcome: AuditOutcome
    amount: int | None = None
    """How many of what it was about, like versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Events, newest first. ``before`` asks for the next page; None: there is none."""

    events: tuple[AuditEvent, ...]
    before: str | None = None


# --- reading by id ------------------------------------------------------------------------------------


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
    """A document with its current version. ``access_tags`` are told to its owner alone."""

    document_id: str
    adapter: str
    external_ref: str
    owner: str
    access_tags: tuple[str, ...]
    created_at: datetime
    last_seen_at: datetime
    current: VersionFacts


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


# --- feed --------------------------------------------------------------------------------------------


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


# --- the ports ---------------------------------------------------------------------------------------


@runtime_checkable
class DocumentStore(Protocol):
    """Durable documents of many tenants. The store enforces access to its own rows.

    ``access`` None: a caller sees its own documents alone.
    """

    @property
    def capabilities(self) -> StoreCapabilities: ...

    async def open(self) -> None:
        """Get ready to answer; raises :class:`~corbits_memory.errors.ConfigError` saying what to mend."""

    async def close(self) -> None: ...

    async def add(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        """Remember documents, one answer each in order; one refused document doesn't spoil the others."""
        ...

    async def search(
        self, *, tenant_id: str, principal_id: str, query: SearchQuery, access: Access | None = None
    ) -> SearchResult: ...

    async def list(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        limit: int,
        kinds: tuple[str, ...] = (),
        access: Access | None = None,
    ) -> list[TimelineEvent]: ...


@runtime_checkable
class ReadableStore(Protocol):
    """A store whose documents and versions can be read by id. Unknown and invisible are one ``NotFoundError``."""

    async def document(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None = None
    ) -> DocumentDetail: ...

    async def history(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        limit: int,
        before: int | None = None,
        access: Access | None = None,
    ) -> HistoryPage: ...

    async def version(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        limit: int,
        after: int | None = None,
        access: Access | None = None,
    ) -> VersionDetail: ...


@runtime_checkable
class TaggedStore(Protocol):
    """A store whose documents' tags can be changed after the fact; sharing and unsharing need it."""

    async def change_access_tags(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        add: Sequence[str] = (),
        add_system: Sequence[str] = (),
        remove: Sequence[str] = (),
        access: Access | None = None,
    ) -> DocumentTags:
        """Effective for the next request. Raises ``NotFoundError`` for what the caller can't see, and
        ``ForbiddenError`` unless it is the owner."""
        ...


@runtime_checkable
class RetentionStore(Protocol):
    """A store that can forget. Each call is audited there, a refused one too.

    What the caller can't see is ``NotFoundError``, what it sees and does not own ``ForbiddenError``.
    """

    async def forget(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        cascade: bool = False,
        access: Access | None = None,
    ) -> ForgetResult:
        """Erase the content of all versions; ``cascade``: of the caller's documents derived from it too."""
        ...

    async def purge(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None = None
    ) -> PurgeResult:
        """Remove the document with all that hangs on it. ``DurableDocumentError`` while a durable version is
        not forgotten."""
        ...

    async def set_retention_class(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        retention_class: RetentionClass,
        access: Access | None = None,
    ) -> VersionState: ...

    async def purge_on_demand(
        self, *, tenant_id: str, actor_id: str, document_id: str, even_durable: bool = False
    ) -> PurgeResult:
        """:meth:`purge` by an operator, whoever owns the document."""
        ...

    async def deprecate_version(self, *, tenant_id: str, actor_id: str, version_id: str) -> VersionState:
        """Take an active or superseded version out of use; ``ConflictError`` from another status."""
        ...

    async def sweep_ephemeral(
        self, *, tenant_id: str, actor_id: str, now: datetime | None = None
    ) -> SweepResult:
        """Deprecate what has expired at ``now`` (default: the store's clock)."""
        ...


@runtime_checkable
class AuditStore(Protocol):
    """A store that keeps who did what."""

    async def audit_events(
        self, *, tenant_id: str, limit: int, before: str | None = None, target_id: str | None = None
    ) -> AuditPage:
        """The newest events older than the one with the id ``before``, perhaps only those about one thing."""
        ...


EmbedPurpose = Literal["query", "passage"]


@runtime_checkable
class Embedder(Protocol):
    """An embedding model. ``model_key`` names its vector space (spec a §2)."""

    @property
    def base_url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def api_style(self) -> str: ...

    @property
    def model_key(self) -> str: ...

    @property
    def batch_size(self) -> int: ...

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose) -> list[list[float]]:
        """One vector a text, in order; no texts, no call. Raises ``EmbedError``."""
        ...

    async def dims(self) -> int:
        """Dimensions, found by embedding a probe text once."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RerankScore:
    index: int
    score: float


@runtime_checkable
class Reranker(Protocol):
    """A cross-encoder that scores documents against a query."""

    @property
    def model(self) -> str: ...

    async def rerank(self, query: str, documents: Sequence[str]) -> list[RerankScore]:
        """Scores sorted descending, fewer than sent when the model leaves some out.

        Raises :class:`~corbits_memory.errors.RerankError`. No documents, no call.
        """
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveItem:
    """One hit of a live source, under the host's own tokens."""

    adapter: str
    external_ref: str
    title: str
    snippet: str
    score: float
    kind: str
    citation: Citation
    updated_at: datetime | None = None


@runtime_checkable
class SourceProvider(Protocol):
    """Something searched live beside the memory, fail-soft within 0.8 s."""

    @property
    def id(self) -> str: ...

    async def search_live(
        self, *, query: str, tenant_id: str, principal_id: str, limit: int
    ) -> Sequence[LiveItem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedText:
    text: str
    title: str | None = None


@runtime_checkable
class TextExtractor(Protocol):
    """Turns a file's bytes into text."""

    async def extract(self, data: bytes, *, mime_type: str | None, filename: str | None) -> ExtractedText: ...


@runtime_checkable
class FeedStore(Protocol):
    """A store that numbers what happens in a tenant, in commit order and without a gap."""

    async def feed(
        self, *, tenant_id: str, principal_id: str, query: FeedQuery, access: Access | None = None
    ) -> FeedPage:
        """Raises ``InvalidCursorError`` for a number that this tenant's feed has not reached."""
        ...

    async def feed_changed(self, *, tenant_id: str, after: int, seconds: float) -> None:
        """Returns when there may be an event numbered above ``after``, at the latest after ``seconds``."""
        ...


AccessOf = Callable[[str, str], Awaitable[Access | None]]
"""``(tenant, principal) -> what its grants say now``."""


@runtime_checkable
class PushStore(Protocol):
    """A store that tells subscribers of its feed: at least once, in order, each signed."""

    def judge_by(self, access_of: AccessOf) -> None:
        """Said before it is opened: what subscribers may see. Else it is their own documents alone."""

    async def subscribe(
        self, *, tenant_id: str, principal_id: str, subscription: NewSubscription
    ) -> CreatedSubscription:
        """``principal_id`` is who asks. Raises ``InvalidInputError``, ``InvalidCursorError``, ``ConflictError``."""
        ...

    async def subscriptions(self, *, tenant_id: str) -> Sequence[Subscription]: ...

    async def unsubscribe(self, *, tenant_id: str, subscription_id: str) -> None:
        """Raises ``NotFoundError``, as the others that name one do."""

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int, limit: int
    ) -> Sequence[DeadLetter]: ...

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None) -> int:
        """Have dead letters sent again, all or some; how many."""
        ...
