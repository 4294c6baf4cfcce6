"""A live source over a fixed catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from corbits_memory.core.limits import SEARCH_LIMIT_DEFAULT
from corbits_memory.ports import LiveItem


@dataclass(slots=True, kw_only=True)
class FakeSource:
    """Gives the items whose title or snippet holds the query, whatever the case; a blank query gives all."""

    id: str = "fake-source"
    catalogue: Sequence[LiveItem] = ()
    asked: list[str] = field(default_factory=list)
    """The queries so far."""

    async def search_live(
        self, *, query: str, tenant_id: str, principal_id: str, limit: int = SEARCH_LIMIT_DEFAULT
    ) -> list[LiveItem]:
        self.asked.append(query)
        wanted = query.strip().casefold()
        found = [
            item
            for item in self.catalogue
            if wanted in item.title.casefold() or wanted in item.snippet.casefold()
        ]
        return found[:limit]
