"""From a host's grant store to rules that can be trusted, and how long they may be kept."""

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.errors import GrantStoreError
from corbits_memory.ports import GrantRule, GrantStore, VersionedGrantStore

CACHED_PRINCIPALS = 10_000


async def collect(
    store: GrantStore, principal_id: str, tenant_id: str, *, now: datetime
) -> tuple[GrantRule, ...]:
    """A principal's unexpired rules in a tenant. Raises ``GrantStoreError`` when the store answers nonsense.

    Rules that name another tenant, or another principal and no role, are no business of this caller's: a
    store that returns them is wrong, and they are left out.
    """
    found: Any = store.collect_grants(principal_id, tenant_id)
    if inspect.isawaitable(found):
        found = await found
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise GrantStoreError("the grant store's collect_grants must return a list of GrantRule")
    rules = [_checked(rule) for rule in found]
    return tuple(
        rule
        for rule in rules
        if (rule.tenant_id is None or rule.tenant_id == tenant_id)
        and (rule.role_id is not None or rule.principal_id in (None, principal_id))
        and (rule.expires_at is None or rule.expires_at > now)
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    version: str | int
    until: datetime | None
    rules: tuple[GrantRule, ...]


class GrantCache:
    """A principal's rules, kept while the store's version stands and none of them has expired.

    Rules are kept, decisions never. A store that tells no version is asked anew each time.
    """

    def __init__(self, store: GrantStore, *, size: int = CACHED_PRINCIPALS) -> None:
        self._store = store
        self._size = size
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def rules(self, tenant_id: str, principal_id: str, *, now: datetime) -> tuple[GrantRule, ...]:
        """As :func:`collect`."""
        if not isinstance(self._store, VersionedGrantStore):
            return await collect(self._store, principal_id, tenant_id, now=now)
        # Before the rules: a change in between is seen again next time, never missed.
        version: Any = self._store.grants_version(tenant_id)
        if inspect.isawaitable(version):
            version = await version
        key = (tenant_id, principal_id)
        kept = self._kept.get(key)
        if kept is not None and kept.version == version and (kept.until is None or now < kept.until):
            self._kept.move_to_end(key)
            return kept.rules
        rules = await collect(self._store, principal_id, tenant_id, now=now)
        until = min((rule.expires_at for rule in rules if rule.expires_at is not None), default=None)
        self._kept[key] = _Kept(version, until, rules)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return rules


def _checked(rule: object) -> GrantRule:
    """A rule as it must be to be judged; a garbage rule is an error, never a garbage decision."""
    if not isinstance(rule, GrantRule):
        raise GrantStoreError("the grant store returned something that is not a GrantRule")
    # A host's types are not checked for it.
    texts: tuple[object, ...] = (rule.id, rule.resource, rule.action)
    words: tuple[object, object] = (rule.effect, rule.origin)
    moment: object = rule.expires_at
    conditions: object = rule.conditions
    sound = (
        all(isinstance(text, str) for text in texts)
        and isinstance(words[0], Effect)
        and isinstance(words[1], GrantOrigin)
        and (conditions is None or isinstance(conditions, Mapping))
        and (moment is None or (isinstance(moment, datetime) and moment.tzinfo is not None))
    )
    if not sound:
        raise GrantStoreError(
            "the grant store returned a malformed rule: id, resource and action must be text, effect and "
            "origin of their enums, conditions a mapping, expires_at an aware datetime"
        )
    return rule
