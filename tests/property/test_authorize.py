"""Properties of the judge that hold for any grants."""

from collections.abc import Collection, Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from corbits_memory.access.authorize import Authorizer, AuthzResult
from corbits_memory.access.explain import explain_access
from corbits_memory.access.patterns import has_wildcard, match_pattern, specificity
from corbits_memory.access.visibility import GrantedAccess
from corbits_memory.core.enums import Effect
from corbits_memory.ports import GrantRule
from tests.unit.access.support import P, authorizer

TAGS = ("a:", "a:b", "ab:b", "b:a")
REGISTRY = {"met": lambda value, context: True, "unmet": lambda value, context: False}

targets = st.sampled_from(TAGS)
EVERYTHING = [GrantRule(id="all", resource="*", action="*", effect=Effect.ALLOW, principal_id=P)]
# Weighted, so that grants often meet on one tag.
patterns = st.one_of(
    targets, targets, st.sampled_from(("*", "**", "a*", "*:b", "a:*")), st.text("ab:*", max_size=5)
)
actions = st.sampled_from(("search", "search", "search", "*", "s*", "add"))
conditions = st.sampled_from((None, None, None, None, None, {}, {"met": 1}, {"unmet": 1}, {"unknown": 1}))


@st.composite
def grants(draw: st.DrawFn) -> list[GrantRule]:
    return [
        GrantRule(
            id=f"g{number}",
            resource=draw(patterns),
            action=draw(actions),
            effect=draw(st.sampled_from(Effect)),
            conditions=draw(conditions),
            principal_id=P,
        )
        for number in range(draw(st.integers(0, 6)))
    ] + draw(st.sampled_from(([], EVERYTHING)))


def judge(rules: Sequence[GrantRule]) -> Authorizer:
    return authorizer(*rules, conditions=REGISTRY)


async def decide(rules: Sequence[GrantRule], tag: str) -> AuthzResult:
    return await judge(rules).decide(tag, "search")


def score(rule: GrantRule) -> int:
    return specificity(rule.resource) + specificity(rule.action)


@given(st.text("ab:*", max_size=6), st.text("ab:", max_size=8))
def test_patterns_match_as_regular_expressions_would(pattern: str, target: str) -> None:
    import re

    expression = ".*".join(re.escape(piece) for piece in pattern.split("*"))
    assert match_pattern(pattern, target) is (re.fullmatch(expression, target, re.DOTALL) is not None)


@given(grants(), targets, patterns, actions, st.sampled_from((None, {"met": 1}, {"unknown": 1})))
async def test_a_matching_deny_of_at_least_the_specificity_of_every_allow_wins(
    rules: list[GrantRule], tag: str, resource: str, action: str, given_conditions: dict[str, int] | None
) -> None:
    assume(match_pattern(resource, tag) and match_pattern(action, "search"))
    deny = GrantRule(
        id="deny",
        resource=resource,
        action=action,
        effect=Effect.DENY,
        conditions=given_conditions,
        principal_id=P,
    )
    weaker = [rule for rule in rules if score(rule) <= score(deny)]
    assert (await decide([*weaker, deny], tag)).effect is Effect.DENY


@given(grants(), targets, patterns, st.sampled_from(Effect))
async def test_an_unrelated_grant_changes_nothing(
    rules: list[GrantRule], tag: str, resource: str, effect: Effect
) -> None:
    assume(not match_pattern(resource, tag))
    other = GrantRule(id="other", resource=resource, action="*", effect=effect, principal_id=P)
    another = GrantRule(id="another", resource=tag, action="add", effect=effect, principal_id=P)
    assert await decide([*rules, other, another], tag) == await decide(rules, tag)


@given(st.data(), grants(), targets)
async def test_the_order_of_grants_never_matters(
    data: st.DataObject, rules: list[GrantRule], tag: str
) -> None:
    shuffled = data.draw(st.permutations(rules))
    assert await decide(shuffled, tag) == await decide(rules, tag)


@given(grants(), targets)
async def test_adding_a_deny_never_lets_more_pass(rules: list[GrantRule], tag: str) -> None:
    denied = [*rules, GrantRule(id="deny", resource=tag, action="*", effect=Effect.DENY, principal_id=P)]
    assert not (await decide(denied, tag)).allowed or (await decide(rules, tag)).allowed


@settings(max_examples=400)
@given(
    grants(), st.lists(targets, min_size=1, max_size=4), st.sampled_from(("ann", None, P)), st.sets(targets)
)
async def test_visibility_and_explanation_agree_with_judging_each_tag(
    rules: list[GrantRule], tags: list[str], owner: str | None, elsewhere: set[str]
) -> None:
    in_use = elsewhere | set(tags)

    async def known(asked: Sequence[str]) -> Collection[str]:
        return [tag for tag in in_use if any(match_pattern(pattern, tag) for pattern in asked)]

    results = [await decide(rules, tag) for tag in tags]
    vetoed = any(
        result.resolved_by is not None
        and result.resolved_by.effect is Effect.DENY
        and not has_wildcard(result.resolved_by.resource)
        for result in results
    )
    expected = owner == P or (any(result.allowed for result in results) and not vetoed)

    visibility = await GrantedAccess(principal_id=P, authorizer=judge(rules)).visibility(known)
    assert visibility.admits(owner=owner, tags=tags, document_id="none") is expected
    explained = await explain_access(judge(rules), owner=owner, principal_id=P, tags=tags, document_id="none")
    assert explained.visible is expected
    assert {told.tag: told.decided_by for told in explained.tags} == {
        tag: result.resolved_by for tag, result in zip(tags, results, strict=True)
    }
