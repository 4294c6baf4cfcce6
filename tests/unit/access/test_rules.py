"""What a grant must look like before it is written."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from corbits_memory.access.conditions import STOCK_CONDITIONS
from corbits_memory.access.rules import CONDITION_CHARS, PATTERN_CHARS, check_grant, check_names
from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import GrantRule
from tests.unit.access.support import NOW

GOOD: Any = GrantRule(
    id="g1",
    tenant_id="acme",
    principal_id="bob",
    resource="memory.space:eng",
    action="search",
    effect=Effect.ALLOW,
)


def problems(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as raised:
        check_grant(replace(GOOD, **changes), now=NOW)
    details = raised.value.details
    assert isinstance(details, list)
    return [(found["field"], found["problem"]) for found in details]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"principal_id": None, "role_id": "eng"},
        {"resource": "memory"},
        {"resource": "*"},
        {"resource": "memory*"},
        {"resource": "memory.doc:kdoc_1"},
        {"resource": ":"},
        {"resource": "m:" + "x" * (PATTERN_CHARS - 2)},
        *({"action": word} for word in ("search", "add", "forget", "purge", "admin", "*", "sea*")),
        *({"effect": effect} for effect in Effect),
        *({"origin": origin} for origin in GrantOrigin),
        {"conditions": {}},
        {"conditions": {"anything": [1, 2.5, None, True, {"ü": "\\u0000"}]}},
        {"conditions": {"x": "y" * (CONDITION_CHARS - 9)}},
        {"expires_at": NOW + timedelta(microseconds=1)},
        {"created_by": "ann"},
        {"id": "x" * 256},
    ],
)
def test_a_sound_grant_passes(changes: dict[str, Any]) -> None:
    check_grant(replace(GOOD, **changes), now=NOW)


@pytest.mark.parametrize(
    ("changes", "field", "word"),
    [
        ({"id": None}, "id", "required"),
        ({"id": " "}, "id", "blank"),
        ({"id": "x" * 257}, "id", "256"),
        ({"id": "a\x00"}, "id", "control"),
        ({"tenant_id": None}, "tenant_id", "required"),
        ({"tenant_id": ""}, "tenant_id", "blank"),
        ({"principal_id": None}, "principal_id", "role_id must be given"),
        ({"role_id": "eng"}, "principal_id", "only one"),
        ({"principal_id": ""}, "principal_id", "blank"),
        ({"principal_id": 5}, "principal_id", "text"),
        ({"principal_id": None, "role_id": "a\nb"}, "role_id", "control"),
        ({"created_by": "bob"}, "principal_id", "the one who gives"),
        ({"created_by": "\ud800"}, "created_by", "control"),
        ({"resource": ""}, "resource", "blank"),
        ({"resource": None}, "resource", "text"),
        ({"resource": "eng"}, "resource", "colon"),
        ({"resource": "Memory"}, "resource", "colon"),
        ({"resource": "memory.space"}, "resource", "colon"),
        ({"resource": "m:" + "x" * (PATTERN_CHARS - 1)}, "resource", "256"),
        ({"resource": "m:\x1b"}, "resource", "control"),
        ({"action": ""}, "action", "blank"),
        ({"action": "read"}, "action", "one of add, search, forget, purge, admin"),
        ({"action": "memory:search"}, "action", "one of"),
        ({"action": "Search"}, "action", "one of"),
        ({"action": "*" * 257}, "action", "256"),
        ({"effect": "allow"}, "effect", "allow, ask, deny"),
        ({"origin": None}, "origin", "system, role, creator, invoker"),
        ({"conditions": "tool"}, "conditions", "object"),
        ({"conditions": {1: 2}}, "conditions", "JSON"),
        ({"conditions": {"x": (1, 2)}}, "conditions", "JSON"),
        ({"conditions": {"x": float("nan")}}, "conditions", "JSON"),
        ({"conditions": {"x": object()}}, "conditions", "JSON"),
        ({"conditions": {"x": "\ud800"}}, "conditions", "JSON"),
        ({"conditions": {"x": {"y": "a\x00"}}}, "conditions", "NUL"),
        ({"conditions": {"\x00": 1}}, "conditions", "NUL"),
        ({"conditions": {"x": "y" * (CONDITION_CHARS - 8)}}, "conditions", "10,000"),
        ({"expires_at": NOW}, "expires_at", "future"),
        ({"expires_at": NOW - timedelta(days=1)}, "expires_at", "future"),
        ({"expires_at": datetime(2099, 1, 1)}, "expires_at", "zone"),
        ({"expires_at": "2099-01-01"}, "expires_at", "zone"),
    ],
)
def test_a_grant_with_a_problem_is_refused_and_the_problem_named(
    changes: dict[str, Any], field: str, word: str
) -> None:
    ((found, problem),) = problems(**changes)
    assert found == field
    assert word in problem


def test_conditions_nested_without_end_are_no_json() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert problems(conditions={"x": nested}) == [("conditions", "must be JSON")]


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_grant(replace(GOOD, tenant_id=None, resource="eng\x00", action="read", expires_at=NOW), now=NOW)
    assert isinstance(raised.value.details, list)
    assert [found["field"] for found in raised.value.details] == [
        "tenant_id",
        "resource",
        "resource",
        "action",
        "expires_at",
    ]
    assert raised.value.message == "5 problems with the grant: tenant_id, resource, action, expires_at"


def test_no_value_is_repeated() -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_grant(replace(GOOD, resource="hunter2", action="hunter2", id="hunter2\n"), now=NOW)
    assert "hunter2" not in f"{raised.value.message} {raised.value.details}"


def test_conditions_are_held_against_a_registry_when_there_is_one() -> None:
    stock = replace(GOOD, conditions={"tool": "recall"})
    check_grant(stock, now=NOW, conditions=STOCK_CONDITIONS)
    with pytest.raises(InvalidInputError, match="may only be of: time_window, tool"):
        check_grant(replace(GOOD, conditions={"tool": 1, "weather": 1}), now=NOW, conditions=STOCK_CONDITIONS)
    with pytest.raises(InvalidInputError, match="may only be of: none"):
        check_grant(stock, now=NOW, conditions={})


def test_names_are_checked_together() -> None:
    check_names(tenant_id="acme", role_id="eng")
    with pytest.raises(InvalidInputError, match="2 problems with the input: tenant_id, role_id"):
        check_names(tenant_id=None, role_id="", principal_id="bob")
