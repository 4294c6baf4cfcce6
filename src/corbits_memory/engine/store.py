"""The default document store: the services of the engine behind the port."""

import dataclasses
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TypeVar

from corbits_memory.config import EngineConfig
from corbits_memory.core.enums import Degraded, DeprecatedReason, RetentionClass
from corbits_memory.engine.access import TagChange, TagService
from corbits_memory.engine.audit import AuditService
from corbits_memory.engine.capture import CaptureService
from corbits_memory.engine.directory import ModelDirectory
from corbits_memory.engine.documents import DocumentService
from corbits_memory.engine.embedding import EmbeddingService
from corbits_memory.engine.feed import FeedService
from corbits_memory.engine.feed_signal import FeedSignal
from corbits_memory.engine.fts import verify_fts_language
from corbits_memory.engine.generations import Generations
from corbits_memory.engine.idempotency import IdempotencyService
from corbits_memory.engine.migrate import migration_status
from corbits_memory.engine.outbound import Outbound
from corbits_memory.engine.pool import Database
from corbits_memory.engine.pruning import ModelPruner
from corbits_memory.engine.push import PushWorker
from corbits_memory.engine.query_log import QueryLog
from corbits_memory.engine.removal import RemovalService
from corbits_memory.engine.replay.service import ReplayService
from corbits_memory.engine.replay.transforms import Transforms
from corbits_memory.engine.replica import Replica
from corbits_memory.engine.retention import RetentionService
from corbits_memory.engine.search.service import SearchService
from corbits_memory.engine.statistics import StatisticsService
from corbits_memory.engine.subscriptions import SubscriptionService
from corbits_memory.engine.timeline import TimelineService
from corbits_memory.engine.transfer.export import Exporter
from corbits_memory.engine.transfer.restore import Restorer
from corbits_memory.engine.vectors import VectorRegistry
from corbits_memory.engine.watermarks import Watermarks
from corbits_memory.engine.worker import Worker
from corbits_memory.errors import DatabaseError, MemoryError, MigrationError, UnavailableError
from corbits_memory.ports import (
    Access,
    AccessOf,
    AddResult,
    AuditPage,
    CreatedSubscription,
    DeadLetter,
    DocumentDetail,
    DocumentTags,
    Embedder,
    FeedPage,
    FeedQuery,
    ForgetResult,
    HistoryPage,
    LookupPage,
    LookupQuery,
    ModelFactory,
    NewDocument,
    NewSubscription,
    Once,
    OwnedDocument,
    PurgeResult,
    Reranker,
    SearchQuery,
    SearchResult,
    StoreCapabilities,
    Subscription,
    SweepResult,
    TimelineEvent,
    TimelineQuery,
    VersionDetail,
    VersionState,
)

logger = logging.getLogger("corbits_memory.store")

INLINE_DOCUMENTS = 16
"""Larger batches leave all vectors to the worker: a load is done when its text is durable and findable."""


T = TypeVar("T")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Reads:
    """The services that only read, over the primary or over its replica."""

    search: SearchService
    timeline: TimelineService
    feed: FeedService
    documents: DocumentService


