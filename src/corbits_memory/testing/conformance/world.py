"""Short ways to say what the tests of a store say often."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from corbits_memory.access.control import AccessControl
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.core.enums import Effect
from corbits_memory.ports import (
    Access,
    AddResult,
    DocumentStore,
    GrantRule,
    NewDocument,
    SearchItem,
    SearchQuery,
    SearchResult,
    TextPart,
    TimelineEvent,
    TimelineQuery,
)

ANN, BOB = "ann", "bob"


def note(text: str, *, title: str = "Note", **fields: Any) -> NewDocument:
    return NewDocument(title=title, parts=(TextPart(text=text),), **fields)


class World:
    """A store, and a tenant that no other test has."""

    def __init__(self, store: DocumentStore, patience: float) -> None:
        self.store = store
        self.tenant = f"tenant-{uuid4().hex[:12]}"
        self._patience = patience

    async def add(
        self, *documents: NewDocument, principal: str = ANN, tenant: str | None = None
    ) -> list[AddResult]:
        """Add, and expect each to be kept."""
        answers = await self.store.add(
            tenant_id=tenant or self.tenant, principal_id=principal, documents=documents
        )
        assert len(answers) == len(documents), "one answer a document"
        for answer in answers:
            assert isinstance(answer, AddResult), f"refused: {answer!r}"
        return [answer for answer in answers if isinstance(answer, AddResult)]

    async def search(
        self,
        query: str,
        *,
        principal: str = ANN,
        tenant: str | None = None,
        access: Access | None = None,
        **fields: Any,
    ) -> SearchResult:
        found = await self.store.search(
            tenant_id=tenant or self.tenant,
            principal_id=principal,
            query=SearchQuery(query=query, **fields),
            access=access,
        )
        assert isinstance(found, SearchResult)
        return found

    async def found(
        self, query: str, enough: Callable[[tuple[SearchItem, ...]], bool] = bool, **fields: Any
    ) -> tuple[SearchItem, ...]:
        """The hits, as soon as they are enough; at the latest when the store's patience is at its end."""
        deadline = time.monotonic() + self._patience
        while True:
            items = (await self.search(query, **fields)).items
            if enough(items) or time.monotonic() >= deadline:
                return items
            await asyncio.sleep(0.1)

    async def events(
        self, *, principal: str = ANN, tenant: str | None = None, **fields: Any
    ) -> list[TimelineEvent]:
        return list(
            await self.store.list(
                tenant_id=tenant or self.tenant, principal_id=principal, query=TimelineQuery(**fields)
            )
        )

    async def access(self, *rules: GrantRule, principal: str = BOB) -> Access:
        """What these grants let a principal see."""
        control = AccessControl(InMemoryGrantStore(rules), conditions=None, clock=lambda: datetime.now(UTC))
        access = await control.access(self.tenant, principal)
        assert access is not None
        return access


def grant(
    resource: str, *, principal: str = BOB, effect: Effect = Effect.ALLOW, action: str = "search"
) -> GrantRule:
    return GrantRule(
        id=f"{effect}:{action}:{resource}:{principal}",
        resource=resource,
        action=action,
        effect=effect,
        principal_id=principal,
    )


def ids(items: tuple[SearchItem, ...]) -> list[str]:
    return [item.document_id for item in items]
