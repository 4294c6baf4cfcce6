"""Live sources beside the memory: in time or flagged, merged in, never in the way."""

import asyncio
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from corbits_memory import live
from corbits_memory.core.enums import EvidenceLevel, SearchProfile
from corbits_memory.errors import DatabaseError
from corbits_memory.plane import Memory
from corbits_memory.ports import Citation, LiveItem, OpenTarget, SearchQuery, SearchResult
from corbits_memory.testing import FakeDocumentStore, FakeSource
from corbits_memory.validation import Content

ANN: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann"}
NOW = datetime.now(UTC)


def hit(ref: str, *, adapter: str = "linear", score: float = 1.0, **fields: Any) -> LiveItem:
    given: dict[str, Any] = {
        "title": f"deploy {ref}",
        "snippet": "",
        "kind": "issue",
        "citation": Citation(
            adapter=adapter, external_ref=ref, open=OpenTarget(type="issue", id=ref, url=f"https://l/{ref}")
        ),
    }
    return LiveItem(adapter=adapter, external_ref=ref, score=score, **{**given, **fields})


class SlowSource:
    id = "slow"

    def __init__(self) -> None:
        self.cancelled = False

    async def search_live(self, **call: Any) -> list[LiveItem]:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return []


class BrokenSource:
    id = "broken"

    async def search_live(self, **call: Any) -> list[LiveItem]:
        raise RuntimeError("secret query")


async def search(
    *sources: Any, add: bool = True, profile: SearchProfile = SearchProfile.DEFAULT, **query: Any
) -> SearchResult:
    async with Memory(FakeDocumentStore(), sources=sources, profile=profile) as memory:
        if add:
            await memory.add(**ANN, content=Content(title="deploy", text="Fridays are frozen."))
        return await memory.search(**ANN, **{"query": "deploy", **query})


async def test_live_hits_stand_beside_local_ones() -> None:
    found = await search(FakeSource(id="linear", catalogue=[hit("CL-1"), hit("CL-2")]))
    assert [item.adapter for item in found.items] == ["fake", "linear", "linear"]
    assert found.items[0].attribution is not None
    assert (found.items[1].document_id, found.items[1].attribution) == ("CL-1", None)
    assert found.items[1].citation.open.url == "https://l/CL-1"


async def test_an_idle_source_changes_no_score() -> None:
    alone, beside = await search(), await search(FakeSource(id="linear"))
    assert [item.score for item in beside.items] == [item.score for item in alone.items] == [1.0]


async def test_what_the_score_was_stands_in_explain() -> None:
    found = await search(FakeSource(catalogue=[hit("CL-1")]), explain=True)
    assert found.items[0].explain == {"score_before_merge": 1.0}


async def test_live_sources_are_not_asked_of_the_past() -> None:
    then = datetime.now(UTC)
    found = await search(FakeSource(id="linear", catalogue=[hit("CL-1")]), as_of=then)
    assert "linear" not in [item.adapter for item in found.items]
    assert found.degraded == ("live_not_asked",)
    assert (await search(as_of=then)).degraded == ()


async def test_live_hits_alone_are_weak_evidence() -> None:
    found = await search(FakeSource(catalogue=[hit("CL-1")]), add=False)
    assert (len(found.items), found.evidence) == (1, EvidenceLevel.WEAK)


async def test_nothing_on_either_side_is_no_evidence() -> None:
    for profile in SearchProfile:
        found = await search(FakeSource(), add=False, profile=profile)
        assert (found.items, found.evidence, found.degraded) == ((), EvidenceLevel.NONE, ())


@pytest.mark.parametrize(
    ("profile", "expected"),
    [(SearchProfile.DEFAULT, EvidenceLevel.STRONG), (SearchProfile.COMPAT, EvidenceLevel.WEAK)],
)
async def test_live_hits_weaken_strong_evidence_in_compat_only(
    profile: SearchProfile, expected: EvidenceLevel
) -> None:
    local = await search()
    strong = SearchResult(items=local.items, evidence=EvidenceLevel.STRONG)
    answer = live.LiveAnswer(source_id="linear", items=(hit("CL-1"),))
    merged = live.merge(strong, [answer], query=SearchQuery(query="x"), profile=profile, now=NOW)
    assert merged.evidence is expected
    assert [item.attribution.evidence for item in merged.items if item.attribution] == [expected]


