"""Webhooks on the plane: subscriptions to the feed, and what could not be delivered."""

from collections.abc import Sequence

from corbits_memory.access.control import AccessControl
from corbits_memory.errors import NotSupportedError
from corbits_memory.ports import (
    CreatedSubscription,
    DeadLetter,
    DocumentStore,
    NewSubscription,
    PushStore,
    Subscription,
)

NO_PUSH = "webhooks require the engine DocumentStore"


class Pushing:
    """Hands over to the store, which is told before it is opened whose grants decide."""

    def __init__(self, store: DocumentStore, control: AccessControl) -> None:
        self._store = store
        if isinstance(store, PushStore):
            store.judge_by(control.access)

    async def subscribe(
        self, given: NewSubscription, *, tenant_id: str, principal_id: str
    ) -> CreatedSubscription:
        return await self._push_store().subscribe(
            tenant_id=tenant_id, principal_id=principal_id, subscription=given
        )

    async def subscriptions(self, *, tenant_id: str) -> Sequence[Subscription]:
        return await self._push_store().subscriptions(tenant_id=tenant_id)

    async def unsubscribe(self, *, tenant_id: str, subscription_id: str) -> None:
        await self._push_store().unsubscribe(tenant_id=tenant_id, subscription_id=subscription_id)

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int, limit: int
    ) -> Sequence[DeadLetter]:
        return await self._push_store().dead_letters(
            tenant_id=tenant_id, subscription_id=subscription_id, after=after, limit=limit
        )

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None) -> int:
        return await self._push_store().replay(
            tenant_id=tenant_id, subscription_id=subscription_id, seqs=seqs
        )

    def _push_store(self) -> PushStore:
        if not isinstance(self._store, PushStore):
            raise NotSupportedError(NO_PUSH)
        return self._store
