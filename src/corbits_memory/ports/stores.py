"""The document store, and what more a store may be able to do."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from corbits_memory.core.enums import DeprecatedReason, RetentionClass
from corbits_memory.errors import MemoryError
from corbits_memory.ports.access import Access
from corbits_memory.ports.documents import (
    AddResult,
    DocumentDetail,
    DocumentTags,
    HistoryPage,
    LookupPage,
    LookupQuery,
    NewDocument,
    Once,
    VersionDetail,
)
from corbits_memory.ports.feed import (
    CreatedSubscription,
    DeadLetter,
    FeedPage,
    FeedQuery,
    NewSubscription,
    Subscription,
)
from corbits_memory.ports.lifecycle import (
    AuditPage,
    ForgetResult,
    OwnedDocument,
    PurgeResult,
    SweepResult,
    VersionState,
)
from corbits_memory.ports.search import (
    SearchQuery,
    SearchResult,
    StoreCapabilities,
    TimelineEvent,
    TimelineQuery,
)
from corbits_memory.ports.transform import (
    ParamChange,
    SampledQuery,
    TransformConfig,
    TransformParams,
    TransformRun,
    TransformScope,
)


@runtime_checkable
class DocumentStore(Protocol):
    """Durable documents of many tenants. The store enforces access to its own rows.

    ``access`` None: a caller sees its own documents alone. What more a store can do is told by the other
    protocols of this module; what it lacks is answered ``NotSupportedError`` (501).
    """

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
        query: TimelineQuery,
        access: Access | None = None,
    ) -> list[TimelineEvent]: ...

    async def close(self) -> None: ...


@runtime_checkable
class OpenableStore(Protocol):
    """A store that has to get ready before it answers."""

    async def open(self) -> None:
        """Once, before the first call. Raises :class:`~corbits_memory.errors.ConfigError` saying what to mend."""


@runtime_checkable
class DescribedStore(Protocol):
    """A store that says what it can do, open or not."""

    @property
    def capabilities(self) -> StoreCapabilities: ...


def capabilities_of(store: DocumentStore) -> StoreCapabilities:
    """What the store says of itself. Of one that says nothing: what its methods tell, that it embeds, and
    that it doesn't enforce grants."""
    if isinstance(store, DescribedStore):
        return store.capabilities
    return StoreCapabilities(
        supports_feed=isinstance(store, FeedStore), supports_retention=isinstance(store, RetentionStore)
    )


@runtime_checkable
class IdempotentStore(Protocol):
    """A store that keeps what it answered, so that an add whose answer was lost can be sent again."""

    async def add_once(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        once: Once,
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        """:meth:`DocumentStore.add`; of the same principal's same request within a day, the first answers.

        Refused documents are judged anew. Raises ``IdempotencyKeyReusedError`` for another request of the same key.
        """
        ...


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
class LookupStore(Protocol):
    """A store whose documents can be read by the names that their sources gave them."""

    async def lookup(
        self, *, tenant_id: str, principal_id: str, query: LookupQuery, access: Access | None = None
    ) -> LookupPage:
        """Those of them that have an active version and that the caller may see."""
        ...


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
class ReadyStore(Protocol):
    """A store that can say whether it would answer now."""

    async def ready(self) -> None:
        """Raises :class:`~corbits_memory.errors.MemoryError` when it would not."""


@runtime_checkable
class EmbeddingStore(Protocol):
    """A store that fills in vectors after an add, and knows how many are still missing."""

    async def pending_vectors(self, *, tenant_id: str, principal_id: str) -> int: ...


@runtime_checkable
class AppendingStore(Protocol):
    """A store that can add tags to a document, and no more: enough for sharing with principals."""

    async def append_access_tags(self, *, tenant_id: str, document_id: str, tags: Sequence[str]) -> None:
        """Add tags; those that are there stay. Raises ``NotFoundError``."""
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

    async def owned_documents(
        self, *, tenant_id: str, principal_id: str, after: str, limit: int
    ) -> Sequence[OwnedDocument]:
        """The next documents of a principal behind the id ``after``, by id; forgotten ones too."""
        ...

    async def deprecate_version(
        self,
        *,
        tenant_id: str,
        actor_id: str,
        version_id: str,
        reason: DeprecatedReason = DeprecatedReason.DEPRECATED,
    ) -> VersionState:
        """Take an active or superseded version out of use; ``ConflictError`` from another status.

        Its history tells the reason."""
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


@runtime_checkable
class RetractionStore(Protocol):
    """A store whose feed tells of what is gone also those whose grants go with it."""

    async def name_readers(self, *, tenant_id: str, document_id: str, principals: Sequence[str]) -> None:
        """Who may hear that versions of this document were retracted, if that was not said yet."""
        ...


class TransformStore(Protocol):
    """Derives the corpus anew, beside the live one, and puts one in the place of the other.

    A run's id is the generation that it writes. Unknown ids raise ``TransformConfigNotFoundError`` and
    ``TransformRunNotFoundError``.
    """

    async def create_transform_config(
        self, *, tenant_id: str, name: str, params: TransformParams
    ) -> TransformConfig:
        """The next version of a name."""
        ...

    async def transform_configs(
        self, *, tenant_id: str, name: str | None, limit: int
    ) -> Sequence[TransformConfig]:
        """Newest first."""
        ...

    async def transform_config(self, *, tenant_id: str, config_id: str) -> TransformConfig: ...

    async def diff_transform_configs(
        self, *, tenant_id: str, before: str, after: str
    ) -> Sequence[ParamChange]: ...

    async def delete_transform_config(self, *, tenant_id: str, config_id: str) -> None:
        """Raises ``TransformConfigInUseError`` while a run was made with it."""
        ...

    async def run_transform(
        self, *, tenant_id: str, actor_id: str, config_id: str, scope: TransformScope
    ) -> TransformRun:
        """Begin a run; one that can't begin is answered as failed."""
        ...

    async def transform_runs(self, *, tenant_id: str, limit: int) -> Sequence[TransformRun]:
        """Newest first."""
        ...

    async def transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun: ...

    async def pause_transform_run(self, *, tenant_id: str, run_id: str, paused: bool) -> TransformRun:
        """Raises ``TransformRunError`` unless it runs."""
        ...

    async def cancel_transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        """Raises ``TransformRunError`` unless it runs."""
        ...

    async def retry_transform_run(self, *, tenant_id: str, run_id: str) -> TransformRun:
        """Raises ``TransformRunError`` unless it failed."""
        ...

    async def promote_generation(
        self, *, tenant_id: str, actor_id: str, generation: str, allow_partial: bool = False
    ) -> TransformRun:
        """Raises ``TransformPromoteError``."""
        ...

    async def demote_generation(self, *, tenant_id: str, actor_id: str, generation: str) -> TransformRun:
        """Raises ``TransformPromoteError``."""
        ...

    async def sampled_queries(self, *, tenant_id: str, limit: int) -> Sequence[SampledQuery]:
        """Questions that were kept, newest first; none where none are."""
        ...


@runtime_checkable
class ReplayableStore(Protocol):
    """A store that keeps what came in, so that it can be derived anew."""

    @property
    def transforms(self) -> TransformStore: ...


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

    async def unsubscribe(self, *, tenant_id: str, principal_id: str, subscription_id: str) -> None:
        """Raises ``NotFoundError``, as the others that name one do."""

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int, limit: int
    ) -> Sequence[DeadLetter]: ...

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None) -> int:
        """Have dead letters sent again, all or some; how many."""
        ...
