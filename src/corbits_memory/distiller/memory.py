"""What a distiller needs of a memory: two verbs, of a client or of a plane."""

from collections.abc import Sequence
from typing import Any, Protocol

from corbits_memory.core import limits
from corbits_memory.plane import Memory
from corbits_memory.wire.feed import FeedResponse, feed_response
from corbits_memory.wire.requests import add_input
from corbits_memory.wire.responses import AddResponse, SearchResponse, add_response, search_response


class DistilledMemory(Protocol):
    """One tenant as one principal: :class:`corbits_memory.client.MemoryClient` is one, :class:`PlaneMemory` another."""

    async def feed(
        self,
        *,
        after: int,
        limit: int | None,
        exclude_generator: str | None,
        include_text: bool,
    ) -> FeedResponse: ...

    async def add(
        self,
        *,
        title: str,
        text: str,
        kind: str | None = None,
        access_tags: Sequence[str] | None = None,
        generator_agent_id: str | None = None,
        provenance: str | None = None,
        lineage_class: str | None = None,
        temporal_class: str | None = None,
        derived_from: Sequence[str] | None = None,
        supports: Sequence[str] | None = None,
        contradicts: Sequence[str] | None = None,
        valid_from: str | None = None,
        valid_until: str | None = None,
        external_ref: str | None = None,
        adapter: str | None = None,
    ) -> AddResponse: ...


class SearchableMemory(Protocol):
    """A memory that can be asked for claims that a new one may speak for or against."""

    async def search(self, query: str, /, *, limit: int | None, sample: bool | None) -> SearchResponse: ...


class PlaneMemory:
    """A memory in this process, as one principal of one tenant."""

    def __init__(self, memory: Memory, *, tenant_id: str, principal_id: str) -> None:
        self._memory = memory
        self._tenant_id = tenant_id
        self._principal_id = principal_id

    async def feed(
        self,
        *,
        after: int,
        limit: int | None,
        exclude_generator: str | None,
        include_text: bool,
    ) -> FeedResponse:
        page = await self._memory.feed(
            tenant_id=self._tenant_id,
            principal_id=self._principal_id,
            after=after,
            limit=limits.FEED_LIMIT_DEFAULT if limit is None else limit,
            exclude_generator=exclude_generator,
            include_text=include_text,
        )
        return feed_response(page)

    async def add(self, **body: Any) -> AddResponse:
        (result,) = await self._memory.add_batch(
            tenant_id=self._tenant_id, principal_id=self._principal_id, items=[add_input(body)]
        )
        if isinstance(result, Exception):
            raise result
        return add_response(result)

    async def search(
        self, query: str, /, *, limit: int | None = None, sample: bool | None = None
    ) -> SearchResponse:
        found = await self._memory.search(
            tenant_id=self._tenant_id,
            principal_id=self._principal_id,
            query=query,
            limit=limits.SEARCH_LIMIT_DEFAULT if limit is None else limit,
            sample=sample,
        )
        return search_response(found)
