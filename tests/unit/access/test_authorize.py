"""Which grant decides, and what a condition that can't be evaluated does."""

from collections.abc import Callable
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from corbits_memory.access import authorize as module
from corbits_memory.access.authorize import Authorizer, authorize
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.access.patterns import matcher
from corbits_memory.ports import ConditionContext, ConditionRegistry, GrantRule
from tests.unit.access.support import NOW, P, T, allow, ask, authorizer, deny, effect_of

ENG = "memory.space:eng"


async def test_without_a_matching_grant_there_is_no_effect_and_no_permission() -> None:
    result = await authorizer(allow("memory.space:ops"), allow(ENG, "add")).decide(ENG, "search")
    assert (result.effect, result.allowed, result.resolved_by, result.matching) == (None, False, None, ())


@pytest.mark.parametrize(
    ("rules", "effect"),
    [
        ([allow(ENG)], "allow"),
        ([ask(ENG)], "ask"),
        ([deny(ENG)], "deny"),
        # The more specific one decides, whatever its effect.
        ([deny("memory.space:*"), allow(ENG)], "allow"),
        ([allow("memory.space:*"), deny(ENG)], "deny"),
        ([deny("*", "*"), allow("memory.space:*")], "allow"),
        ([allow("*", "*"), ask("memory*")], "ask"),
        # Of equals: deny, then ask, then allow.
        ([allow(ENG), ask(ENG)], "ask"),
        ([allow(ENG), ask(ENG), deny(ENG)], "deny"),
        ([allow("memory.space:*"), deny("*emory.space:e*")], "deny"),
        # Characters are counted, not segments: 1019 beats 1016.
        ([deny("memory.space:*", "search"), allow(ENG, "*")], "deny"),
    ],
)
async def test_the_most_specific_decides_in_whatever_order(rules: list[GrantRule], effect: str) -> None:
    for order in permutations(rules):
        assert await effect_of(*order) == effect


async def test_only_allow_authorizes() -> None:
    assert (await authorizer(allow(ENG)).decide(ENG, "search")).allowed
    assert not (await authorizer(ask(ENG)).decide(ENG, "search")).allowed
    assert not (await authorizer(deny(ENG)).decide(ENG, "search")).allowed


async def test_the_origin_says_nothing_about_precedence() -> None:
    rules = [allow(ENG, origin="creator", grant_id="a"), deny(ENG, origin="system", grant_id="b")]
    assert await effect_of(*rules) == "deny"


async def test_matching_grants_are_told_weakest_first() -> None:
    result = await authorizer(deny(ENG), allow("*", "*"), allow(ENG)).decide(ENG, "search")
    assert [grant.specificity for grant in result.matching] == [0, 2_022, 2_022]
    assert [str(grant.effect) for grant in result.matching] == ["allow", "allow", "deny"]
    assert result.resolved_by == result.matching[-1]


async def test_of_grants_alike_in_all_the_same_is_named_in_any_order() -> None:
    rules = [allow(ENG, grant_id="a"), allow(ENG, grant_id="b")]
    named = {(await authorizer(*order).decide(ENG, "search")).resolved_by for order in permutations(rules)}
    assert len(named) == 1


@pytest.mark.parametrize(
    ("offset", "effect"), [(-1, None), (0, "deny"), (1, "deny")], ids=["past", "now", "future"]
)
async def test_a_deny_counts_until_it_expires(offset: int, effect: str | None) -> None:
    assert await effect_of(deny(ENG, expires_at=NOW + timedelta(microseconds=offset))) == effect


async def test_an_expired_deny_does_not_block() -> None:
    assert await effect_of(allow("*", "*"), deny(ENG, expires_at=NOW - timedelta(seconds=1))) == "allow"


# --- conditions ---


def met(value: Any, context: ConditionContext) -> bool:
    return True


def unmet(value: Any, context: ConditionContext) -> bool:
    return False


def failing(value: Any, context: ConditionContext) -> bool:
    raise ValueError("no")


async def slow(value: Any, context: ConditionContext) -> bool:
    return bool(value == "yes")


REGISTRY: ConditionRegistry = {"met": met, "unmet": unmet, "failing": failing, "slow": slow}


async def decided(rule: GrantRule) -> str | None:
    return (await authorizer(rule, conditions=REGISTRY).decide(ENG, "search")).effect


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        (None, True),
        ({}, True),
        ({"met": 1}, True),
        ({"unmet": 1}, False),
        ({"met": 1, "slow": "yes"}, True),
        ({"met": 1, "slow": "no"}, False),
    ],
)
async def test_all_conditions_of_a_grant_must_be_met(conditions: dict[str, Any] | None, holds: bool) -> None:
    for make, effect in ((allow, "allow"), (ask, "ask"), (deny, "deny")):
        assert await decided(make(ENG, conditions=conditions)) == (effect if holds else None)


