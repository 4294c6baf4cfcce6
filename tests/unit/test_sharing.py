"""Sharing over stores that can do more or less about tags."""

from collections.abc import Sequence
from typing import Any

import pytest

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.errors import MemoryError, NotSupportedError
from corbits_memory.plane import Memory
from corbits_memory.ports import (
    AddResult,
    NewDocument,
    SearchQuery,
    SearchResult,
    Share,
    StoreCapabilities,
    TimelineEvent,
)
from corbits_memory.testing import FakeDocumentStore
from corbits_memory.validation import Content

ANN: Any = {"tenant_id": "acme", "principal_id": "ann"}
NOTE = Content(title="Plan", text="The lighthouse.")
PEERS = Share(principals=("bob",))


class PlainStore:
    """Nothing but the port."""

    def __init__(self) -> None:
        self._inner = FakeDocumentStore()
        self.appended: list[tuple[str, str, tuple[str, ...]]] = []

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._inner.capabilities

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def add(self, *, documents: Sequence[NewDocument], **call: Any) -> list[AddResult | MemoryError]:
        return await self._inner.add(documents=documents, **call)

    async def search(self, *, query: SearchQuery, **call: Any) -> SearchResult:
        return await self._inner.search(query=query, **call)

    async def list(self, **call: Any) -> list[TimelineEvent]:
        return await self._inner.list(**call)


class AppendingStore(PlainStore):
    async def append_access_tags(self, *, tenant_id: str, document_id: str, tags: Sequence[str]) -> None:
        self.appended.append((tenant_id, document_id, tuple(tags)))


async def test_a_store_that_only_appends_tags_is_enough_for_peers() -> None:
    store, grants = AppendingStore(), InMemoryGrantStore()
    async with Memory(store, grant_store=grants) as memory:
        made = await memory.add(**ANN, content=NOTE, share=PEERS)
        assert made.share is not None
        tag = f"memory.doc:{made.document_id}"
        assert (made.share.grants_materialized, made.share.tags) == (True, ("memory.owner:ann", tag))
        assert store.appended == [("acme", made.document_id, (tag,))]
        assert [rule.resource for rule in grants.collect_grants("bob", "acme")] == [tag]
        with pytest.raises(NotSupportedError):
            await memory.unshare(**ANN, document_id=made.document_id, principals=["bob"])


async def test_a_store_without_tags_keeps_the_document_and_says_what_is_missing() -> None:
    grants = InMemoryGrantStore()
    async with Memory(PlainStore(), grant_store=grants) as memory:
        made = await memory.add(**ANN, content=NOTE, share=PEERS)
        assert made.share is not None
        assert made.share.grants_materialized is False
        assert made.share.reason == "this document store can't change the tags of a document"
        assert grants.collect_grants("bob", "acme") == []
        with pytest.raises(NotSupportedError):
            await memory.share(**ANN, document_id=made.document_id, principals=["bob"])