async def test_sources_choose_among_local_and_live() -> None:
    linear, other = FakeSource(id="linear", catalogue=[hit("CL-1")]), FakeSource(id="other")
    only_live = await search(linear, other, sources=["linear"])
    assert [item.adapter for item in only_live.items] == ["linear"]
    assert (linear.asked, other.asked) == (["deploy"], [])
    only_local = await search(linear, sources=["local"])
    assert [item.adapter for item in only_local.items] == ["fake"]
    assert (await search(linear, sources=["unknown"])).items == ()


async def test_a_source_is_chosen_by_its_id_whatever_its_adapter() -> None:
    found = await search(FakeSource(id="linear", catalogue=[hit("1", adapter="tickets")]), sources=["linear"])
    assert [item.adapter for item in found.items] == ["tickets"]


async def test_the_store_is_not_told_of_sources() -> None:
    store = FakeDocumentStore()
    async with Memory(store) as memory:
        await memory.search(**ANN, query="x", sources=["local"])
        await memory.search(**ANN, query="x", sources=["linear"])
    assert [query.sources for query in store.queries] == [()]


async def test_an_item_without_adapter_is_named_after_its_source() -> None:
    found = await search(FakeSource(id="linear", catalogue=[hit("1", adapter="")]), add=False)
    assert [item.adapter for item in found.items] == ["linear"]


async def test_the_limit_holds_for_both_sides_together() -> None:
    source = FakeSource(catalogue=[hit(f"CL-{index}") for index in range(9)])
    for profile in SearchProfile:
        assert len((await search(source, limit=3, profile=profile)).items) == 3


async def test_kinds_bind_live_hits_too() -> None:
    source = FakeSource(catalogue=[hit("1"), hit("2", kind="page")])
    found = await search(source, add=False, kinds=["page"])
    assert [item.external_ref for item in found.items] == ["2"]


async def test_the_local_copy_wins() -> None:
    async with Memory(
        FakeDocumentStore(), sources=[FakeSource(catalogue=[hit("CL-1", adapter="fake", score=99.0)])]
    ) as memory:
        await memory.add(**ANN, content=Content(title="deploy", text="x"), external_ref="CL-1")
        for profile in SearchProfile:
            found = await memory.search(**ANN, query="deploy", profile=profile)
            assert [item.document_id for item in found.items] == ["fake_doc_1"]


async def test_compat_mixes_in_recency_and_rescales() -> None:
    fresh, old = hit("CL-1", updated_at=NOW), hit("CL-2", updated_at=NOW - timedelta(days=30))
    found = await search(FakeSource(catalogue=[old, fresh]), profile=SearchProfile.COMPAT, add=False)
    assert [item.external_ref for item in found.items] == ["CL-1", "CL-2"]
    assert [item.score for item in found.items] == pytest.approx([1.0, 0.925], abs=1e-4)


async def test_a_slow_source_is_cancelled_and_flagged_while_the_others_answer() -> None:
    slow, quick = SlowSource(), FakeSource(id="quick", catalogue=[hit("CL-1")])
    began = time.monotonic()
    found = await search(slow, BrokenSource(), quick)
    assert 0.8 <= time.monotonic() - began < 3
    assert slow.cancelled
    assert [item.adapter for item in found.items] == ["fake", "linear"]
    assert found.degraded == ("live_timeout", "live_error")


