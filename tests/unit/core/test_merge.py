from datetime import UTC, datetime, timedelta

import pytest

from corbits_memory.core.merge import Merged, MergeItem, Origin, compat_merge, live_recency, rank_merge

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def hit(
    origin: Origin,
    name: str,
    score: float = 1.0,
    at: datetime | None = None,
    source: str | None = None,
    kind: str = "note",
    title: str | None = None,
) -> MergeItem:
    adapter, ref = name.split(":")
    return MergeItem(
        origin=origin,
        index=0,
        adapter=adapter,
        external_ref=ref,
        title=title or name,
        score=score,
        updated_at=at,
        source=source,
        kind=kind,
    )


def local(name: str, score: float = 1.0, at: datetime | None = None) -> MergeItem:
    return hit(Origin.LOCAL, name, score, at)


def live(name: str, score: float = 1.0, at: datetime | None = None, source: str = "p") -> MergeItem:
    return hit(Origin.LIVE, name, score, at, source)


def names(merged: list[Merged]) -> list[str]:
    return [f"{entry.item.origin}/{entry.item.external_ref}" for entry in merged]


LOCALS = [local("http:a", 0.03), local("http:b", 0.015), local("linear:CL-1", 0.01)]
LIVES = [live("linear:CL-1", 0.99, NOW), live("linear:CL-2", 0.5, NOW)]


@pytest.mark.parametrize(
    ("age", "expected"), [(0, 1.0), (-3, 1.0), (7, 0.8506671609508557), (30, 0.5), (None, 0.5)]
)
def test_recency(age: float | None, expected: float) -> None:
    at = None if age is None else NOW - timedelta(days=age)
    assert live_recency(at, NOW) == pytest.approx(expected)


def test_compat_worked_example() -> None:
    merged = compat_merge(LOCALS, LIVES, now=NOW, limit=10)
    assert names(merged) == ["local/a", "live/CL-2", "local/b", "local/CL-1"]
    assert [entry.score for entry in merged] == pytest.approx(
        [0.925, 0.5792929292929293, 0.5, 0.3583333333333334]
    )


def test_compat_scores_at_or_below_zero_count_nothing() -> None:
    merged = compat_merge([local("a:l", -1)], [live("a:r", 0)], now=NOW, limit=10)
    assert names(merged) == ["local/l", "live/r"]
    assert [entry.score for entry in merged] == pytest.approx([0.075, 0.075])


def test_compat_filters_live_by_adapter() -> None:
    lives = [live("linear:x"), live("mail:y")]
    assert names(compat_merge(LOCALS, lives, now=NOW, limit=9, sources=["mail"])) == ["live/y"]
    assert names(compat_merge(LOCALS, lives, now=NOW, limit=9, sources=["local"])) == [
        "local/a",
        "local/b",
        "local/CL-1",
    ]


def test_compat_newer_live_hits_first_and_the_limit_comes_last() -> None:
    old, new = live("m:old", 1, NOW - timedelta(days=90)), live("m:new", 1, NOW)
    assert names(compat_merge([], [old, new], now=NOW, limit=10)) == ["live/new", "live/old"]
    assert names(compat_merge([], [old, new], now=NOW, limit=1)) == ["live/new"]


def test_compat_equal_scores_go_by_title() -> None:
    items = [hit(Origin.LIVE, "m:1", title="beta"), hit(Origin.LIVE, "m:2", title="Alpha")]
    assert names(compat_merge([], items, now=NOW, limit=10)) == ["live/2", "live/1"]


def test_compat_a_later_double_of_a_channel_overwrites_the_earlier() -> None:
    (only,) = compat_merge([], [live("m:1", 1), live("m:1", 0.5)], now=NOW, limit=10)
    assert only.item.score == 0.5


def test_both_sides_may_be_empty() -> None:
    assert compat_merge([], [], now=NOW, limit=10) == []
    assert rank_merge([], [], limit=10) == []
    assert names(compat_merge(LOCALS[:1], [], now=NOW, limit=10)) == ["local/a"]


def test_rank_merge_keeps_each_sides_order_whatever_the_scores() -> None:
    merged = rank_merge([local("h:a", 1), local("h:b", 99)], [[live("m:x", 1), live("m:y", 5)]], limit=10)
    assert names(merged) == ["local/a", "live/x", "local/b", "live/y"]


def test_rank_merge_shows_the_local_copy_and_adds_up_ranks() -> None:
    merged = rank_merge(LOCALS, [LIVES], limit=10)
    assert names(merged)[0] == "local/CL-1"
    assert merged[0].score == pytest.approx(1 / 63 + 1 / 61)


def test_rank_merge_filters_by_provider_and_kind() -> None:
    lives = [[live("m:x", source="one")], [live("m:y", source="two")]]
    assert names(rank_merge(LOCALS, lives, limit=10, sources=["two"])) == ["live/y"]
    other_kind = [[hit(Origin.LIVE, "m:z", source="one", kind="issue")]]
    assert rank_merge([], other_kind, limit=10, kinds=["note"]) == []
    assert names(rank_merge([], other_kind, limit=10, kinds=["issue"])) == ["live/z"]


def test_rank_merge_cuts_to_the_limit() -> None:
    assert len(rank_merge(LOCALS, [LIVES], limit=2)) == 2
