from dataclasses import replace
from datetime import UTC, datetime

import pytest

from corbits_memory.core.ranking import DEFAULT_CONSTANTS, Candidate, Scored
from corbits_memory.core.selection import Selection, select
from corbits_memory.core.shown import Shown

NOW = datetime(2026, 12, 1, tzinfo=UTC)
RELEVANCE = replace(DEFAULT_CONSTANTS, mmr_lambda=1.0)


def row(chunk_id: str, score: float, document: str | None = None) -> Scored:
    candidate = Candidate(chunk_id=chunk_id, document_id=document or chunk_id, occurred_at=NOW)
    return Scored(candidate, score, score, score, None, (score,) + (0.0,) * 6 + (1.0,) * 3)


def ids(page: Selection) -> list[str]:
    return [found.candidate.chunk_id for found in page.rows]


ROWS = [row("a1", 0.9, "a"), row("a2", 0.8, "a"), row("a3", 0.7, "a"), row("b1", 0.6, "b")]


@pytest.mark.parametrize(
    ("most", "expected"), [(1, ["a1", "b1"]), (2, ["a1", "a2", "b1"]), (3, ["a1", "a2", "a3", "b1"])]
)
def test_at_most_so_many_chunks_a_document(most: int, expected: list[str]) -> None:
    assert ids(select(ROWS, 8, most)) == expected


def test_at_most_k_rows() -> None:
    assert ids(select(ROWS, 1)) == ["a1"]
    assert select([], 8) == Selection([])


def test_a_full_page_of_fifty() -> None:
    rows = [row(f"r{n:03}", 1 - n / 1000) for n in range(200)]
    texts = {f"r{n:03}": f"fact number {n}" for n in range(200)}
    assert len(select(rows, 50, texts=texts).rows) == 50
    assert ids(select(rows, 50)) == [f"r{n:03}" for n in range(50)]


def test_restatements_collapse_and_the_page_is_filled_from_below() -> None:
    rows = [row(f"r{n}", 1 - n / 100) for n in range(6)]
    texts = {f"r{n}": "Maria likes green tea." for n in range(4)} | {"r4": "Tom runs.", "r5": "It rained."}
    assert ids(select(rows, 3, texts=texts)) == ["r0", "r4", "r5"]


def test_many_restatements_do_not_starve_the_page() -> None:
    rows = [row(f"r{n:03}", 1 - n / 1000) for n in range(200)]
    texts = {f"r{n:03}": "the same thing" for n in range(190)}
    texts |= {f"r{n:03}": f"fact number {n}" for n in range(190, 200)}
    assert len(select(rows, 8, texts=texts).rows) == 8


def test_a_near_copy_gives_way_where_relevance_is_close() -> None:
    rows = [row("best", 1.0), row("copy", 0.99), row("other", 0.98)]
    vectors = {"best": [1.0, 0.0], "copy": [1.0, 0.01], "other": [0.0, 1.0]}
    assert ids(select(rows, 2, vectors=vectors)) == ["best", "other"]
    assert ids(select(rows, 2, 1, RELEVANCE, vectors=vectors)) == ["best", "copy"]


def test_relevance_wins_where_it_differs_clearly() -> None:
    rows = [row("best", 1.0), row("copy", 0.9), row("other", 0.3)]
    vectors = {"best": [1.0, 0.0], "copy": [1.0, 0.01], "other": [0.0, 1.0]}
    assert ids(select(rows, 2, vectors=vectors)) == ["best", "copy"]


def test_rows_without_vector_are_compared_by_words() -> None:
    rows = [row("best", 1.0), row("copy", 0.99), row("other", 0.98)]
    texts = {"best": "tea is green and hot", "copy": "tea is green and very hot", "other": "Tom runs far"}
    assert ids(select(rows, 2, texts=texts)) == ["best", "other"]


# --- later pages ---


def shown_of(rows: list[Scored], texts: dict[str, str] | None = None) -> Shown:
    texts = texts or {}
    return Shown().and_these(
        (row.candidate.document_id, row.candidate.chunk_id, texts.get(row.candidate.chunk_id)) for row in rows
    )


@pytest.mark.parametrize("size", [1, 3, 7, 20, 50])
def test_pages_are_what_one_long_page_is(size: int) -> None:
    rows = [row(f"r{n:03}", 1 - n / 1000) for n in range(100)]
    texts = {f"r{n:03}": f"fact {n} of colour{n % 4} and shape{n % 7}" for n in range(100)}
    pages: list[Scored] = []
    while True:
        page = select(rows, size, texts=texts, shown=shown_of(pages))
        pages += page.rows
        assert len(page.rows) == min(size, len(rows) - len(pages) + len(page.rows))
        if not page.more:
            break
    assert sorted(found.candidate.chunk_id for found in pages) == sorted(texts)


@pytest.mark.parametrize(("k", "more"), [(3, True), (4, False), (5, False)])
def test_a_page_knows_whether_there_are_more(k: int, more: bool) -> None:
    rows = [row(f"r{n}", 1 - n / 100) for n in range(6)]
    texts = {f"r{n}": f"fact number {n}" for n in range(4)} | {"r4": "Fact number 0!", "r5": "fact  number 1"}
    assert select(rows, k, texts=texts).more is more
    assert select(rows, k - 1, texts=texts, shown=shown_of(rows[:1], texts)).more is more


def test_what_was_shown_counts_for_its_document() -> None:
    assert ids(select(ROWS, 8, 2, shown=shown_of(ROWS[:1]))) == ["a2", "b1"]
    assert ids(select(ROWS, 8, 1, shown=shown_of(ROWS[:1]))) == ["b1"]
    assert ids(select(ROWS[1:], 8, 1, shown=shown_of(ROWS[:1]))) == ["b1"], "gone from among the rows"


def test_what_was_shown_is_not_said_again_by_whatever_ranks_better_now() -> None:
    rows = [row("again", 1.0), row("other", 0.9), row("first", 0.1)]
    texts = {
        "again": "Maria likes green tea with honey, lemon, ginger, mint and two spoons of brown sugar at home",
        "other": "Tom runs.",
        "first": "Maria likes green tea with honey, lemon, ginger, mint and two spoons of brown sugar at home now",
    }
    assert ids(select(rows, 3, texts=texts)) == ["again", "other"]
    shown = shown_of(rows[2:], texts)
    assert ids(select(rows, 3, texts=texts, shown=shown)) == ["other"]
    assert ids(select(rows[:2], 3, texts=texts, shown=shown)) == ["again", "other"], "the near copy is gone"


def test_a_text_that_was_shown_and_is_gone_is_not_shown_again() -> None:
    rows, texts = [row("again", 1.0), row("other", 0.9)], {"again": "Maria  likes TEA", "other": "Tom runs."}
    shown = shown_of([row("gone", 1.0)], {"gone": "maria likes tea"})
    assert ids(select(rows, 3, texts=texts, shown=shown)) == ["other"]


def test_what_is_like_what_was_shown_comes_later() -> None:
    rows = [row("best", 1.0), row("copy", 0.99), row("other", 0.98)]
    vectors = {"best": [1.0, 0.0], "copy": [1.0, 0.01], "other": [0.0, 1.0]}
    assert ids(select(rows, 1, vectors=vectors, shown=shown_of(rows[:1]))) == ["other"]
    assert ids(select(rows, 1, 1, RELEVANCE, vectors=vectors, shown=shown_of(rows[:1]))) == ["copy"]