async def test_each_flag_is_told_once_and_the_reason_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    found = await search(BrokenSource(), BrokenSource())
    assert found.degraded == ("live_error",)
    assert len(found.items) == 1
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "broken",
    [
        [hit("1", score=float("nan"))],
        [hit("1", updated_at=datetime(2026, 1, 1))],
        [hit("1", snippet="\ud800")],
        [hit("1", kind=None)],
        [hit("1", citation=None)],
        [hit("1", citation=Citation(adapter="x", external_ref="1", open=None))],  # type: ignore[arg-type]
        [hit("1", citation=Citation(adapter="x", external_ref="1", open=OpenTarget(type="issue", id=5)))],  # type: ignore[arg-type]
        [hit("1", updated_at="2026-01-01")],
        [hit("1"), hit("2", score="high")],  # type: ignore[arg-type]
        {"items": [hit("1")]},
        ["text"],
        None,
        5,
    ],
)
async def test_what_is_no_item_spoils_its_source_only(broken: Any) -> None:
    class Source:
        id = "odd"

        async def search_live(self, **call: Any) -> Any:
            return broken

    found = await search(Source())
    assert found.degraded == ("live_error",)
    assert len(found.items) == 1


async def test_an_answer_without_an_end_is_read_to_fifty() -> None:
    class Source:
        id = "endless"

        async def search_live(self, **call: Any) -> Any:
            return (hit(f"CL-{number}") for number in itertools.count())

    found = await search(Source(), limit=50)
    assert found.degraded == ()
    assert len(found.items) == 50
    assert {item.external_ref for item in found.items} <= {f"CL-{n}" for n in range(50)} | {"fake_doc_1"}


async def test_what_is_too_long_to_show_is_cut() -> None:
    found = await search(FakeSource(catalogue=[hit("1", title="deploy" * 1_000, snippet="x" * 10_000)]))
    assert [(len(item.title), len(item.snippet)) for item in found.items[1:]] == [(500, 241)]


async def test_a_source_that_can_not_be_searched_is_let_be() -> None:
    class Mounted:
        id = "mounted"

    found = await search(Mounted())
    assert (len(found.items), found.degraded, found.items[0].score) == (1, (), 1.0)
    compat = await search(Mounted(), profile=SearchProfile.COMPAT)
    assert compat.items[0].score == pytest.approx(0.925)


@pytest.mark.parametrize("error", [asyncio.CancelledError, TimeoutError, ExceptionGroup("all", [OSError()])])
async def test_whatever_a_source_raises_costs_its_own_hits_alone(error: Any) -> None:
    class Source:
        id = "odd"

        async def search_live(self, **call: Any) -> list[LiveItem]:
            raise error

    found = await search(Source(), FakeSource(catalogue=[hit("CL-1")]))
    assert [item.external_ref for item in found.items] == ["fake_doc_1", "CL-1"]
    assert found.degraded == ("live_timeout" if error is TimeoutError else "live_error",)


async def test_a_search_that_is_given_up_takes_its_sources_along() -> None:
    slow = SlowSource()
    with anyio.move_on_after(0.05) as scope:
        await search(slow)
    assert scope.cancelled_caught
    assert slow.cancelled


async def test_the_stores_own_error_comes_out_as_it_is_and_cancels_the_rest() -> None:
    class Store(FakeDocumentStore):
        async def search(self, **call: Any) -> SearchResult:
            await asyncio.sleep(0.01)
            raise DatabaseError

    slow = SlowSource()
    async with Memory(Store(), sources=[slow]) as memory:
        with pytest.raises(DatabaseError):
            await memory.search(**ANN, query="x")
    assert slow.cancelled


async def test_memory_and_sources_are_asked_at_the_same_time() -> None:
    everyone = asyncio.Barrier(3)

    class Store(FakeDocumentStore):
        async def search(self, **call: Any) -> SearchResult:
            await asyncio.wait_for(everyone.wait(), timeout=5)
            return await super().search(**call)

    class Source(FakeSource):
        async def search_live(self, **call: Any) -> list[LiveItem]:
            await everyone.wait()
            return await super().search_live(**call)

    async with Memory(Store(), sources=[Source(), Source(id="b")]) as memory:
        assert (await memory.search(**ANN, query="x")).degraded == ()
