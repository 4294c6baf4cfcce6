import math

import pytest

from corbits_memory.core.tuning import (
    InvalidTuningError,
    SearchTuning,
    channel_candidates,
    clamp_k,
    ef_search,
)


@pytest.mark.parametrize(("k", "rows"), [(1, 5), (3, 15), (8, 40), (20, 100), (50, 250), (100, 500)])
def test_candidates_a_channel(k: int, rows: int) -> None:
    assert channel_candidates(k) == rows


@pytest.mark.parametrize(("multiplier", "kept"), [(1, 3), (3, 3), (5, 5), (10, 10), (50, 10)])
def test_the_multiplier_is_kept_in_range(multiplier: float, kept: int) -> None:
    assert channel_candidates(10, multiplier) == 10 * kept


def test_a_channel_never_yields_more_than_500() -> None:
    assert channel_candidates(100, 10) == 500


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(0, 40), (1, 40), (40, 40), (250, 250), (1000, 1000), (1001, 1000), (math.nan, 40), (math.inf, 40)],
)
def test_ef_search(rows: float, expected: int) -> None:
    assert ef_search(rows) == expected


@pytest.mark.parametrize(("limit", "k"), [(0, 1), (1, 1), (8.9, 8), (100, 100), (101, 100)])
def test_clamp_k(limit: float, k: int) -> None:
    assert clamp_k(limit) == k


def test_defaults_are_the_originals() -> None:
    tuning = SearchTuning()
    assert (tuning.authority_weight, tuning.mmr_lambda, tuning.overfetch) == (0.5, 0.7, 5)
    assert tuning.half_life_ms == 2_592_000_000


@pytest.mark.parametrize(
    "change",
    [
        {"authority_weight": -0.1},
        {"authority_weight": 10.1},
        {"recency_half_life_days": 0},
        {"recency_half_life_days": 36_501},
        {"mmr_lambda": 1.1},
        {"mmr_lambda": -0.1},
        {"overfetch": -1},
        {"overfetch": math.nan},
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidTuningError, match="it must be from"):
        SearchTuning(**change)


@pytest.mark.parametrize("change", [{"authority_weight": 0}, {"authority_weight": 10}, {"mmr_lambda": 1}])
def test_values_at_the_border_pass(change: dict[str, float]) -> None:
    SearchTuning(**change)
