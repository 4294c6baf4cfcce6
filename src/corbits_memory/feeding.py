"""The feed on the plane: pages, and following without a gap."""

from collections.abc import AsyncIterator
from dataclasses import replace

import anyio

from corbits_memory.access.control import AccessControl
from corbits_memory.core.limits import FEED_LIMIT_MAX
from corbits_memory.errors import NotSupportedError
from corbits_memory.ports import DocumentStore, FeedPage, FeedQuery, FeedStore

NO_FEED = "feed requires the engine DocumentStore"
IDLE_SECONDS = 15.0


class Feeding:
    """What ``feed`` and ``follow`` ask of the store. The caller's grants are looked at anew for each page."""

    def __init__(self, store: DocumentStore, control: AccessControl) -> None:
        self._store = store
        self._control = control
        self._stopped = anyio.Event()

    def stop(self) -> None:
        """End what follows the feed, now."""
        self._stopped.set()

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    async def page(self, query: FeedQuery, *, tenant_id: str, principal_id: str) -> FeedPage:
        store = self._feed_store()
        access = await self._control.access(tenant_id, principal_id)
        return await store.feed(tenant_id=tenant_id, principal_id=principal_id, query=query, access=access)

    async def changed(self, *, tenant_id: str, after: int, seconds: float) -> None:
        await self._feed_store().feed_changed(tenant_id=tenant_id, after=after, seconds=seconds)

    async def pages(self, query: FeedQuery, *, tenant_id: str, principal_id: str) -> AsyncIterator[FeedPage]:
        """Page after page, until stopped; an empty one at least every 15 seconds."""
        query = replace(query, limit=FEED_LIMIT_MAX)
        while not self._stopped.is_set():
            page = await self.page(query, tenant_id=tenant_id, principal_id=principal_id)
            yield page
            query = replace(query, after=page.position)
            if not page.has_more:
                await self.changed(tenant_id=tenant_id, after=query.after, seconds=IDLE_SECONDS)

    def _feed_store(self) -> FeedStore:
        if not isinstance(self._store, FeedStore):
            raise NotSupportedError(NO_FEED)
        return self._store
