"""A store with the four methods that every store has, and no more: the rest is refused, each thing by its name."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corbits_memory import MemoryAdmin, create_memory
from corbits_memory.errors import ConfigError, IdempotencyNotSupportedError, NotSupportedError
from corbits_memory.plane import Memory
from corbits_memory.ports import Share, StoreCapabilities
from corbits_memory.testing import FakeDocumentStore, InMemoryGrantStore
from corbits_memory.validation import Content

ANN: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann"}
NOTE = Content(title="Deploys", text="Fridays are frozen.")


class MinimalStore:
    """Hands on to a fake, and hides what else that can do."""

    def __init__(self) -> None:
        store = FakeDocumentStore()
        self.add, self.search, self.list, self.close = store.add, store.search, store.list, store.close


CALLS: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "feed": lambda m: m.feed(**ANN),
    "document": lambda m: m.document(**ANN, document_id="d"),
    "history": lambda m: m.history(**ANN, document_id="d"),
    "version": lambda m: m.version(**ANN, version_id="v"),
    "share": lambda m: m.share(**ANN, document_id="d", tags=["memory.space:eng"]),
    "unshare": lambda m: m.unshare(**ANN, document_id="d", tags=["memory.space:eng"]),
    "forget": lambda m: m.forget(**ANN, document_id="d"),
    "purge": lambda m: m.purge(**ANN, document_id="d"),
    "class": lambda m: m.set_retention_class(**ANN, version_id="v", retention_class="durable"),
    "sweep": lambda m: MemoryAdmin(m).sweep_ephemeral(tenant_id="acme", actor="root"),
    "audit": lambda m: MemoryAdmin(m).audit(tenant_id="acme", actor="root"),
    "transforms": lambda m: MemoryAdmin(m).list_transform_configs(tenant_id="acme", actor="root"),
}


async def test_four_methods_are_enough_to_remember() -> None:
    async with create_memory(document_store=MinimalStore()) as memory:
        added = await memory.add(**ANN, content=NOTE)
        found = await memory.search(**ANN, query="frozen")
        assert [item.document_id for item in found.items] == [added.document_id]
        assert [event.document_id for event in await memory.list(**ANN)] == [added.document_id]
        assert memory.capabilities == StoreCapabilities()
        await memory.ready()


@pytest.mark.parametrize("name", CALLS)
async def test_what_it_lacks_is_not_supported(name: str) -> None:
    async with create_memory(document_store=MinimalStore()) as memory:
        with pytest.raises(NotSupportedError) as refused:
            await CALLS[name](memory)
        assert refused.value.status == 501


async def test_a_retry_key_is_refused_before_anything_is_written() -> None:
    async with create_memory(document_store=MinimalStore()) as memory:
        with pytest.raises(IdempotencyNotSupportedError):
            await memory.add(**ANN, content=NOTE, idempotency_key="k")
        assert await memory.list(**ANN) == []


async def test_sharing_says_that_the_tag_could_not_be_written() -> None:
    memory = create_memory(
        document_store=MinimalStore(), grant_store=InMemoryGrantStore(), allow_unenforced_access=True
    )
    async with memory:
        added = await memory.add(**ANN, content=NOTE, share=Share(principals=("bob",)))
    assert added.share is not None
    assert (added.share.grants_materialized, added.share.reason) == (
        False,
        "this document store can't change the tags of a document",
    )


def test_nothing_says_that_it_enforces_grants() -> None:
    with pytest.raises(ConfigError, match="does not enforce grants"):
        create_memory(document_store=MinimalStore(), grant_store=InMemoryGrantStore())


def test_what_a_store_can_do_is_seen_by_its_methods() -> None:
    class Numbering(MinimalStore):
        async def feed(self, **call: Any) -> Any: ...

        async def feed_changed(self, **call: Any) -> None: ...

    told = create_memory(document_store=Numbering()).capabilities
    assert (told.supports_feed, told.supports_retention, told.enforces_grants) == (True, False, False)
