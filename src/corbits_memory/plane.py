"""The memory plane: the verbs over a document store.

>>> async with Memory(store) as memory:
...     added = await memory.add(
...         tenant_id="acme", principal_id="ann", content=Content(title="Deploys", text="Fridays are frozen.")
...     )
...     found = await memory.search(tenant_id="acme", principal_id="ann", query="when may I deploy?")

Every call names the tenant and the principal it acts for; both come from the host's authentication.
Inputs are checked in :mod:`corbits_memory.validation`, and nothing reaches the store unchecked.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

from anyio import to_thread

from corbits_memory import live
from corbits_memory.access.control import AccessControl
from corbits_memory.contexts import context_of
from corbits_memory.core import limits
from corbits_memory.core.enums import (
    Capability,
    Degraded,
    LineageClass,
    MinEvidence,
    Provenance,
    RetentionClass,
    SearchProfile,
    TemporalClass,
)
from corbits_memory.core.merge import LOCAL
from corbits_memory.errors import ExtractorError, InvalidInputError, MemoryError, TextExtractorRequiredError
from corbits_memory.parts import Parts, assemble
from corbits_memory.ports import (
    Access,
    AddResult,
    Caller,
    ConditionRegistry,
    ContextResult,
    DocumentStore,
    EmbeddingStore,
    GrantStore,
    LiveSource,
    NewDocument,
    Once,
    Scalar,
    SearchQuery,
    SearchResult,
    Share,
    SourceProvider,
    StoreCapabilities,
    TextExtractor,
    TimelineEvent,
    capabilities_of,
)
from corbits_memory.validation import (
    AddInput,
    Content,
    File,
    SearchInput,
    SearchPages,
    check_batch,
    check_caller,
    check_file,
    context_tokens,
    file_content,
    new_document,
    once_of,
    search_query,
    timeline_query,
)
from corbits_memory.verbs.feed import FeedVerbs
from corbits_memory.verbs.owned import OwnerVerbs
from corbits_memory.verbs.reading import ReadingVerbs

logger = logging.getLogger("corbits_memory.plane")


class Memory(FeedVerbs, OwnerVerbs, ReadingVerbs):
    """Remembers documents and finds them again, for many tenants.

    Open it before use: ``async with memory``, ``memory.lifespan`` in a web app, or ``open`` and ``close``.
    A closed memory stays closed. Hosts usually get one from :func:`corbits_memory.create_memory`.
    """

    def __init__(
        self,
        store: DocumentStore,
        *,
        grant_store: GrantStore | None = None,
        conditions: ConditionRegistry | None = None,
        sources: Sequence[SourceProvider] = (),
        text_extractor: TextExtractor | None = None,
        profile: SearchProfile = SearchProfile.DEFAULT,
    ) -> None:
        """``grant_store`` says who may see more than their own documents, ``conditions`` are the evaluators
        that its grants name; ``sources`` are searched live beside the store; ``text_extractor`` reads files
        for ``add``; ``profile`` is the store's own, by which live hits are merged.
        """
        control = AccessControl(grant_store, conditions=conditions, clock=_utc_now)
        self._parts = assemble(store, control)
        self._sources = tuple(sources)
        self._text_extractor = text_extractor
        self._profile = profile

    # --- the verbs ---

    async def add(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        content: Content | None = None,
        file: File | None = None,
        kind: str | None = None,
        adapter: str | None = None,
        external_ref: str | None = None,
        access_tags: Sequence[str] | None = None,
        share: Share | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        generator_agent_id: str | None = None,
        provenance: Provenance | str | None = None,
        lineage_class: LineageClass | str | None = None,
        temporal_class: TemporalClass | str | None = None,
        retention_class: RetentionClass | str | None = None,
        derived_from: Sequence[str] | None = None,
        supports: Sequence[str] | None = None,
        contradicts: Sequence[str] | None = None,
        valid_from: datetime | str | None = None,
        valid_until: datetime | str | None = None,
        occurred_at: datetime | str | None = None,
        thread: str | None = None,
        author: str | None = None,
        language: str | None = None,
        idempotency_key: str | None = None,
    ) -> AddResult:
        """Remember one document. When this returns, its text is durable and found by its words.

        What it is
            Exactly one of ``content`` (title ≤ 500 characters, text ≤ 200,000,000; neither is trimmed, and
            a text above 100,000 becomes several parts) and ``file`` (needs a text extractor). ``kind``
            (default ``note``), ``thread`` (the conversation it belongs to), ``author`` (who says it; text,
            not a principal), ``attributes`` (flat, at most 64), ``language`` (for words and endings).
        Which one it is
            ``adapter`` (default ``http``) and ``external_ref`` name the document: the same name with other
            content makes a new version, with the same content nothing. Without a name each add is new.
        Who may read it
            Its owner, the principal, always. ``access_tags`` (≤ 64, like ``memory.space:team``) replace the
            caller's tags on a repeat; None leaves them. ``share`` is for the tenant and for other people;
            what came of it stands in the result's ``share``.
        How sure it is
            ``generator_agent_id``: made by this agent, so at best inferred, also when ``provenance`` asks
            for stated. ``lineage_class``, ``temporal_class``, ``retention_class``; ``derived_from``,
            ``supports`` and ``contradicts`` hold version ids.
        When
            ``occurred_at`` (default now), ``valid_from``, ``valid_until``: datetimes or ISO 8601 text; UTC
            where no zone is given.
        Whether it is a retry
            ``idempotency_key`` (1 to 255 printable ASCII characters): the same request of the same principal
            under the same key, within a day, writes nothing and is given the first answer.

        Raises ``InvalidInputError`` with every problem at once, ``ExternalRefInUseError`` when the name is
        somebody else's document, ``UnavailableError`` unless open, and what the store raises.
        """
        given = AddInput(
            content=content,
            file=file,
            kind=kind,
            adapter=adapter,
            external_ref=external_ref,
            access_tags=access_tags,
            share=share,
            attributes=attributes,
            generator_agent_id=generator_agent_id,
            provenance=provenance,
            lineage_class=lineage_class,
            temporal_class=temporal_class,
            retention_class=retention_class,
            derived_from=derived_from,
            supports=supports,
            contradicts=contradicts,
            valid_from=valid_from,
            valid_until=valid_until,
            occurred_at=occurred_at,
            thread=thread,
            author=author,
            language=language,
        )
        (result,) = await self.add_batch(
            tenant_id=tenant_id, principal_id=principal_id, items=[given], idempotency_key=idempotency_key
        )
        if isinstance(result, MemoryError):
            raise result
        return result

    async def add_batch(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        items: Sequence[AddInput],
        idempotency_key: str | None = None,
    ) -> list[AddResult | MemoryError]:
        """Remember up to 1,000 documents; each answers for itself, in order.

        An item that is refused gives its error in its place and doesn't spoil the others. With an
        ``idempotency_key`` what was kept before is answered again, and what was refused is judged anew. Raises
        ``InvalidInputError`` when there are too many items, ``IdempotencyKeyReusedError`` for another request
        of a known key, ``IdempotencyNotSupportedError``, and ``UnavailableError`` unless open.
        """
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        checked = check_batch(items)
        once = await self._once(idempotency_key, checked)
        prepared = [
            await self._prepare(item, tenant_id=tenant_id, principal_id=principal_id) for item in items
        ]
        documents = [item for item in prepared if isinstance(item, NewDocument)]
        access = await self._parts.control.access(tenant_id, principal_id)
        stored = iter(
            await self._stored(documents, access, once, tenant_id=tenant_id, principal_id=principal_id)
        )
        return [next(stored) if isinstance(item, NewDocument) else item for item in prepared]

    async def search(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: str,
        limit: int = limits.SEARCH_LIMIT_DEFAULT,
        kinds: Sequence[str] | None = None,
        entity_ids: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        include_deprecated: bool = False,
        profile: SearchProfile | str | None = None,
        generation: str | None = None,
        explain: bool = False,
        occurred_after: datetime | str | None = None,
        occurred_before: datetime | str | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        max_per_document: int = 1,
        valid_at: datetime | str | None = None,
        as_of: datetime | str | None = None,
        sample: bool | None = True,
        min_evidence: MinEvidence | str | None = None,
        cursor: str | None = None,
    ) -> SearchResult:
        """Find what answers ``query``, best first, among what the principal may see.

        ``limit`` is 1 to 50. ``kinds``, ``entity_ids``, ``attributes``, ``occurred_after``,
        ``occurred_before`` and ``valid_at`` (by ``valid_from`` and ``valid_until``, where a document has them)
        narrow the memory's own hits; an empty list filters nothing, and a blank query
        needs kinds or entity ids. ``sources`` picks among ``local`` and the ids of live sources (all when
        empty); live hits are seen with the host's own tokens. ``profile`` is the ranking, by default the
        store's. ``generation`` searches another generation than the live one. ``explain`` adds the parts
        of each score. ``as_of`` answers from what the memory held at that instant, in the versions of then
        (those replaced since are found by their words alone), to whom it may be shown now; what was
        forgotten since stays forgotten. ``sample`` False keeps the question out of what
        ``QUERY_LOG_PERCENT`` keeps. ``min_evidence``, ``strong`` or ``weak``, leaves out hits whose own evidence
        is less; live hits are weak.

        ``cursor``, the ``next_cursor`` of an answer, asks the same question for the hits after those (``limit``,
        ``explain`` and ``sample`` may change). Up to 100 hits are shown in all, none twice. ``next_cursor`` is None
        when nothing more is known, after live hits, and from stores that have no pages.

        The result's ``evidence`` says how well the best hits answer (``none`` and ``weak`` don't mean that
        nothing is known), ``degraded`` what was missing, each source that failed or took more than 0.8 s
        included. Raises ``InvalidInputError``, ``InvalidCursorError``, ``UnavailableError`` unless open, and what
        the store raises.
        """
        given = SearchInput(
            query=query,
            limit=limit,
            kinds=kinds,
            entity_ids=entity_ids,
            sources=sources,
            include_deprecated=include_deprecated,
            profile=profile,
            generation=generation,
            explain=explain,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            attributes=attributes,
            max_per_document=max_per_document,
            valid_at=valid_at,
            as_of=as_of,
            sample=sample,
            min_evidence=min_evidence,
            cursor=cursor,
        )
        return await self.search_for(given, tenant_id=tenant_id, principal_id=principal_id)

    async def search_for(self, given: SearchInput, *, tenant_id: str, principal_id: str) -> SearchResult:
        """:meth:`search` with its inputs in one value."""
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        checked = search_query(given, now=_utc_now())
        profile = checked.profile or self._profile
        pages = SearchPages(checked, tenant_id=tenant_id, principal_id=principal_id, profile=profile)
        asked = pages.page(given.cursor)
        local_asked = not asked.sources or LOCAL in asked.sources
        access = await self._parts.control.access(tenant_id, principal_id) if local_asked else None
        # The store knows nothing of sources: they choose among it and its neighbours.
        query = replace(asked, sources=())
        local = partial(
            self._search_store,
            query,
            local_asked,
            tenant_id=tenant_id,
            principal_id=principal_id,
            access=access,
        )
        live_asked = [
            source
            for source in self._sources
            if isinstance(source, LiveSource) and (not asked.sources or source.id in asked.sources)
        ]
        # They know nothing of the past and have no pages, and what they find is weak evidence.
        silent = asked.as_of is not None or bool(asked.shown)
        asks = [
            partial(
                live.ask_source,
                source,
                query=query.query,
                tenant_id=tenant_id,
                principal_id=principal_id,
                limit=query.limit,
            )
            for source in live_asked
            if not silent and asked.min_evidence is not MinEvidence.STRONG
        ]
        found, answers = await live.gather(local, asks)
        if self._sources and asked.as_of is None:
            found = live.merge(found, answers, query=asked, profile=profile, now=_utc_now())
        if (asked.as_of is not None and self._sources) or (asked.shown and live_asked):
            found = replace(found, degraded=(*found.degraded, Degraded.LIVE_NOT_ASKED))
        return pages.answer(asked, found)

    async def context(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: str,
        max_tokens: int = limits.CONTEXT_TOKENS_DEFAULT,
        limit: int = limits.CONTEXT_LIMIT_DEFAULT,
        kinds: Sequence[str] | None = None,
        entity_ids: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        include_deprecated: bool = False,
        profile: SearchProfile | str | None = None,
        occurred_after: datetime | str | None = None,
        occurred_before: datetime | str | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        max_per_document: int = limits.CONTEXT_PER_DOCUMENT_DEFAULT,
        valid_at: datetime | str | None = None,
        as_of: datetime | str | None = None,
        sample: bool | None = True,
        min_evidence: MinEvidence | str | None = None,
    ) -> ContextResult:
        """What answers ``query`` as one block of text to put into a prompt, each passage cited as ``[1]``.

        At most ``max_tokens`` (100 to 32,000; a token is four characters), passages whole, best first; the last
        one may be cut. ``items`` tells what each marker stands for, ``omitted`` the hits for which there was no
        room. Everything else is as in :meth:`search`, and raises as that does.
        """
        given = SearchInput(
            query=query,
            limit=limit,
            kinds=kinds,
            entity_ids=entity_ids,
            sources=sources,
            include_deprecated=include_deprecated,
            profile=profile,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            attributes=attributes,
            max_per_document=max_per_document,
            valid_at=valid_at,
            as_of=as_of,
            sample=sample,
            min_evidence=min_evidence,
        )
        return await self.context_for(given, max_tokens, tenant_id=tenant_id, principal_id=principal_id)

    async def context_for(
        self, given: SearchInput, max_tokens: int | None, *, tenant_id: str, principal_id: str
    ) -> ContextResult:
        """:meth:`context` with the inputs of its search in one value."""
        self._parts.life.check()
        tokens = context_tokens(given, max_tokens, now=_utc_now())
        found = await self.search_for(given, tenant_id=tenant_id, principal_id=principal_id)
        return context_of(found, query=given.query, max_tokens=tokens)

    async def list(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        limit: int = limits.LIST_LIMIT_DEFAULT,
        kinds: Sequence[str] | None = None,
        cursor: str | None = None,
        occurred_after: datetime | str | None = None,
        occurred_before: datetime | str | None = None,
        as_of: datetime | str | None = None,
    ) -> list[TimelineEvent]:
        """The newest documents that the principal may see, at most ``limit`` (1 to 100).

        The next ones come with the ``cursor`` of the last event; fewer than ``limit`` are the last. ``kinds``,
        ``occurred_after`` (inclusive) and ``occurred_before`` narrow them, and ``as_of`` lists what was there
        at that instant, in the versions of then. Raises ``InvalidInputError``, ``InvalidCursorError``,
        ``UnavailableError`` unless open, and what the store raises.
        """
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        query = timeline_query(
            now=_utc_now(),
            limit=limit,
            kinds=kinds,
            cursor=cursor,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            as_of=as_of,
        )
        return await self._parts.store.list(
            tenant_id=tenant_id,
            principal_id=principal_id,
            query=query,
            access=await self._parts.control.access(tenant_id, principal_id),
        )

    # --- the feed ---

    async def access(self, tenant_id: str, principal_id: str) -> Access | None:
        """A principal's grants for the time of one request; None without a grant store."""
        check_caller(tenant_id, principal_id)
        return await self._parts.control.access(tenant_id, principal_id)

    async def may(self, caller: Caller, capability: Capability) -> bool:
        """Whether a caller has a capability: by its credential, else by a grant (of ``search`` on ``memory``).

        What a route asks before anything else. Raises what the grant store raises.
        """
        return await self._parts.control.may(caller, capability)

    @property
    def capabilities(self) -> StoreCapabilities:
        """What the store can do; known at once, open or not."""
        return capabilities_of(self._parts.store)

    async def pending_vectors(self, *, tenant_id: str, principal_id: str) -> int:
        """How many of the principal's chunks are found by their words alone until a worker has embedded them."""
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        store = self._parts.store
        if not isinstance(store, EmbeddingStore):
            return 0
        return await store.pending_vectors(tenant_id=tenant_id, principal_id=principal_id)

    # --- its life ---

    async def open(self) -> None:
        """Open the store; does nothing when open. Raises ``ConfigError`` saying what to mend."""
        await self._parts.life.open()

    async def close(self) -> None:
        """Close the store, once; the sources belong to the host and stay."""
        self._parts.feeding.stop()
        await self._parts.life.close()

    async def ready(self) -> None:
        """For readiness probes: returns when a call would be answered now, else raises ``MemoryError``."""
        await self._parts.life.ready()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Open while a web app runs: ``Starlette(lifespan=memory.lifespan)``, the same for FastAPI."""
        async with self:
            yield

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- inside ---

    async def _prepare(self, item: object, *, tenant_id: str, principal_id: str) -> NewDocument | MemoryError:
        """The checked document, or the error that stands in its place."""
        try:
            if not isinstance(item, AddInput):
                raise InvalidInputError("an item must be an object that describes one document")
            file = check_file(item)
            if file is not None:
                item = replace(item, file=None, content=await self._extract(file))
            document = new_document(item, tenant_id=tenant_id, principal_id=principal_id)
            return self._parts.sharing.refusal(document) or document
        except MemoryError as error:
            return error

    async def _once(self, key: str | None, items: Sequence[object]) -> Once | None:
        if key is None:
            return None
        # Before anything is read or written: who can't rely on the key is told so.
        _ = self._parts.idempotent
        # In a thread: to hash ten megabytes takes a while.
        return await to_thread.run_sync(once_of, key, items)

    async def _extract(self, file: File) -> Content:
        if self._text_extractor is None:
            raise TextExtractorRequiredError
        try:
            extracted = await self._text_extractor.extract(
                file.data, mime_type=file.mime_type, filename=file.filename
            )
            return file_content(file, extracted)
        except MemoryError:
            raise
        except Exception as error:
            # The host's own code; it costs this file, and no other of the batch.
            logger.error("the text extractor failed: %s", type(error).__name__)
            raise ExtractorError from error

    async def _stored(
        self,
        documents: Sequence[NewDocument],
        access: Access | None,
        once: Once | None,
        *,
        tenant_id: str,
        principal_id: str,
    ) -> Sequence[AddResult | MemoryError]:
        if not documents:
            return ()
        if once is None:
            results = await self._parts.store.add(
                tenant_id=tenant_id, principal_id=principal_id, documents=documents, access=access
            )
        else:
            results = await self._parts.idempotent.add_once(
                tenant_id=tenant_id, principal_id=principal_id, documents=documents, once=once, access=access
            )
        return [
            result
            if isinstance(result, MemoryError)
            else await self._parts.sharing.after_add(
                result, document, tenant_id=tenant_id, principal_id=principal_id, access=access
            )
            for result, document in zip(results, documents, strict=True)
        ]

    async def _search_store(
        self,
        query: SearchQuery,
        asked: bool,
        *,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
    ) -> SearchResult:
        if not asked:
            return live.NOTHING
        return await self._parts.store.search(
            tenant_id=tenant_id, principal_id=principal_id, query=query, access=access
        )


def parts_of(memory: Memory) -> Parts:
    """All of a plane, for its operators' side; users are given the memory alone."""
    return memory._parts  # noqa: SLF001 - the one seam between the two sides


def _utc_now() -> datetime:
    return datetime.now(UTC)
