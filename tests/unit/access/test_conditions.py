"""The stock conditions: a window of time, a tool, and sharing's own."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from corbits_memory.access.conditions import (
    MEMORY_SHARE_CONDITION_REGISTRY,
    STOCK_CONDITIONS,
    time_window,
    tool,
)
from corbits_memory.ports import ConditionContext

CONTEXT = ConditionContext(
    now=datetime(2026, 1, 15, 8, 30, tzinfo=UTC),
    resource="memory.space:eng",
    action="search",
    principal_id="bob",
    tenant_id="acme",
)


def at(hour: int, minute: int = 0, *, month: int = 1) -> ConditionContext:
    return replace(CONTEXT, now=datetime(2026, month, 15, hour, minute, tzinfo=UTC))


def window(after: Any, before: Any, timezone: Any = "UTC") -> dict[str, Any]:
    return {"after": after, "before": before, "timezone": timezone}


@pytest.mark.parametrize(
    ("hour", "minute", "inside"),
    [(8, 59, False), (9, 0, True), (16, 59, True), (17, 0, False), (0, 0, False)],
)
def test_a_window_is_from_after_until_just_before(hour: int, minute: int, inside: bool) -> None:
    assert time_window(window("09:00", "17:00"), at(hour, minute)) is inside


@pytest.mark.parametrize(
    ("hour", "minute", "inside"),
    [(21, 59, False), (22, 0, True), (0, 0, True), (5, 59, True), (6, 0, False), (12, 0, False)],
)
def test_a_window_may_cross_midnight(hour: int, minute: int, inside: bool) -> None:
    assert time_window(window("22:00", "06:00"), at(hour, minute)) is inside


@pytest.mark.parametrize(("month", "inside"), [(1, False), (7, True)], ids=["winter", "summer"])
def test_a_window_is_in_its_own_timezone(month: int, inside: bool) -> None:
    # 07:30 UTC is 08:30 in Berlin in winter, 09:30 in summer.
    assert time_window(window("09:00", "17:00", "Europe/Berlin"), at(7, 30, month=month)) is inside


@pytest.mark.parametrize(
    "value",
    [
        None,
        "09:00-17:00",
        {},
        window("09:00", "09:00"),
        window("9:00", "17:00"),
        window("24:00", "17:00"),
        window("09:60", "17:00"),
        window("09:00:00", "17:00"),
        window(900, 1_700),
        window("09:00", None),
        window("09:00", "17:00", ""),
        window("09:00", "17:00", None),
        window("09:00", "17:00", "Mars/Olympus"),
        window("09:00", "17:00", "../../etc/passwd"),
        window("09:00", "17:00", "Europe"),
    ],
)
def test_a_window_that_makes_no_sense_raises(value: Any) -> None:
    with pytest.raises(ValueError, match="time window"):
        time_window(value, CONTEXT)


@pytest.mark.parametrize(
    ("value", "consumer", "met"),
    [
        ("recall", "recall", True),
        ("recall", "Recall", False),
        ("recall", "", False),
    ],
)
def test_a_tool_is_named_exactly(value: Any, consumer: str, met: bool) -> None:
    assert tool(value, replace(CONTEXT, consumer=consumer)) is met


@pytest.mark.parametrize("value", ["", 1, None, ["recall"]])
def test_what_is_no_tools_name_raises(value: Any) -> None:
    with pytest.raises(ValueError, match="tool"):
        tool(value, replace(CONTEXT, consumer="recall"))


def test_the_registries_hold_what_their_grants_name() -> None:
    assert set(STOCK_CONDITIONS) == {"time_window", "tool"}
    assert set(MEMORY_SHARE_CONDITION_REGISTRY) == {"memoryShare"}
    assert MEMORY_SHARE_CONDITION_REGISTRY["memoryShare"]({"sharedBy": "ann"}, CONTEXT) is True
