"""Measures of answers, each against values that were worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corbits_memory.core.comparison import Answer, Comparison, Hit, QueryComparison
from corbits_memory.core.relevance import ndcg, overlap, percentile, rank_correlation, recall, reciprocal_rank

RANKING = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=12)


def test_recall_counts_what_is_found_of_what_is_relevant() -> None:
    assert recall("abcd", {"b", "d", "x"}, 3) == pytest.approx(1 / 3)
    assert recall("", {"a"}, 10) == 0


def test_the_reciprocal_rank_is_of_the_first_relevant() -> None:
    assert reciprocal_rank("abcd", {"c", "d"}) == pytest.approx(1 / 3)
    assert reciprocal_rank("abcd", {"x"}) == 0


def test_ndcg_is_one_for_an_ideal_order() -> None:
    assert ndcg("ab", {"a", "b"}) == 1
    assert ndcg("xa", {"a"}) == pytest.approx(1 / math.log2(3))
    assert ndcg([str(n) for n in range(12)], {"11"}) == 0


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("abcd", "abcd", 1.0),
        ("abcd", "dcba", 1.0),
        ("abcd", "abxy", 0.5),
        ("ab", "abcd", 0.5),
        ("a", "", 0.0),
        ("", "", 1.0),
        ("abcdefghijK", "abcdefghijL", 1.0),
    ],
)
def test_overlap(one: str, other: str, shared: float) -> None:
    assert overlap(one, other) == overlap(other, one) == shared


@pytest.mark.parametrize(
    ("one", "other", "correlation"),
    [
        ("abcd", "abcd", 1.0),
        ("abcd", "dcba", -1.0),
        ("axbyc", "abczw", 1.0),
        ("abcd", "bacd", 0.8),
        ("ab", "xa", None),
        ("", "ab", None),
    ],
)
def test_rank_correlation(one: str, other: str, correlation: float | None) -> None:
    assert rank_correlation(one, other) == (None if correlation is None else pytest.approx(correlation))


@given(RANKING, RANKING)
def test_agreement_is_symmetric_and_within_its_range(one: list[str], other: list[str]) -> None:
    assert 0 <= overlap(one, other) == overlap(other, one) <= 1
    correlation = rank_correlation(one, other)
    assert correlation is None or -1.0000001 <= correlation <= 1.0000001
    assert correlation == (None if correlation is None else pytest.approx(rank_correlation(other, one)))


def test_percentiles_are_by_nearest_rank() -> None:
    assert [percentile([3, 1, 2, 4], share) for share in (0, 0.25, 0.5, 0.95, 1)] == [1, 1, 2, 4, 4]


def answer(
    refs: str, *, seconds: float = 0.01, evidence: str = "strong", degraded: tuple[str, ...] = ()
) -> Answer:
    hits = tuple(Hit(document_id=f"d_{ref}", title=ref, names=(ref, f"d_{ref}")) for ref in refs)
    return Answer(hits=hits, evidence=evidence, degraded=degraded, seconds=seconds)


def test_a_document_that_is_judged_by_both_its_names_counts_once() -> None:
    one = QueryComparison(
        query="q", before=answer("xa"), after=answer("ax"), relevant=frozenset({"a", "d_a", "d_x"})
    )
    assert one.quality is not None
    before, after = one.quality
    assert before.recall == after.recall == pytest.approx(2 / 3)
    assert after.reciprocal_rank == before.reciprocal_rank == 1


def test_all_questions_together() -> None:
    compared = [
        QueryComparison(
            query="better", before=answer("xyab"), after=answer("abxy"), relevant=frozenset({"a"})
        ),
        QueryComparison(query="worse", before=answer("a"), after=answer("b"), relevant=frozenset({"a"})),
        QueryComparison(
            query="nobody judged",
            before=answer("abc", seconds=0.03),
            after=answer("abc", evidence="none", degraded=("dense_partial",)),
        ),
    ]
    total = Comparison.of(compared)
    assert (total.queries, total.judged, total.same, total.better, total.worse) == (3, 2, 1, 1, 1)
    assert (total.only_before, total.only_after) == (1, 1)
    assert total.overlap == pytest.approx(2 / 3)
    assert total.correlation == pytest.approx((rank_correlation("xyab", "abxy") or 0) / 2 + 0.5)
    assert (total.before.median, total.before.p95) == (0.01, 0.03)
    assert (total.before.strong, total.after.strong, total.after.none) == (3, 2, 1)
    assert (total.before.degraded, total.after.degraded) == ({}, {"dense_partial": 1})
    assert total.before.quality is not None
    assert total.before.quality.reciprocal_rank == pytest.approx((1 / 3 + 1) / 2)