class PostgresDocumentStore:
    """Documents in Postgres. Nothing is opened before :meth:`open`."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        embedder: Embedder | None,
        reranker: Reranker | None,
        models: ModelFactory | None = None,
        clock: Callable[[], datetime] = utc_now,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``models`` makes the clients of models that transform configs name; without it they can't name any."""
        self._config = config
        self._embedder = embedder
        self._reranker = reranker
        self._models = models
        self._clock = clock
        self._chance = chance
        self._open = False
        self._closed = False
        self._access_of: AccessOf | None = None
        self._assemble()

    def _assemble(self) -> None:
        """The services over a new pool; a pool that was closed stays closed."""
        config = self._config
        watermarks = Watermarks() if config.database_read_url else None
        # Two that stay: a search may ask both its channels at once.
        self._database = Database(
            config.database_url,
            pool_max=config.db_pool_max,
            pool_min=min(2, config.db_pool_max),
            watermarks=watermarks,
        )
        self.replica: Replica | None = None
        """What answers reads while it keeps up, where there is one."""
        if config.database_read_url and watermarks is not None:
            self.replica = Replica(
                config.database_read_url,
                self._database,
                pool_max=config.db_pool_max,
                lag_seconds=config.database_read_lag_seconds,
                watermarks=watermarks,
            )
        self._registry = VectorRegistry(self._database, vector_type=config.vector_type)
        self._generations = Generations(self._database, config.cutting)
        self._directory = ModelDirectory(
            self._database, config, embedder=self._embedder, reranker=self._reranker, factory=self._models
        )
        self.embedding = EmbeddingService(
            self._database,
            self._registry,
            self._embedder,
            generations=self._generations,
            directory=self._directory,
        )
        self.pruner = ModelPruner(self._database)
        self.statistics = StatisticsService(self._database)
        self.idempotency = IdempotencyService(self._database)
        self.query_log = QueryLog(self._database, percent=config.query_log_percent, chance=self._chance)
        self.replays = ReplayService(
            self._database,
            generations=self._generations,
            directory=self._directory,
            registry=self._registry,
            embedding=self.embedding,
            statistics=self.statistics,
            clock=self._clock,
        )
        self._worker = Worker(
            config.database_url,
            self.embedding,
            self.statistics,
            self.idempotency,
            self.query_log,
            self.replays,
            concurrency=config.worker_concurrency,
        )
        self.feed_signal = FeedSignal(config.database_url, self._database)
        self.transforms = Transforms(self.replays, self._worker, self.feed_signal, self.query_log)
        self._reads = self._reads_over(self._database)
        self._replica_reads = self._reads_over(self.replica.database) if self.replica else self._reads
        self._feed = self._reads.feed
        outbound = Outbound(config.push)
        self._subscriptions = SubscriptionService(self._database, outbound)
        self.push = PushWorker(self._database, self._feed, self.feed_signal, outbound, config.push)
        if self._access_of is not None:
            self.push.judge_by(self._access_of)
        self._tags = TagService(self._database)
        self._removal = RemovalService(self._database)
        self._retention = RetentionService(self._database)
        self._audit = AuditService(self._database)
        self.exporter = Exporter(self._database)
        self.restorer = Restorer(self._database, self._registry, self._embedder)
        self._capture: CaptureService | None = None

    def _reads_over(self, database: Database) -> _Reads:
        search = SearchService(
            database,
            # Of the database that is read: a replica may not have heard of a promotion yet.
            generations=self._generations
            if database is self._database
            else Generations(database, self._config.cutting),
            directory=self._directory,
            embedder=self._embedder,
            language=self._config.fts_language,
            profile=self._config.profile,
            clock=self._clock,
        )
        return _Reads(
            search=search,
            timeline=TimelineService(database),
            feed=FeedService(database),
            documents=DocumentService(database),
        )

    async def _read(self, ask: Callable[[_Reads], Awaitable[T]]) -> T:
        """An answer of the replica's, where there is one that may give it, else the primary's."""
        if self.replica is None:
            return await ask(self._reads)
        return await self.replica.read(lambda: ask(self._replica_reads), lambda: ask(self._reads))

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(
            embeddings_configured=self._embedder is not None,
            enforces_grants=True,
            supports_feed=True,
            supports_retention=True,
        )

    @property
    def model_key(self) -> str | None:
        """Of the configured embedding model; None without one."""
        return None if self._embedder is None else self._embedder.model_key

    @property
    def second_lock(self) -> bool:
        """Whether row-level security guards each transaction."""
        return self._database.second_lock

    async def open(self) -> None:
        """Connect and check that database and configuration fit. Raises ``ConfigError`` saying what to run.

        May be tried again after it failed. The models' clients open themselves when they are first asked.
        """
        if self._closed:
            raise UnavailableError("This document store is closed; create a new one.")
        if self._open:
            return
        try:
            await self._database.open()
            await self._verify()
            await self._registry.open()
            if self.replica is not None:
                await self.replica.open()
            await self._open_worker()
        except BaseException:
            failed, replica = self._database, self.replica
            self._assemble()
            if replica is not None:
                await replica.close()
            await failed.close()
            raise
        self._open = True

    async def close(self) -> None:
        """Close all that was opened, the models' clients included; one that fails keeps no other open."""
        self._open, self._closed = False, True
        async with AsyncExitStack() as stack:
            for model in (self._embedder, self._reranker):
                if model is not None:
                    stack.push_async_callback(model.aclose)
            stack.push_async_callback(self._directory.close)
            stack.push_async_callback(self._database.close)
            if self.replica is not None:
                stack.push_async_callback(self.replica.close)
            stack.push_async_callback(self._worker.close)
            stack.push_async_callback(self.query_log.close)
            stack.push_async_callback(self.feed_signal.close)
            stack.push_async_callback(self.push.close)

    async def add(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        return await self._add(tenant_id, principal_id, documents, access)

    async def add_once(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        once: Once,
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        return await self._add(tenant_id, principal_id, documents, access, once)

    async def _add(
        self,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        access: Access | None,
        once: Once | None = None,
    ) -> list[AddResult | MemoryError]:
        if self._capture is None:
            raise UnavailableError("The document store is not open yet.")
        inline = self._embedder is not None and len(documents) <= INLINE_DOCUMENTS
        seconds = self._config.add_embed_seconds if inline else 0.0
        captured = await self._capture.capture(
            tenant_id=tenant_id,
            principal_id=principal_id,
            documents=documents,
            now=self._clock(),
            lease_seconds=seconds,
            access=access,
            once=once,
        )
        if captured.chunk_ids:
            self.feed_signal.tell(tenant_id)
        degraded = await self._embed_captured(tenant_id, captured.chunk_ids, seconds)
        if captured.retagged and self._embedder is not None:
            await self._worker.embed_soon(tenant_id)
        return [_with_degraded(answer, degraded) for answer in captured.answers]

    async def search(
        self, *, tenant_id: str, principal_id: str, query: SearchQuery, access: Access | None = None
    ) -> SearchResult:
        found = await self._read(
            lambda reads: reads.search.search(
                tenant_id=tenant_id, principal_id=principal_id, query=query, access=access
            )
        )
        if query.sample and query.generation is None and not query.shown:
            self.query_log.note(tenant_id, query.query)
        return found

    async def list(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: TimelineQuery,
        access: Access | None = None,
    ) -> list[TimelineEvent]:
        return await self._read(
            lambda reads: reads.timeline.list(
                tenant_id=tenant_id, principal_id=principal_id, query=query, access=access
            )
        )

    async def feed(
        self, *, tenant_id: str, principal_id: str, query: FeedQuery, access: Access | None = None
    ) -> FeedPage:
        return await self._read(
            lambda reads: reads.feed.page(
                tenant_id=tenant_id, principal_id=principal_id, query=query, access=access
            )
        )

    async def name_readers(self, *, tenant_id: str, document_id: str, principals: Sequence[str]) -> None:
        await self._feed.name_readers(tenant_id=tenant_id, document_id=document_id, principals=principals)

    async def feed_changed(self, *, tenant_id: str, after: int, seconds: float) -> None:
        await self.feed_signal.wait(tenant_id, after=after, seconds=seconds)
        if self.replica is not None:
            # Else whoever was woken would find nothing on the replica, and ask again and again.
            await self.replica.catch_up_to_now(tenant_id)

    def judge_by(self, access_of: AccessOf) -> None:
        self._access_of = access_of
        self.push.judge_by(access_of)

    async def subscribe(
        self, *, tenant_id: str, principal_id: str, subscription: NewSubscription
    ) -> CreatedSubscription:
        created = await self._subscriptions.create(
            tenant_id=tenant_id, principal_id=principal_id, given=subscription
        )
        self.feed_signal.tell(tenant_id)
        return created

    async def subscriptions(self, *, tenant_id: str) -> Sequence[Subscription]:
        return await self._subscriptions.list(tenant_id=tenant_id)

    async def unsubscribe(self, *, tenant_id: str, principal_id: str, subscription_id: str) -> None:
        await self._subscriptions.remove(
            tenant_id=tenant_id, principal_id=principal_id, subscription_id=subscription_id
        )

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int, limit: int
    ) -> Sequence[DeadLetter]:
        return await self._subscriptions.dead_letters(
            tenant_id=tenant_id, subscription_id=subscription_id, after=after, limit=limit
        )

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None) -> int:
        replayed = await self._subscriptions.replay(
            tenant_id=tenant_id, subscription_id=subscription_id, seqs=seqs
        )
        self.feed_signal.tell(tenant_id)
        return replayed

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
        changed = await self._tags.change(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            change=TagChange(add=tuple(add), add_system=tuple(add_system), remove=frozenset(remove)),
            access=access,
        )
        if changed.waiting:
            await self._worker.embed_soon(tenant_id)
        return DocumentTags(version_id=changed.version_id, tags=changed.tags, withheld=changed.withheld)

    async def forget(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        cascade: bool = False,
        access: Access | None = None,
    ) -> ForgetResult:
        forgotten = await self._removal.forget(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            cascade=cascade,
            access=access,
        )
        self.feed_signal.tell(tenant_id)
        if forgotten.waiting:
            await self._worker.embed_soon(tenant_id)
        return forgotten.result

    async def purge(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None = None
    ) -> PurgeResult:
        purged = await self._removal.purge(
            tenant_id=tenant_id, principal_id=principal_id, document_id=document_id, access=access
        )
        self.feed_signal.tell(tenant_id)
        if purged.waiting:
            await self._worker.embed_soon(tenant_id)
        return purged.result

    async def purge_on_demand(
        self, *, tenant_id: str, actor_id: str, document_id: str, even_durable: bool = False
    ) -> PurgeResult:
        purged = await self._removal.purge_on_demand(
            tenant_id=tenant_id, actor_id=actor_id, document_id=document_id, even_durable=even_durable
        )
        self.feed_signal.tell(tenant_id)
        if purged.waiting:
            await self._worker.embed_soon(tenant_id)
        return purged.result

    async def owned_documents(
        self, *, tenant_id: str, principal_id: str, after: str, limit: int
    ) -> Sequence[OwnedDocument]:
        return await self._removal.owned(
            tenant_id=tenant_id, principal_id=principal_id, after=after, limit=limit
        )

    async def set_retention_class(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        retention_class: RetentionClass,
        access: Access | None = None,
    ) -> VersionState:
        return await self._retention.set_class(
            tenant_id=tenant_id,
            principal_id=principal_id,
            version_id=version_id,
            retention_class=retention_class,
            access=access,
        )

    async def deprecate_version(
        self,
        *,
        tenant_id: str,
        actor_id: str,
        version_id: str,
        reason: DeprecatedReason = DeprecatedReason.DEPRECATED,
    ) -> VersionState:
        state = await self._retention.deprecate(
            tenant_id=tenant_id, actor_id=actor_id, version_id=version_id, reason=reason
        )
        self.feed_signal.tell(tenant_id)
        return state

    async def sweep_ephemeral(
        self, *, tenant_id: str, actor_id: str, now: datetime | None = None
    ) -> SweepResult:
        swept = await self._retention.sweep(
            tenant_id=tenant_id, actor_id=actor_id, now=now if now is not None else self._clock()
        )
        self.feed_signal.tell(tenant_id)
        return swept

    async def audit_events(
        self, *, tenant_id: str, limit: int, before: str | None = None, target_id: str | None = None
    ) -> AuditPage:
        return await self._audit.page(tenant_id=tenant_id, limit=limit, before=before, target_id=target_id)

    async def document(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None = None
    ) -> DocumentDetail:
        return await self._read(
            lambda reads: reads.documents.document(
                tenant_id=tenant_id, principal_id=principal_id, document_id=document_id, access=access
            )
        )

    async def lookup(
        self, *, tenant_id: str, principal_id: str, query: LookupQuery, access: Access | None = None
    ) -> LookupPage:
        return await self._read(
            lambda reads: reads.documents.lookup(
                tenant_id=tenant_id, principal_id=principal_id, query=query, access=access
            )
        )

    async def history(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        limit: int,
        before: int | None = None,
        access: Access | None = None,
    ) -> HistoryPage:
        return await self._read(
            lambda reads: reads.documents.history(
                tenant_id=tenant_id,
                principal_id=principal_id,
                document_id=document_id,
                limit=limit,
                before=before,
                access=access,
            )
        )

    async def version(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        limit: int,
        after: int | None = None,
        access: Access | None = None,
    ) -> VersionDetail:
        return await self._read(
            lambda reads: reads.documents.version(
                tenant_id=tenant_id,
                principal_id=principal_id,
                version_id=version_id,
                limit=limit,
                after=after,
                access=access,
            )
        )

    async def pending_vectors(self, *, tenant_id: str, principal_id: str) -> int:
        """How many of a principal's chunks wait for a vector; none are waited for without a model."""
        if self._embedder is None:
            return 0
        return (await self.embedding.pending(tenant_id, principal_id)).count

    async def ready(self) -> None:
        """Returns when the database answers and still fits this release."""
        await self._verify()

    async def backfill(self, tenant_id: str) -> int:
        """Queue what the configured model has no vector of, and have it worked off; how many were missing."""
        queued = await self.embedding.enqueue_missing(tenant_id)
        await self._worker.embed_soon(tenant_id)
        return queued

    async def _verify(self) -> None:
        async with self._database.autocommit() as conn:
            status = await migration_status(conn)
            if status["pending"] or status["edited"] or status["unknown"]:
                raise MigrationError(
                    "The database does not match this release "
                    f"(pending {status['pending']}, edited {status['edited']}, unknown {status['unknown']}). "
                    "Run corbits-memory db migrate; where a newer release has migrated it, install that one."
                )
            await verify_fts_language(conn, self._config.fts_language)
            rows = await conn.execute("SELECT cfgname FROM pg_ts_config WHERE pg_ts_config_is_visible(oid)")
            known = frozenset([str(row[0]) async for row in rows])
        self._capture = CaptureService(
            self._database,
            language=self._config.fts_language,
            known_languages=known,
            generations=self._generations,
        )

    async def _open_worker(self) -> None:
        try:
            await self._worker.open()
        except DatabaseError as error:
            if self._config.run_worker:
                raise
            # Only jobs would be deferred over it: the worker of another process finds their work by itself.
            logger.warning("no jobs are deferred: %s", error.message)
            return
        if self._config.run_worker:
            self._worker.start()
            self.push.start()

    async def _embed_captured(
        self, tenant_id: str, chunk_ids: Sequence[str], seconds: float
    ) -> tuple[str, ...]:
        if self._embedder is None:
            return (Degraded.EMBED_UNAVAILABLE, Degraded.LEXICAL_ONLY)
        if not chunk_ids:
            return ()
        if seconds and await self.embedding.embed_within(tenant_id, chunk_ids, seconds):
            return ()
        await self._worker.embed_soon(tenant_id)
        return (Degraded.EMBED_UNAVAILABLE,)


def _with_degraded(answer: AddResult | MemoryError, degraded: tuple[str, ...]) -> AddResult | MemoryError:
    if isinstance(answer, MemoryError) or not degraded:
        return answer
    return dataclasses.replace(answer, degraded=degraded)
