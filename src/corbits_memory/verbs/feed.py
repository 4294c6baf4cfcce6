"""What was written, in order, as pages and as it comes. Part of :class:`~corbits_memory.Memory`."""

from collections.abc import AsyncIterator, Collection

from corbits_memory.core import limits
from corbits_memory.core.enums import FeedOp
from corbits_memory.ports import FeedEntry, FeedPage, FeedQuery
from corbits_memory.validation import check_caller, feed_query
from corbits_memory.verbs.base import PlaneVerbs


class FeedVerbs(PlaneVerbs):
    """Reading the feed."""

    async def feed(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        after: int = 0,
        limit: int = limits.FEED_LIMIT_DEFAULT,
        ops: Collection[FeedOp | str] | None = None,
        exclude_generator: str | None = None,
        include_text: bool = False,
    ) -> FeedPage:
        """What was written after the entry numbered ``after``, in the order in which it became durable.

        Ask again with the page's ``next_cursor``; None means that there is nothing new. A page may be empty
        and not the last: it counts entries before the caller's access is looked at. ``limit`` is 1 to 100
        and ``after`` at least 0; what lies outside is moved inside. ``ops`` beside ``upsert`` (the default):
        ``retract`` for versions that can't be read any more, ``promote`` when the whole corpus was replaced.
        ``exclude_generator`` leaves out what this agent made. ``include_text`` adds texts, 1 MiB a page at
        most: a page ends before the entry that would go beyond, and a text longer than that is cut.

        Raises ``InvalidInputError``, ``InvalidCursorError`` for a number that the feed has not reached,
        ``NotSupportedError``, and what the store raises.
        """
        query = feed_query(
            after=after,
            limit=limit,
            ops=ops,
            exclude_generator=exclude_generator,
            include_text=include_text,
        )
        return await self.feed_for(query, tenant_id=tenant_id, principal_id=principal_id)

    async def feed_for(self, query: FeedQuery, *, tenant_id: str, principal_id: str) -> FeedPage:
        """:meth:`feed` with its checked inputs in one value."""
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        return await self._parts.feeding.page(query, tenant_id=tenant_id, principal_id=principal_id)

    async def follow(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        after: int = 0,
        ops: Collection[FeedOp | str] | None = None,
        exclude_generator: str | None = None,
        include_text: bool = False,
    ) -> AsyncIterator[FeedEntry]:
        """The entries after ``after`` as they come, until the memory is closed. Takes what :meth:`feed` takes.

        To go on after a break, remember the ``seq`` of the last entry that was dealt with. Grants are looked
        at anew for each page. Raises what :meth:`feed` raises, also later on.
        """
        query = feed_query(
            after=after, ops=ops, exclude_generator=exclude_generator, include_text=include_text
        )
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        async for page in self._parts.feeding.pages(query, tenant_id=tenant_id, principal_id=principal_id):
            for entry in page.entries:
                yield entry

    async def feed_changed(self, *, tenant_id: str, after: int, seconds: float) -> None:
        """Returns when there may be an entry numbered above ``after``, at the latest after ``seconds``."""
        self._parts.life.check()
        await self._parts.feeding.changed(tenant_id=tenant_id, after=after, seconds=seconds)

    def stop_following(self) -> None:
        """End everything that follows the feed, event streams included, before the memory is closed.

        For a server that shuts down: open streams would make it wait. Closing the memory does it too.
        """
        self._parts.feeding.stop()

    async def until_stopped(self) -> None:
        """Returns after :meth:`stop_following` or :meth:`close`."""
        await self._parts.feeding.until_stopped()
