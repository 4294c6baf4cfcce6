"""A document store over a vendor that keeps one bucket of notes a principal.

The vendor knows neither versions nor grants: each add is a document of its own, and a caller sees its own bucket.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import anyio

from corbits_memory.adapters import notes
from corbits_memory.adapters.vendor import VendorApi, VendorHttpError
from corbits_memory.core.enums import AddStatus, EvidenceLevel
from corbits_memory.core.evidence import reaches
from corbits_memory.errors import InvalidInputError, MemoryError, NotSupportedError
from corbits_memory.ports import (
    Access,
    AddResult,
    NewDocument,
    SearchItem,
    SearchQuery,
    SearchResult,
    StoreCapabilities,
    TimelineEvent,
    TimelineQuery,
)

AT_ONCE = 8
"""Documents of a batch that are on their way at the same time."""
WIDENED = 5
ASKED_MAX = 100


class BucketStore(ABC):
    """What the stores of this kind have in common. A subclass says how a note is sent and asked for."""

    adapter: str
    name: str

    def __init__(self, api: VendorApi) -> None:
        self._api = api

    @property
    def capabilities(self) -> StoreCapabilities:
        return StoreCapabilities(enforces_grants=False, supports_list=False)

    async def close(self) -> None:
        await self._api.aclose()

    async def add(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        access: Access | None = None,
    ) -> list[AddResult | MemoryError]:
        """Each document is sent by itself, once; what the vendor refuses gives ``VendorError`` in its place."""
        _check_names(tenant_id, principal_id)
        answers: dict[int, AddResult | MemoryError] = {}
        places = anyio.CapacityLimiter(AT_ONCE)

        async def send(index: int, document: NewDocument) -> None:
            note = notes.written(document, tenant_id=tenant_id, principal_id=principal_id)
            async with places:
                try:
                    await self._send(note, tenant_id, principal_id)
                except MemoryError as error:
                    answers[index] = error
                    return
            answers[index] = AddResult(
                document_id=note.document_id,
                version_id=note.document_id,
                version=1,
                status=AddStatus.CREATED,
                chunks=1,
            )

        async with anyio.create_task_group() as tasks:
            for index, document in enumerate(documents):
                tasks.start_soon(send, index, document)
        return [answers[index] for index in range(len(documents))]

    async def search(
        self, *, tenant_id: str, principal_id: str, query: SearchQuery, access: Access | None = None
    ) -> SearchResult:
        """The caller's own notes. Kinds and times are looked at here, among the vendor's best 100.

        Raises ``VendorError``, and ``NotSupportedError`` for what a vendor can't be asked: a query without words,
        entities, attributes, the past, other generations.
        """
        _check_names(tenant_id, principal_id)
        self._check(query)
        narrowed = bool(query.kinds or query.occurred_after or query.occurred_before or query.valid_at)
        asked = min(query.limit * WIDENED, ASKED_MAX) if narrowed else query.limit
        rows = await self._ask(query.query, max(asked, query.limit), tenant_id, principal_id)
        found = [notes.read(row) for row in rows]
        items: list[SearchItem] = []
        shown: dict[str, int] = {}
        for note in sorted(found, key=lambda note: -note.score):
            if not _wanted(note, query) or shown.get(note.document_id, 0) >= query.max_per_document:
                continue
            shown[note.document_id] = shown.get(note.document_id, 0) + 1
            items.append(note.item(query.query, adapter=self.adapter, owner=principal_id))
        kept = tuple(items[: query.limit])
        return SearchResult(items=kept, evidence=EvidenceLevel.WEAK if kept else EvidenceLevel.NONE)

    async def list(
        self, *, tenant_id: str, principal_id: str, query: TimelineQuery, access: Access | None = None
    ) -> list[TimelineEvent]:
        """Nothing: the vendor is not asked for it."""
        return []

    @abstractmethod
    async def _send(self, note: notes.Note, tenant_id: str, principal_id: str) -> None: ...

    @abstractmethod
    async def _ask(
        self, query: str, limit: int, tenant_id: str, principal_id: str
    ) -> Sequence[notes.Row]: ...

    def _rows(self, answer: Any, *listed_as: str) -> Sequence[Mapping[str, Any]]:
        rows = notes.rows_of(answer, listed_as=listed_as)
        if rows is None:
            raise VendorHttpError(f"{self.name} answered a search with something that is no list")
        return rows

    def _check(self, query: SearchQuery) -> None:
        if not query.query.strip():
            raise NotSupportedError(f"{self.name} can't be searched without words")
        given = {
            "entity_ids": query.entity_ids,
            "attributes": query.attributes,
            "as_of": query.as_of,
            "generation": query.generation,
        }
        refused = [field for field, value in given.items() if value]
        if refused:
            raise NotSupportedError(f"{self.name} can't be searched by {', '.join(refused)}")


def _wanted(note: notes.Found, query: SearchQuery) -> bool:
    """A note that doesn't say when it happened is not between any two times."""
    if not reaches(EvidenceLevel.WEAK, query.min_evidence):
        return False
    if query.kinds and note.kind not in query.kinds:
        return False
    at = note.occurred_at
    if query.occurred_after is not None and (at is None or at < query.occurred_after):
        return False
    if query.occurred_before is not None and (at is None or at >= query.occurred_before):
        return False
    return query.valid_at is None or _valid(note, query.valid_at)


def _valid(note: notes.Found, moment: datetime) -> bool:
    began = note.valid_from is None or note.valid_from <= moment
    return began and (note.valid_until is None or moment < note.valid_until)


def _check_names(tenant_id: str, principal_id: str) -> None:
    if not tenant_id.strip() or not principal_id.strip():
        raise InvalidInputError("tenant and principal must not be blank")
