"""Columns: windows of neighbours, and rows made as they are asked for."""

from datetime import UTC, datetime, timedelta

import pytest

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import DEFAULT_CONSTANTS, Candidate, QueryContext, score_candidates
from corbits_memory.core.scoring import CandidateColumns, neighbour_places, score_columns
from corbits_memory.core.temporal import prior_at, temporal_prior

NOW = datetime(2026, 12, 1, tzinfo=UTC)
QUERY = QueryContext(now=NOW, idf_total=10.0, cosine_lo=0.7)


def test_a_window_says_who_stands_how_far_from_whom() -> None:
    found = neighbour_places([(None, "a", "b", "c", "d", "e", None)], ["c", "a", "b", "d", "e"])
    c, a, b, d, e = range(5)
    assert found.tolist() == [
        [-1, a, b, -1, d, e, -1],  # c: a at -2, b at -1, d at 1, e at 2
        [-1, -1, -1, -1, b, c, d],
        [-1, -1, a, -1, c, d, e],
        [a, b, c, -1, e, -1, -1],
        [b, c, d, -1, -1, -1, -1],
    ]


def test_windows_that_overlap_complete_each_other() -> None:
    ids = list("abcdefgh")
    found = neighbour_places([tuple("abcdefg"), tuple("bcdefgh")], ids)
    assert found[ids.index("e")].tolist() == [1, 2, 3, -1, 5, 6, 7]


def test_ids_that_are_no_candidates_count_nothing() -> None:
    assert neighbour_places([("x", "y", "z", "a", "x", "y", "z")], ["a"]).tolist() == [[-1] * 7]


def test_without_windows_nobody_has_neighbours() -> None:
    assert neighbour_places([], ["a", "b"]).tolist() == [[-1] * 7] * 2


def test_claims_given_apart_count_like_claims_of_the_rows() -> None:
    rows = [
        Candidate(chunk_id=name, document_id=name, bm25=8.0, authority=0.6, occurred_at=NOW) for name in "abc"
    ]
    claims = {"b": (3, 0), "c": (0, 2)}
    apart = score_columns(CandidateColumns.of(rows, {}), QUERY, DEFAULT_CONSTANTS, claims=claims)
    within = [
        row._replace(supports=claims[row.chunk_id][0], contradicts=claims[row.chunk_id][1])
        if row.chunk_id in claims
        else row
        for row in rows
    ]
    assert list(apart.rows()) == score_candidates(within, QUERY)
    assert [row.candidate.chunk_id for row in apart.rows()] == ["b", "a", "c"]


def test_a_row_comes_back_as_it_went_in() -> None:
    row = Candidate(
        chunk_id="a",
        document_id="d",
        thread="t",
        author="Ann",
        ends_with_question=True,
        words=3,
        bm25=1.5,
        cosine=0.8,
        authority=0.25,
        supports=1,
        temporal_class=TemporalClass.DEADLINE,
        occurred_at=NOW - timedelta(days=3),
        valid_until=NOW + timedelta(hours=1),
    )
    assert [item.candidate for item in score_candidates([row], QUERY)] == [row]


@pytest.mark.parametrize("kind", TemporalClass)
@pytest.mark.parametrize("days", [-400, -3, -1.5, 0, 0.5, 7, 8, 400])
def test_seconds_give_the_prior_that_instants_give(kind: TemporalClass, days: float) -> None:
    then = NOW + timedelta(days=days)
    by_instants = temporal_prior(kind, now=NOW, occurred_at=then, valid_until=then)
    milliseconds = days * 86_400_000
    assert prior_at(kind, age_ms=-milliseconds, left_ms=milliseconds) == pytest.approx(by_instants)
    row = Candidate(
        chunk_id="a", document_id="a", bm25=8.0, temporal_class=kind, occurred_at=then, valid_until=then
    )
    (scored,) = score_candidates([row], QUERY)
    assert scored.parts["temporal"] == pytest.approx(
        1 + DEFAULT_CONSTANTS.temporal_weight * (by_instants - 1)
    )
