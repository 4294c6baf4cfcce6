"""What every live source must do."""

from typing import ClassVar

import pytest

from corbits_memory.core.limits import SEARCH_LIMIT_MAX
from corbits_memory.live import ask_source
from corbits_memory.ports import LiveItem, LiveSource, SourceProvider
from corbits_memory.testing.conformance.running import Conformance, able, conforms


class SourceProviderConformance(Conformance):
    """Hits in time and in shape, or an error; never something else."""

    query: ClassVar[str] = "deploy"
    """Finds at least two things."""

    @conforms
    async def test_it_has_a_name_that_stays(self, source: SourceProvider) -> None:
        assert isinstance(source, SourceProvider)
        assert source.id
        assert source.id == source.id.strip() == source.id
        assert source.id != "local", "the memory itself is called so"

    @conforms
    async def test_it_answers_in_time_and_in_shape(self, source: SourceProvider) -> None:
        items = await self._asked(source, self.query)
        assert len(items) >= 2
        for item in items:
            assert item.external_ref
            assert item.title
            assert item.kind
            assert item.citation.open.id

    @conforms
    async def test_the_limit_holds(self, source: SourceProvider) -> None:
        for limit in (1, 2, SEARCH_LIMIT_MAX):
            assert len(await self._asked(source, self.query, limit=limit)) <= limit

    @conforms
    async def test_nothing_is_listed_twice(self, source: SourceProvider) -> None:
        items = await self._asked(source, self.query, limit=SEARCH_LIMIT_MAX)
        assert len({(item.adapter, item.external_ref) for item in items}) == len(items)

    @conforms
    async def test_the_best_comes_first(self, source: SourceProvider) -> None:
        scores = [item.score for item in await self._asked(source, self.query)]
        assert scores == sorted(scores, reverse=True)

    @conforms
    async def test_any_query_is_answered(self, source: SourceProvider) -> None:
        for query in ('"quoted" -minus', "日本 🦓", "'; DROP TABLE x; --", "{$gt: 1}", "x" * 2_000):
            await self._asked(source, query)

    @conforms
    async def test_two_may_ask_at_once(self, source: SourceProvider) -> None:
        first, second = await self._asked(source, self.query), await self._asked(source, self.query)
        assert [item.external_ref for item in first] == [item.external_ref for item in second]

    async def _asked(self, source: SourceProvider, query: str, *, limit: int = 8) -> tuple[LiveItem, ...]:
        live = able(source, LiveSource)
        answer = await ask_source(live, query=query, tenant_id="acme", principal_id="ann", limit=limit)
        if answer.flag is not None:
            # Asked once more without the memory's patience, for the reason.
            await live.search_live(query=query, tenant_id="acme", principal_id="ann", limit=limit)
            pytest.fail(f"the answer is flagged {answer.flag}: too late, or of another shape")
        return answer.items
