"""The one judge: what a principal's grants say about an action on a resource, and which grant decided.

The most specific matching grant decides; of equally specific ones deny beats ask beats allow. So an exact
allow beats a wildcard deny, and the order of grants never matters.
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from corbits_memory.access.collect import collect
from corbits_memory.access.patterns import has_wildcard, match_pattern, matcher, specificity
from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.ports import ConditionContext, ConditionRegistry, GrantRule, GrantStore

logger = logging.getLogger("corbits_memory.access")

_STRENGTH = {Effect.ALLOW: 0, Effect.ASK: 1, Effect.DENY: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedGrant:
    """A grant that had a say. ``specificity`` is that of its two patterns together."""

    id: str
    resource: str
    action: str
    effect: Effect
    origin: GrantOrigin
    specificity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthzResult:
    """A decision. ``effect`` None: no grant matched, which is a no. ``matching``: weakest first."""

    effect: Effect | None
    matching: tuple[MatchedGrant, ...] = ()
    resolved_by: MatchedGrant | None = None

    @property
    def allowed(self) -> bool:
        """Only ``allow`` authorizes; ``ask``, ``deny`` and silence refuse."""
        return self.effect is Effect.ALLOW


class Authorizer:
    """One principal's grants at one moment, compiled: ten thousand of them are judged in microseconds.

    A condition that can't be evaluated (unknown to the registry, raising) fails closed: an allow or ask
    then does not match, a deny does. Decisions are kept for the authorizer's life, which is one request.
    """

    def __init__(
        self,
        rules: Sequence[GrantRule],
        *,
        principal_id: str,
        tenant_id: str,
        now: datetime,
        conditions: ConditionRegistry | None = None,
        consumer: str = "",
    ) -> None:
        self._principal_id = principal_id
        self._tenant_id = tenant_id
        self._now = now
        self._conditions = conditions or {}
        self._consumer = consumer
        self._rules = [rule for rule in rules if rule.expires_at is None or rule.expires_at >= now]
        self._compiled: dict[str, _Compiled] = {}
        self._decided: dict[tuple[str, str], AuthzResult] = {}

    async def decide(self, resource: str, action: str) -> AuthzResult:
        """What the grants say about ``action`` on ``resource``, and by which grant."""
        known = self._decided.get((resource, action))
        if known is not None:
            return known
        ranked = [
            grant
            for grant in self._for(action).matching(resource)
            if not grant.rule.conditions or await self._is_met(grant.rule, resource, action)
        ]
        ranked.sort(key=_rank)
        matching = tuple(grant.told() for grant in ranked)
        last = matching[-1] if matching else None
        result = AuthzResult(effect=last.effect if last else None, matching=matching, resolved_by=last)
        self._decided[resource, action] = result
        return result

    async def deciding(self, resources: Iterable[str], action: str) -> dict[str, GrantRule | None]:
        """The rule that decides on each resource, without the reasons: for judging thousands of tags."""
        compiled = self._for(action)
        decided: dict[str, GrantRule | None] = {}
        for resource in resources:
            grants = compiled.matching(resource)
            if compiled.conditional:
                grants = [
                    grant
                    for grant in grants
                    if not grant.rule.conditions or await self._is_met(grant.rule, resource, action)
                ]
            decided[resource] = max(grants, key=_rank).rule if grants else None
        return decided

    def rules_for(self, action: str) -> Sequence[GrantRule]:
        """The unexpired rules whose action matches, whatever their resource and conditions."""
        return self._for(action).rules

    def _for(self, action: str) -> "_Compiled":
        compiled = self._compiled.get(action)
        if compiled is None:
            compiled = _Compiled([rule for rule in self._rules if match_pattern(rule.action, action)])
            self._compiled[action] = compiled
        return compiled

    async def _is_met(self, rule: GrantRule, resource: str, action: str) -> bool:
        context = ConditionContext(
            now=self._now,
            resource=resource,
            action=action,
            principal_id=self._principal_id,
            tenant_id=self._tenant_id,
            consumer=self._consumer,
        )
        closed = rule.effect is Effect.DENY
        for name, value in (rule.conditions or {}).items():
            evaluator = self._conditions.get(name)
            if evaluator is None:
                logger.warning("grant %s names a condition that no evaluator is registered for", rule.id)
                return closed
            try:
                met = evaluator(value, context)
                if inspect.isawaitable(met):
                    met = await met
            except Exception:
                # Whatever a host's evaluator raises, one bad grant must not fail every request.
                logger.exception("a condition of grant %s could not be evaluated", rule.id)
                return closed
            if not met:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A rule and what it is worth."""

    rule: GrantRule
    specificity: int

    def told(self) -> MatchedGrant:
        rule = self.rule
        return MatchedGrant(
            id=rule.id,
            resource=rule.resource,
            action=rule.action,
            effect=rule.effect,
            origin=rule.origin,
            specificity=self.specificity,
        )


def _rank(grant: _Ranked) -> tuple[int, int, str]:
    # The id makes the order of equals the same whatever the input's was.
    return grant.specificity, _STRENGTH[grant.rule.effect], grant.rule.id


class _Compiled:
    """The rules for one action: by resource where they name it, else by what their pattern accepts."""

    def __init__(self, rules: Sequence[GrantRule]) -> None:
        self.rules = rules
        self.conditional = any(rule.conditions for rule in rules)
        self._exact: dict[str, list[_Ranked]] = {}
        self._wide: list[tuple[Callable[[str], bool], _Ranked]] = []
        for rule in rules:
            ranked = _Ranked(rule, specificity(rule.resource) + specificity(rule.action))
            if has_wildcard(rule.resource):
                self._wide.append((matcher(rule.resource), ranked))
            else:
                self._exact.setdefault(rule.resource, []).append(ranked)

    def matching(self, resource: str) -> list[_Ranked]:
        named = self._exact.get(resource, [])
        if not self._wide:
            return named
        return [*named, *(ranked for accepts, ranked in self._wide if accepts(resource))]


async def authorize(
    grants: GrantStore | Sequence[GrantRule],
    *,
    principal_id: str,
    tenant_id: str,
    resource: str,
    action: str,
    now: datetime,
    conditions: ConditionRegistry | None = None,
) -> AuthzResult:
    """One decision, from a store or from rules at hand. Whoever asks often keeps an :class:`Authorizer`."""
    rules = (
        await collect(grants, principal_id, tenant_id, now=now) if isinstance(grants, GrantStore) else grants
    )
    authorizer = Authorizer(
        rules, principal_id=principal_id, tenant_id=tenant_id, now=now, conditions=conditions
    )
    return await authorizer.decide(resource, action)
