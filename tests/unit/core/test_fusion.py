from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from corbits_memory.core.fusion import authority_weighted, best_per_document, reciprocal_rank_fusion

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    document_id: str
    rank: float
    effective_authority: float = 0.0
    occurred_at: datetime = NOW


def test_two_channels() -> None:
    fused = reciprocal_rank_fusion([["A", "B", "C", "D"], ["C", "A", "E", "F"]])
    assert "".join(item.key for item in fused) == "ACBEDF"
    assert [item.score for item in fused] == pytest.approx(
        [
            0.03252247488101534,
            0.032266458495966696,
            0.016129032258064516,
            0.015873015873015872,
            0.015625,
            0.015625,
        ],
        abs=1e-12,
    )


def test_only_the_rank_counts() -> None:
    lexical = [f"l{n}" for n in range(9)] + ["X"]
    fused = {item.key: item.score for item in reciprocal_rank_fusion([lexical, ["d", "Y"]])}
    assert fused["Y"] == 1 / 62
    assert fused["X"] == 1 / 70


def test_a_repeated_key_counts_once() -> None:
    (only,) = reciprocal_rank_fusion([["A", "A"]])
    assert only.score == 1 / 61


@pytest.mark.parametrize(("rank", "authority", "expected"), [(1, 1, 1.5), (0.4, 0, 0.4), (1, 0.5, 1.25)])
def test_authority_weighted(rank: float, authority: float, expected: float) -> None:
    assert authority_weighted(rank, authority) == expected


@pytest.mark.parametrize(
    ("rank", "authority", "expected"),
    [
        (0.03252247488101534, 0.42, 0.03935219460602856),
        (0.032266458495966696, 0.3, 0.037106427270361696),
        (0.016129032258064516, 0.42, 0.019516129032258064),
        (0.015873015873015872, 0.39, 0.018968253968253967),
    ],
)
def test_scores_of_the_fused_path(rank: float, authority: float, expected: float) -> None:
    assert authority_weighted(rank, authority) == pytest.approx(expected, abs=1e-12)


def test_one_row_a_document_with_authority() -> None:
    rows = [Row("a", 0.5, 0.2), Row("a", 0.9, 0.1), Row("b", 0.3, 0.9)]
    kept = best_per_document(rows, authority_weight=0.5)
    assert [item.row for item in kept] == [rows[1], rows[2]]
    assert kept[0].score == pytest.approx(0.945)


def test_one_row_a_document_without_authority() -> None:
    rows = [Row("a", 0.4, 1.0), Row("b", 0.6, 0.0)]
    assert [item.row.document_id for item in best_per_document(rows)] == ["b", "a"]


def test_equal_rows_of_a_document_keep_the_earlier() -> None:
    first, second = Row("a", 0.5, 0.1), Row("a", 0.5, 0.2)
    assert best_per_document([first, second])[0].row is first


def test_equal_documents_go_by_time_then_by_input() -> None:
    old, new, also_new = Row("old", 1, 0, NOW - timedelta(days=1)), Row("new", 1), Row("also", 1)
    assert [item.row for item in best_per_document([old, new, also_new])] == [new, also_new, old]
