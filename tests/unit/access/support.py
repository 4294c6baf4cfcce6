"""Short ways to say grants."""

from datetime import UTC, datetime
from typing import Any

from corbits_memory.access.authorize import Authorizer
from corbits_memory.core.enums import Effect
from corbits_memory.ports import ConditionRegistry, GrantRule

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
T, P = "acme", "bob"


def rule(
    resource: str,
    action: str = "search",
    effect: Effect | str = Effect.ALLOW,
    *,
    grant_id: str | None = None,
    principal_id: str | None = P,
    **fields: Any,
) -> GrantRule:
    """A grant whose id, unless given, tells what it is."""
    effect = Effect(effect)
    return GrantRule(
        id=grant_id or f"{effect} {action} on {resource}",
        resource=resource,
        action=action,
        effect=effect,
        principal_id=principal_id,
        **fields,
    )


def allow(resource: str, action: str = "search", **fields: Any) -> GrantRule:
    return rule(resource, action, Effect.ALLOW, **fields)


def deny(resource: str, action: str = "search", **fields: Any) -> GrantRule:
    return rule(resource, action, Effect.DENY, **fields)


def ask(resource: str, action: str = "search", **fields: Any) -> GrantRule:
    return rule(resource, action, Effect.ASK, **fields)


def authorizer(
    *rules: GrantRule, conditions: ConditionRegistry | None = None, consumer: str = ""
) -> Authorizer:
    return Authorizer(rules, principal_id=P, tenant_id=T, now=NOW, conditions=conditions, consumer=consumer)


async def effect_of(
    *rules: GrantRule, resource: str = "memory.space:eng", action: str = "search"
) -> str | None:
    return (await authorizer(*rules).decide(resource, action)).effect