@pytest.mark.parametrize("conditions", [{"unknown": 1}, {"failing": 1}, {"met": 1, "failing": 1}])
async def test_a_condition_that_can_not_be_evaluated_fails_closed(conditions: dict[str, Any]) -> None:
    assert await decided(allow(ENG, conditions=conditions)) is None
    assert await decided(ask(ENG, conditions=conditions)) is None
    assert await decided(deny(ENG, conditions=conditions)) == "deny"


async def test_without_a_registry_every_condition_fails_closed() -> None:
    assert await effect_of(allow(ENG, conditions={"met": 1})) is None
    assert await effect_of(deny(ENG, conditions={"met": 1})) == "deny"


async def test_a_condition_that_is_not_met_decides_in_any_order() -> None:
    assert await decided(deny(ENG, conditions={"unmet": 1, "failing": 1})) is None
    assert await decided(deny(ENG, conditions={"failing": 1, "unmet": 1})) is None


@pytest.mark.parametrize("answer", ["no", 0, 1, None, "", []])
async def test_an_answer_that_is_no_boolean_fails_closed(answer: Any) -> None:
    conditions = {"odd": lambda value, context: answer}
    allowed = authorizer(allow(ENG, conditions={"odd": 1}), conditions=conditions)
    assert (await allowed.decide(ENG, "search")).effect is None
    denied = authorizer(allow(ENG), deny(ENG, conditions={"odd": 1}), conditions=conditions)
    assert (await denied.decide(ENG, "search")).effect == "deny"


async def test_what_a_condition_raises_is_told_once_and_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(value: Any, context: ConditionContext) -> bool:
        raise ValueError("a secret value")

    judge = authorizer(allow("memory*", conditions={"bad": "secret"}), conditions={"bad": fail})
    for number in range(5):
        await judge.decide(f"memory.space:{number}", "search")
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text


async def test_one_bad_grant_spoils_no_other() -> None:
    rules = [allow(ENG, conditions={"unknown": 1}, grant_id="bad"), allow("memory.space:*")]
    assert await effect_of(*rules) == "allow"


async def test_a_condition_knows_what_is_asked() -> None:
    seen: list[ConditionContext] = []

    def look(value: Any, context: ConditionContext) -> bool:
        seen.append(context)
        return True

    judge = authorizer(
        allow("memory*", conditions={"look": 1}), conditions={"look": look}, consumer="search_tool"
    )
    await judge.decide(ENG, "search")
    assert seen == [
        ConditionContext(
            now=NOW, resource=ENG, action="search", principal_id=P, tenant_id=T, consumer="search_tool"
        )
    ]


# --- many grants ---


async def test_ten_thousand_grants_are_looked_up_and_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(pattern: str) -> Callable[[str], bool]:
        accepts = matcher(pattern)

        def look(target: str) -> bool:
            asked.append(pattern)
            return accepts(target)

        return look

    monkeypatch.setattr(module, "matcher", counted)
    exact = [allow(f"memory.doc:{number}") for number in range(10_000)]
    wide = [allow(f"memory.space:{number}*") for number in range(10_000)]
    judge = Authorizer([*exact, *wide, deny("memory.doc:77")], principal_id=P, tenant_id=T, now=NOW)
    assert (await judge.decide("memory.doc:77", "search")).effect == "deny"
    assert (await judge.decide("memory.doc:78", "search")).effect == "allow"
    assert asked == []
    assert (await judge.decide("memory.space:12", "search")).effect == "allow"
    assert set(asked) == {"memory.space:1*", "memory.space:12*"}


async def test_a_decision_is_made_once_a_request() -> None:
    asked: list[str] = []

    def count(value: Any, context: ConditionContext) -> bool:
        asked.append(context.resource)
        return True

    judge = authorizer(allow("memory*", conditions={"count": 1}), conditions={"count": count})
    for _ in range(3):
        await judge.decide(ENG, "search")
    assert asked == [ENG]


async def test_rules_for_an_action_are_those_whose_action_matches() -> None:
    judge = authorizer(
        allow(ENG), allow(ENG, "add"), deny("memory*", "*"), allow("a:b", expires_at=NOW - timedelta(1))
    )
    assert {rule.id for rule in judge.rules_for("search")} == {f"allow search on {ENG}", "deny * on memory*"}


async def test_one_decision_from_a_store_or_from_rules_at_hand() -> None:
    asked = {"principal_id": P, "tenant_id": T, "resource": ENG, "action": "search", "now": NOW}
    store = InMemoryGrantStore([allow(ENG), deny(ENG, principal_id="eve")])
    assert (await authorize(store, **asked)).allowed  # type: ignore[arg-type]
    assert (await authorize([allow(ENG)], **asked)).allowed  # type: ignore[arg-type]
    assert not (await authorize([], **asked)).allowed  # type: ignore[arg-type]
