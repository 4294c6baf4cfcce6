"""Pages through the plane: whose cursor, of which question, how deep."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from corbits_memory.core.enums import MinEvidence, SearchProfile
from corbits_memory.core.limits import SEARCH_DEPTH_MAX
from corbits_memory.core.shown import CURSOR_CHARS
from corbits_memory.errors import InvalidCursorError, InvalidInputError
from corbits_memory.plane import Memory
from corbits_memory.ports import Citation, LiveItem, OpenTarget, SearchQuery, SearchResult
from corbits_memory.testing import FakeDocumentStore, FakeSource
from corbits_memory.validation import Content

ANN: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann"}


async def filled(count: int, *sources: Any, **given: Any) -> Memory:
    memory = Memory(FakeDocumentStore(), sources=sources, **given)
    await memory.open()
    for n in range(count):
        await memory.add(**ANN, content=Content(title=f"deploy {n}", text="x"))
    return memory


async def walk(memory: Memory, limit: int) -> list[SearchResult]:
    pages = [await memory.search(**ANN, query="deploy", limit=limit)]
    while pages[-1].next_cursor is not None:
        cursor = pages[-1].next_cursor
        assert len(cursor) <= CURSOR_CHARS
        pages.append(await memory.search(**ANN, query="deploy", limit=limit, cursor=cursor))
    return pages


@pytest.mark.parametrize(
    ("count", "limit", "expected"),
    [
        (0, 5, [0]),
        (5, 5, [5]),
        (6, 5, [5, 1]),
        (SEARCH_DEPTH_MAX - 1, 50, [50, 49]),
        (SEARCH_DEPTH_MAX, 50, [50, 50]),
        (SEARCH_DEPTH_MAX + 1, 50, [50, 50]),
        (SEARCH_DEPTH_MAX + 1, 33, [33, 33, 33, 1]),
        (SEARCH_DEPTH_MAX + 30, 49, [49, 49, 2]),
    ],
)
async def test_pages_go_so_deep(count: int, limit: int, expected: list[int]) -> None:
    pages = await walk(await filled(count), limit)
    assert [len(page.items) for page in pages] == expected
    shown = [item.document_id for page in pages for item in page.items]
    assert len(shown) == len(set(shown)) == min(count, SEARCH_DEPTH_MAX)


OTHER: dict[str, Any] = {
    "query": "deplo",
    "kinds": ["note"],
    "entity_ids": ["kent_1"],
    "sources": ["local"],
    "include_deprecated": True,
    "profile": "compat",
    "generation": "g1",
    "occurred_after": "2026-01-01",
    "occurred_before": "2099-01-01",
    "attributes": {"a": 1.5},
    "max_per_document": 2,
    "valid_at": "2026-01-01",
    "as_of": datetime(2026, 1, 1, tzinfo=UTC),
    "min_evidence": "weak",
    "tenant_id": "other",
    "principal_id": "bob",
}
FREE: dict[str, Any] = {"limit": 2, "explain": True, "sample": False, "profile": "default"}


def test_each_field_of_a_question_is_asked_about() -> None:
    names = {field.name for field in fields(SearchQuery)} - {"shown"}
    assert names == (OTHER.keys() | FREE.keys()) - {"tenant_id", "principal_id"}


@pytest.mark.parametrize("field", OTHER)
async def test_another_question_has_other_cursors(field: str) -> None:
    memory = await filled(3)
    asked = {**ANN, "query": "deploy", "limit": 1}
    cursor = (await memory.search(**asked)).next_cursor
    with pytest.raises(InvalidCursorError) as caught:
        await memory.search(**{**asked, field: OTHER[field]}, cursor=cursor)
    assert (caught.value.code, caught.value.status) == ("invalid_cursor", 400)
    assert str(cursor) not in str(caught.value)


@pytest.mark.parametrize("field", FREE)
async def test_what_shows_the_same_hits_otherwise_may_change(field: str) -> None:
    memory = await filled(3)
    asked = {**ANN, "query": "deploy", "limit": 1}
    first = await memory.search(**asked)
    second = await memory.search(**{**asked, field: FREE[field]}, cursor=first.next_cursor)
    assert second.items
    assert not {item.document_id for item in first.items} & {item.document_id for item in second.items}


async def test_the_order_of_a_filter_is_no_other_question() -> None:
    memory = await filled(3)
    first = await memory.search(**ANN, query=" deploy ", limit=1, kinds=["note", "page", "note"])
    again = await memory.search(**ANN, query="deploy", kinds=["page", "note"], cursor=first.next_cursor)
    assert len(again.items) == 2


@pytest.mark.parametrize(
    "cursor", ["", "x", 5, True, [], {}, b"AQ", "A" * CURSOR_CHARS, "A" * 100_000, "\ud800"]
)
async def test_what_is_no_cursor_is_refused(cursor: Any) -> None:
    memory = await filled(1)
    with pytest.raises(InvalidCursorError):
        await memory.search(**ANN, query="deploy", cursor=cursor)


async def test_a_cut_cursor_is_refused() -> None:
    memory = await filled(9)
    cursor = (await memory.search(**ANN, query="deploy", limit=3)).next_cursor
    assert cursor is not None
    for end in range(1, len(cursor)):
        with pytest.raises(InvalidCursorError):
            await memory.search(**ANN, query="deploy", cursor=cursor[:end])


async def test_other_problems_are_told_before_the_cursors() -> None:
    memory = await filled(1)
    with pytest.raises(InvalidInputError) as caught:
        await memory.search(**ANN, query="deploy", limit=0, cursor="x")
    assert caught.value.code == "invalid_input"


async def test_the_store_is_told_what_was_shown_and_not_the_cursor() -> None:
    store = FakeDocumentStore()
    async with Memory(store) as memory:
        for n in range(3):
            await memory.add(**ANN, content=Content(title=f"deploy {n}", text="x"))
        first = await memory.search(**ANN, query="deploy", limit=1)
        await memory.search(**ANN, query="deploy", limit=50, cursor=first.next_cursor)
    assert len(store.queries[0].shown) == 0
    assert store.queries[1].shown.of_document(first.items[0].document_id) == 1


async def test_a_store_that_has_no_pages_never_gives_a_cursor() -> None:
    class Plain(FakeDocumentStore):
        async def search(self, **call: Any) -> SearchResult:
            found = await super().search(**call)
            return SearchResult(items=found.items, evidence=found.evidence)

    async with Memory(Plain()) as memory:
        for n in range(3):
            await memory.add(**ANN, content=Content(title=f"deploy {n}", text="x"))
        assert (await memory.search(**ANN, query="deploy", limit=1)).next_cursor is None


# --- beside live sources -----------------------------------------------------------------------------


def live_hit(ref: str) -> LiveItem:
    opens = OpenTarget(type="issue", id=ref)
    citation = Citation(adapter="linear", external_ref=ref, open=opens)
    return LiveItem(
        adapter="linear", external_ref=ref, score=1.0, title=ref, snippet="", kind="issue", citation=citation
    )


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_among_live_hits_there_is_no_next_page(profile: SearchProfile) -> None:
    memory = await filled(9, FakeSource(id="linear", catalogue=[live_hit("deploy 1")]), profile=profile)
    assert (await memory.search(**ANN, query="deploy", limit=3)).next_cursor is None
    alone = await memory.search(**ANN, query="deploy", limit=3, sources=["local"])
    assert alone.next_cursor is not None
    next_page = await memory.search(
        **ANN, query="deploy", limit=3, sources=["local"], cursor=alone.next_cursor
    )
    assert (len(next_page.items), next_page.degraded) == (3, ())


@pytest.mark.parametrize("profile", list(SearchProfile))
async def test_a_later_page_is_the_memorys_own_and_says_so(profile: SearchProfile) -> None:
    source = FakeSource(id="linear")
    memory = await filled(9, source, profile=profile)
    pages = await walk(memory, 4)
    assert [len(page.items) for page in pages] == [4, 4, 1]
    assert [page.degraded for page in pages] == [(), ("live_not_asked",), ("live_not_asked",)]
    assert source.asked == ["deploy"]


# --- the least evidence ------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", list(SearchProfile))
@pytest.mark.parametrize(("least", "local", "live"), [("weak", 2, 1), ("strong", 0, 0), (None, 2, 1)])
async def test_live_hits_are_weak(profile: SearchProfile, least: str | None, local: int, live: int) -> None:
    source = FakeSource(id="linear", catalogue=[live_hit("deploy it")])
    memory = await filled(2, source, profile=profile)
    found = await memory.search(**ANN, query="deploy", min_evidence=least)
    assert sum(item.adapter == "fake" for item in found.items) == local
    assert sum(item.adapter == "linear" for item in found.items) == live
    assert found.evidence == ("weak" if local else "none")
    assert source.asked == ([] if least == "strong" else ["deploy"])


@pytest.mark.parametrize("least", ["none", "STRONG", "", " ", 1, True, ["strong"]])
async def test_no_other_evidence_can_be_asked_for(least: Any) -> None:
    memory = await filled(1)
    with pytest.raises(InvalidInputError, match="min_evidence must be one of: strong, weak"):
        await memory.search(**ANN, query="deploy", min_evidence=least)
    with pytest.raises(InvalidInputError, match="min_evidence must be one of: strong, weak"):
        await memory.context(**ANN, query="deploy", min_evidence=least)


async def test_a_context_is_made_of_what_is_evidence_enough() -> None:
    memory = await filled(2)
    assert len((await memory.context(**ANN, query="deploy", min_evidence=MinEvidence.WEAK)).items) == 2
    strong = await memory.context(**ANN, query="deploy", min_evidence=MinEvidence.STRONG)
    assert (strong.items, strong.text, strong.evidence) == ((), "", "none")
