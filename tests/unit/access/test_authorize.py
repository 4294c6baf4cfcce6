"""Which grant decides, and what a condition that can't be evaluated does."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from corbits_memory.access.authorize import authorize
from corbits_memory.access.memory_store import InMemoryGrantStore
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


async def test_a_condition_that_is_not_met_ends_the_look_at_the_others() -> None:
    assert await decided(deny(ENG, conditions={"unmet": 1, "failing": 1})) is None
    assert await decided(deny(ENG, conditions={"failing": 1, "unmet": 1})) == "deny"


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


class Watched(str):
    """A resource that counts how often it is compared with something."""

    __slots__ = ("compared",)
    compared: int

    def __new__(cls, text: str) -> "Watched":
        made = super().__new__(cls, text)
        made.compared = 0
        return made

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        return super().__eq__(other)

    def startswith(self, *values: Any) -> bool:
        self.compared += 1
        return super().startswith(*values)


async def test_of_ten_thousand_exact_grants_only_those_on_the_resource_are_looked_at() -> None:
    rules = [allow(f"memory.doc:{number}") for number in range(10_000)]
    judge = authorizer(*rules, allow("memory.space:*"), deny("memory.doc:77"))
    for name, effect in (("memory.doc:77", "deny"), ("memory.doc:78", "allow"), ("memory.doc:x", None)):
        resource = Watched(name)
        assert (await judge.decide(resource, "search")).effect == effect
        # The one pattern with a wildcard, and the few that bear this name.
        assert 0 < resource.compared < 10


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
