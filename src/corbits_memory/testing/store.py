"""A document store in memory: substring search, creator-only reads, the ids of a counter."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count

from corbits_memory.access.patterns import match_pattern
from corbits_memory.core.enums import (
    AddStatus,
    CreatedByKind,
    EvidenceLevel,
    LineageClass,
    Provenance,
    TemporalClass,
    VersionStatus,
)
from corbits_memory.core.evidence import reaches
from corbits_memory.core.limits import SNIPPET_CHARS
from corbits_memory.errors import (
    ExternalRefInUseError,
    ForbiddenError,
    IdempotencyKeyReusedError,
    MemoryError,
    NotFoundError,
)
from corbits_memory.ports import (
    Access,
    AddResult,
    Attribution,
    Citation,
    DocumentDetail,
    DocumentTags,
    HistoryEntry,
    HistoryPage,
    LookupPage,
    LookupQuery,
    NewDocument,
    Once,
    OpenTarget,
    SearchItem,
    SearchQuery,
    SearchResult,
    StoreCapabilities,
    TimelineEvent,
    TimelineQuery,
    VersionDetail,
    VersionFacts,
    VersionText,
    Visibility,
)
from corbits_memory.testing.retention import FakeRetention, StoredDocument

ADAPTER = "fake"


class FakeDocumentStore(FakeRetention):
    """Keeps documents in a list until closed. For tests; nothing is durable.

    Ids are ``fake_doc_1``, ``fake_ver_1`` and so on. A search finds the documents of the caller whose title
    or text holds the whole trimmed query, whatever the case: score 1 in the title, 0.5 in the text; a blank
    query finds nothing. Every hit is weak evidence; filters other than ``min_evidence`` are ignored. Reads show
    a principal its own documents and those that its grants reach. The same adapter and external reference again
    is a new version, or unchanged. Only the newest version is kept; a sweep goes by ``valid_until`` alone.
    """

    def __init__(self, *, capabilities: StoreCapabilities | None = None) -> None:
        super().__init__()
        self._capabilities = capabilities or StoreCapabilities(enforces_grants=True, supports_retention=True)
        self._document_numbers = count(1)
        self._version_numbers = count(1)
        self._answered: dict[tuple[str, str, bytes], tuple[bytes, dict[int, AddResult]]] = {}
        self.queries: list[SearchQuery] = []
        """The searches so far."""
        self.opened = 0
        self.closed = 0

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._capabilities

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1
        self.documents.clear()

    async def add(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        return [self._add(tenant_id, principal_id, document) for document in documents]

    async def add_once(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        once: Once,
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        request, kept = self._answered.setdefault((tenant_id, principal_id, once.key), (once.request, {}))
        if request != once.request:
            raise IdempotencyKeyReusedError
        new = [place for place in range(len(documents)) if place not in kept]
        written = await self.add(
            tenant_id=tenant_id,
            principal_id=principal_id,
            documents=[documents[place] for place in new],
            access=access,
        )
        answers = {**kept, **dict(zip(new, written, strict=True))}
        kept.update({place: answer for place, answer in answers.items() if isinstance(answer, AddResult)})
        return [answers[place] for place in range(len(documents))]

    async def search(
        self, *, tenant_id: str, principal_id: str, query: SearchQuery, access: Access | None = None
    ) -> SearchResult:
        self.queries.append(query)
        wanted = query.query.strip().casefold()
        found = [
            document
            for document in await self._visible(tenant_id, principal_id, access)
            if wanted
            and wanted in f"{document.content.title}\n{document.content.text}".casefold()
            and reaches(EvidenceLevel.WEAK, query.min_evidence)
            and not query.shown.of_document(document.document_id)
        ]
        scored = sorted(found, key=lambda document: -_score(document, wanted))[: query.limit]
        evidence = EvidenceLevel.WEAK if scored else EvidenceLevel.NONE
        items = tuple(_item(document, _score(document, wanted), evidence) for document in scored)
        return SearchResult(items=items, evidence=evidence, more=len(found) > len(items))

    async def list(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        query: TimelineQuery,
        access: Access | None = None,
    ) -> list[TimelineEvent]:
        """Keeps no earlier versions: ``as_of`` leaves out what came in later, and that is all."""
        newest = [
            _event(document)
            for document in reversed(await self._visible(tenant_id, principal_id, access))
            if not query.kinds or document.content.kind in query.kinds
        ]
        wanted = [
            event
            for event in newest
            if (
                query.after is None
                or (event.at, event.version_id) < (query.after.occurred_at, query.after.version_id)
            )
            and (query.occurred_after is None or event.at >= query.occurred_after)
            and (query.occurred_before is None or event.at < query.occurred_before)
            and (query.as_of is None or event.at <= query.as_of)
        ]
        return wanted[: query.limit]

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
        visible = await self._visible(tenant_id, principal_id, access)
        document = next((found for found in visible if found.document_id == document_id), None)
        if document is None:
            raise NotFoundError("document not found")
        if document.owner != principal_id:
            raise ForbiddenError("only the document's creator may share it")
        added = (*add, *add_system)
        document.unshared_tags = [*(t for t in document.unshared_tags if t not in added), *remove]
        document.shared_tags = [t for t in (*document.shared_tags, *added) if t not in remove]
        return DocumentTags(version_id=document.version_id, tags=document.tags)

    async def document(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None = None
    ) -> DocumentDetail:
        return _detail(
            await self._one(tenant_id, principal_id, access, document_id=document_id), principal_id
        )

    async def lookup(
        self, *, tenant_id: str, principal_id: str, query: LookupQuery, access: Access | None = None
    ) -> LookupPage:
        """All of them are of the adapter ``fake``, whatever they were added as."""
        details = [
            _detail(found, principal_id, with_text=query.include_text)
            for found in await self._visible(tenant_id, principal_id, access)
            if query.adapter == ADAPTER
        ]
        wanted = sorted(
            (
                detail
                for detail in details
                if detail.external_ref.startswith(query.prefix)
                and detail.external_ref > query.after
                and (not query.external_refs or detail.external_ref in query.external_refs)
            ),
            key=lambda detail: detail.external_ref,
        )
        page = wanted[: query.limit]
        more = len(wanted) > query.limit
        return LookupPage(documents=tuple(page), next_after=page[-1].external_ref if more else None)

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
        """The newest version alone: no other is kept."""
        found = await self._one(tenant_id, principal_id, access, document_id=document_id)
        entry = HistoryEntry(
            facts=_facts(found),
            superseded_at=None,
            deprecated_at=None,
            deprecated_reason=found.deprecated_reason,
            changed=(),
        )
        shown = before is None or found.version < before
        return HistoryPage(document_id=document_id, entries=(entry,) if shown else (), next_before=None)

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
        found = await self._one(tenant_id, principal_id, access, version_id=version_id)
        parts = [
            VersionText(chunk_id=f"{version_id}_{ordinal}", ordinal=ordinal, text=part.text, role=part.role)
            for ordinal, part in enumerate(found.content.parts)
            if after is None or ordinal > after
        ]
        page = tuple(parts[:limit])
        return VersionDetail(
            document_id=found.document_id,
            adapter=ADAPTER,
            external_ref=found.content.external_ref or found.document_id,
            owner=found.owner,
            facts=_facts(found),
            superseded_at=None,
            deprecated_at=None,
            deprecated_reason=found.deprecated_reason,
            supersedes_version_id=None,
            text=page,
            next_after=page[-1].ordinal if len(parts) > limit else None,
            derived_from=found.content.derived_from,
            supports=found.content.supports,
            contradicts=found.content.contradicts,
        )

    async def _one(
        self,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        *,
        document_id: str | None = None,
        version_id: str | None = None,
    ) -> StoredDocument:
        for found in await self._visible(tenant_id, principal_id, access):
            if document_id == found.document_id or version_id == found.version_id:
                return found
        raise NotFoundError("document not found" if document_id else "version not found")

    async def _visible(
        self, tenant_id: str, principal_id: str, access: Access | None
    ) -> Sequence[StoredDocument]:
        kept = [
            document
            for document in self.documents
            if document.tenant_id == tenant_id and document.status == VersionStatus.ACTIVE
        ]
        visibility = Visibility(principal_id=principal_id)
        if access is not None:

            async def known(patterns: Sequence[str]) -> set[str]:
                used = {tag for document in kept for tag in document.tags}
                return {tag for tag in used if any(match_pattern(pattern, tag) for pattern in patterns)}

            visibility = await access.visibility(known)
        return [
            document
            for document in kept
            if visibility.admits(owner=document.owner, tags=document.tags, document_id=document.document_id)
        ]

    def _add(self, tenant_id: str, principal_id: str, content: NewDocument) -> AddResult | MemoryError:
        known = self._named(tenant_id, content)
        if known is None:
            known = StoredDocument(
                tenant_id=tenant_id,
                owner=principal_id,
                document_id=f"fake_doc_{next(self._document_numbers)}",
                version_id=f"fake_ver_{next(self._version_numbers)}",
                version=1,
                content=content,
                at=content.occurred_at or datetime.now(UTC),
            )
            self.documents.append(known)
            return _result(known, AddStatus.CREATED)
        if known.owner != principal_id:
            return ExternalRefInUseError()
        if known.content == content and known.status == VersionStatus.ACTIVE:
            return _result(known, AddStatus.UNCHANGED)
        known.status, known.deprecated_reason = VersionStatus.ACTIVE, None
        known.version += 1
        known.version_id = f"fake_ver_{next(self._version_numbers)}"
        known.content = content
        known.at = content.occurred_at or datetime.now(UTC)
        return _result(known, AddStatus.UPDATED)

    def _named(self, tenant_id: str, content: NewDocument) -> StoredDocument | None:
        if content.external_ref is None:
            return None
        name = (tenant_id, content.adapter, content.external_ref)
        return next(
            (
                document
                for document in self.documents
                if (document.tenant_id, document.content.adapter, document.content.external_ref) == name
            ),
            None,
        )


def _score(document: StoredDocument, wanted: str) -> float:
    return 1.0 if wanted in document.content.title.casefold() else 0.5


def _result(document: StoredDocument, status: AddStatus) -> AddResult:
    return AddResult(
        document_id=document.document_id,
        version_id=document.version_id,
        version=document.version,
        status=status,
        chunks=len(document.content.parts),
    )


def _detail(found: StoredDocument, principal_id: str, *, with_text: bool = False) -> DocumentDetail:
    return DocumentDetail(
        document_id=found.document_id,
        adapter=ADAPTER,
        external_ref=found.content.external_ref or found.document_id,
        owner=found.owner,
        access_tags=found.tags if found.owner == principal_id else (),
        created_at=found.at,
        last_seen_at=found.at,
        current=_facts(found),
        text=found.content.text if with_text else None,
    )


def _facts(document: StoredDocument) -> VersionFacts:
    content = document.content
    generated = content.generator_agent_id is not None
    return VersionFacts(
        version_id=document.version_id,
        version=document.version,
        status="active",
        title=content.title,
        kind=content.kind,
        attributes=content.attributes,
        thread=content.thread,
        author=content.author,
        language=content.language or "simple",
        occurred_at=document.at,
        ingested_at=document.at,
        valid_from=content.valid_from,
        valid_until=content.valid_until,
        created_by_principal_id=document.owner,
        created_by_kind=CreatedByKind.AGENT if generated else CreatedByKind.HUMAN,
        generator_agent_id=content.generator_agent_id,
        provenance=content.provenance or Provenance.UNKNOWN,
        source_class=content.lineage_class or LineageClass.NATIVE,
        temporal_class=content.temporal_class or TemporalClass.EVENT,
        retention_class=content.retention_class,
    )


def _item(document: StoredDocument, score: float, evidence: EvidenceLevel) -> SearchItem:
    content = document.content
    external_ref = content.external_ref or document.document_id
    generated = content.generator_agent_id is not None
    return SearchItem(
        document_id=document.document_id,
        chunk_id=None,
        title=content.title,
        snippet=content.text[:SNIPPET_CHARS],
        text=content.text,
        score=score,
        kind=content.kind,
        adapter=ADAPTER,
        external_ref=external_ref,
        citation=Citation(
            adapter=ADAPTER,
            external_ref=external_ref,
            open=OpenTarget(type="document", id=document.document_id, url=f"fake://{document.document_id}"),
        ),
        attribution=Attribution(
            version_id=document.version_id,
            version=document.version,
            status="active",
            created_by_kind=CreatedByKind.AGENT if generated else CreatedByKind.HUMAN,
            owner=document.owner,
            author=content.author,
            thread=content.thread,
            generator_agent_id=content.generator_agent_id,
            provenance=content.provenance,
            occurred_at=document.at,
            valid_until=content.valid_until,
            evidence=evidence,
        ),
    )


def _event(document: StoredDocument) -> TimelineEvent:
    return TimelineEvent(
        at=document.at,
        title=document.content.title,
        source=ADAPTER,
        tenant_id=document.tenant_id,
        principal_id=document.owner,
        document_id=document.document_id,
        version_id=document.version_id,
        kind=document.content.kind,
        owner=document.owner,
        author=document.content.author,
    )
