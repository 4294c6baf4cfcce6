"""What a plane is made of: ``Memory`` shows a part of it to users, ``MemoryAdmin`` another to operators."""

from dataclasses import dataclass

import anyio

from corbits_memory.access.control import AccessControl
from corbits_memory.errors import IdempotencyNotSupportedError, NotSupportedError, UnavailableError
from corbits_memory.feeding import Feeding
from corbits_memory.forgetting import Forgetting
from corbits_memory.ports import (
    AuditStore,
    DocumentStore,
    IdempotentStore,
    LookupStore,
    OpenableStore,
    PushStore,
    ReadableStore,
    ReadyStore,
    ReplayableStore,
    TransformStore,
)
from corbits_memory.sharing import Sharing


class Life:
    """Opens and closes a store once. What is closed stays closed."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._lock = anyio.Lock()
        self._opened = False
        self._closed = False

    def check(self) -> None:
        """Raises ``UnavailableError`` unless open."""
        if self._closed:
            raise UnavailableError("this memory is closed; create a new one")
        if not self._opened:
            raise UnavailableError(
                "this memory is not open yet; enter `async with memory`, or give memory.lifespan to the app"
            )

    async def open(self) -> None:
        async with self._lock:
            if self._closed:
                raise UnavailableError("this memory is closed; create a new one")
            if not self._opened:
                if isinstance(self._store, OpenableStore):
                    await self._store.open()
                self._opened = True

    async def close(self) -> None:
        async with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._opened:
                await self._store.close()

    async def ready(self) -> None:
        self.check()
        if isinstance(self._store, ReadyStore):
            await self._store.ready()


@dataclass(frozen=True, slots=True)
class Parts:
    """One store, one grant store, and the services that bring them together."""

    store: DocumentStore
    control: AccessControl
    life: Life
    sharing: Sharing
    forgetting: Forgetting
    feeding: Feeding

    @property
    def readable(self) -> ReadableStore:
        """The store as one that reads by id; raises ``NotSupportedError`` for another."""
        if not isinstance(self.store, ReadableStore):
            raise NotSupportedError("this document store can't read documents by id")
        return self.store

    @property
    def findable(self) -> LookupStore:
        """The store as one that reads by reference; raises ``NotSupportedError`` for another."""
        if not isinstance(self.store, LookupStore):
            raise NotSupportedError("this document store can't look up documents by external_ref")
        return self.store

    @property
    def idempotent(self) -> IdempotentStore:
        """The store as one that answers retries; raises ``IdempotencyNotSupportedError`` for another."""
        if not isinstance(self.store, IdempotentStore):
            raise IdempotencyNotSupportedError
        return self.store

    @property
    def pushing(self) -> PushStore:
        """The store as one that delivers; raises ``NotSupportedError`` for another."""
        if not isinstance(self.store, PushStore):
            raise NotSupportedError("webhooks require the engine DocumentStore")
        return self.store

    @property
    def transforms(self) -> TransformStore:
        """How the store replays; raises ``NotSupportedError`` for one that doesn't."""
        if not isinstance(self.store, ReplayableStore):
            raise NotSupportedError("transform APIs require the engine DocumentStore")
        return self.store.transforms

    @property
    def audited(self) -> AuditStore:
        """The store as one that keeps an audit; raises ``NotSupportedError`` for another."""
        if not isinstance(self.store, AuditStore):
            raise NotSupportedError("this document store keeps no audit")
        return self.store


def assemble(store: DocumentStore, control: AccessControl) -> Parts:
    if isinstance(store, PushStore):
        # Before it is opened: deliveries are judged by the same grants.
        store.judge_by(control.access)
    return Parts(
        store=store,
        control=control,
        life=Life(store),
        sharing=Sharing(store, control),
        forgetting=Forgetting(store, control),
        feeding=Feeding(store, control),
    )
