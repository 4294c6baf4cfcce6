"""Authority, corroboration, time and boosts: the published vectors."""

from datetime import UTC, datetime, timedelta

import pytest

from corbits_memory.core.authority import authority
from corbits_memory.core.boosts import authority_multiplier, boost, normalise_scores
from corbits_memory.core.corroboration import corroboration_factor, effective_authority
from corbits_memory.core.enums import CreatedByKind, RankingSource, TemporalClass
from corbits_memory.core.temporal import temporal_multiplier, temporal_prior

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "actors", "source", "social", "expected"),
    [
        ("human", 1, "native", False, 0.42),
        ("agent", 1, "native", False, 0.30),
        ("system", 1, "native", False, 0.24),
        ("adapter", 1, "record", False, 0.18),
        ("human", 2, "thread", False, 0.64),
        ("human", 5, "channel", False, 0.8321928094887363),
        ("agent", 3, "call", False, 0.5484962500721156),
        ("human", 8, "channel", True, 1.0),
        ("human", 0, "native", False, 0.42),
        ("human", 1.9, "native", False, 0.42),
        ("human", 80, "channel", True, 1.0),
    ],
)
def test_authority(kind: str, actors: float, source: str, social: bool, expected: float) -> None:
    found = authority(CreatedByKind(kind), actors, RankingSource(source), social)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("supports", "contradicts", "factor", "effective"),
    [
        (0, 0, 1, 0.42),
        (1, 0, 1.1292029674220179, 0.4742652463172475),
        (2, 0, 1.2047818583457957, 0.5060083805052341),
        (3, 0, 1.258405934844036, 0.528530492634495),
        (4, 0, 1.3, 0.546),
        (8, 0, 1.3, 0.546),
        (1.9, -3, 1.1292029674220179, 0.4742652463172475),
        (0, 1, 0.870797032577982, 0.36573475368275243),
        (0, 2, 0.7952181416542043, 0.3339916194947658),
        (0, 4, 0.7, 0.294),
        (1, 1, 1, 0.42),
        (4, 4, 1, 0.42),
        (100, 100, 1, 0.42),
        (2, 1, 1.0755788909237776, 0.45174313418798656),
        (4, 1, 1.170797032577982, 0.42 * 1.170797032577982),
        (1, 4, 0.8292029674220179, 0.42 * 0.8292029674220179),
    ],
)
def test_corroboration(supports: float, contradicts: float, factor: float, effective: float) -> None:
    assert corroboration_factor(supports, contradicts) == pytest.approx(factor, abs=1e-9)
    assert effective_authority(0.42, supports, contradicts) == pytest.approx(effective, abs=1e-9)


def test_nobodys_word_is_exactly_neutral() -> None:
    assert corroboration_factor(0, 0) == 1.0


def multiplier(kind: TemporalClass, days: float, until: float | None = None) -> float:
    return temporal_multiplier(
        kind,
        now=NOW,
        occurred_at=NOW - timedelta(days=days),
        valid_until=None if until is None else NOW + timedelta(days=until),
    )


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (0, 1.3),
        (7, 1.2104002965705134),
        (15, 1.1242640687119283),
        (30, 1.0),
        (60, 0.85),
        (90, 0.775),
        (365, 0.700130502741915),
        (-5, 1.3),
    ],
)
def test_events_fade(days: float, expected: float) -> None:
    assert multiplier(TemporalClass.EVENT, days) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", [TemporalClass.STATE, TemporalClass.LESSON])
def test_states_and_lessons_stay(kind: TemporalClass) -> None:
    assert multiplier(kind, 365, until=1) == 1.0


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (14, 1),
        (7, 1),
        (6, 1.042857142857143),
        (3.5, 1.15),
        (1, 1.2571428571428571),
        (1 / 24, 1.2982142857142858),
        (0, 0.7),
        (-1, 0.7),
        (None, 1.0),
    ],
)
def test_deadlines_rise_and_fall(left: float | None, expected: float) -> None:
    assert multiplier(TemporalClass.DEADLINE, 90, until=left) == pytest.approx(expected, abs=1e-9)


def test_the_half_life_is_the_callers() -> None:
    found = temporal_multiplier(
        TemporalClass.EVENT, now=NOW, occurred_at=NOW - timedelta(days=1), half_life_ms=86_400_000
    )
    assert found == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("left", "expected"), [(0, 1.3), (-1, 1.1), (-1.5, 1.0), (-3, 0.7), (-30, 0.7), (3.5, 1.15), (14, 1)]
)
def test_an_expired_deadline_fades_over_three_days_in_default(left: float, expected: float) -> None:
    found = temporal_prior(
        TemporalClass.DEADLINE, now=NOW, occurred_at=NOW, valid_until=NOW + timedelta(days=left)
    )
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([2, 4, 6], [0, 0.5, 1]), ([5, 5, 5], [1, 1, 1]), ([9], [1]), ([], [])],
)
def test_normalised_scores(scores: list[float], expected: list[float]) -> None:
    assert normalise_scores(scores) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.7), (0.21, 0.826), (0.3, 0.88), (0.42, 0.952), (0.5, 1), (0.8, 1.18), (1, 1.3)],
)
def test_authority_multiplier(value: float, expected: float) -> None:
    assert authority_multiplier(value) == pytest.approx(expected, abs=1e-9)


def test_boosted_scores() -> None:
    first, second, third = normalise_scores([0.9, 0.6, 0.3])
    old = multiplier(TemporalClass.EVENT, 30)
    fresh = multiplier(TemporalClass.EVENT, 0)
    assert boost(first, authority=0.42, supports=0, contradicts=0, temporal=old) == pytest.approx(0.952)
    assert boost(second, authority=0.42, supports=4, contradicts=0, temporal=fresh) == pytest.approx(0.868322)
    assert boost(third, authority=0.8, supports=0, contradicts=0, temporal=1.0) == 0


def test_the_most_that_boosts_can_do() -> None:
    assert boost(1, authority=1, supports=4, contradicts=0, temporal=1.3) == pytest.approx(2.197)
