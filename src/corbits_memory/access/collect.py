"""From a host's grant store to rules that can be trusted, and how long they may be kept."""

import inspect
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.errors import GrantStoreError
from corbits_memory.ports import GrantRule, GrantStore, VersionedGrantStore

CACHED_PRINCIPALS = 10_000
CACHED_RULES = 200_000
"""Rules that a cache keeps in all, so that principals with many grants don't fill the memory."""


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

    Rules are kept, decisions never. A store that tells no version is asked anew each time. Whose rules were
    used longest ago goes first: beyond ``size`` principals, or ``rules`` rules in all.
    """

    def __init__(
        self, store: GrantStore, *, size: int = CACHED_PRINCIPALS, max_rules: int = CACHED_RULES
    ) -> None:
        self._store = store
        self._size = size
        self._max_rules = max_rules
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._total = 0

    async def rules(self, tenant_id: str, principal_id: str, *, now: datetime) -> tuple[GrantRule, ...]:
        """As :func:`collect`."""
        if not isinstance(self._store, VersionedGrantStore):
            return await collect(self._store, principal_id, tenant_id, now=now)
        # Before the rules: a change in between is seen again next time, never missed.
        version = await _version(self._store, tenant_id)
        key = (tenant_id, principal_id)
        kept = self._kept.get(key)
        if kept is not None and kept.version == version and (kept.until is None or now < kept.until):
            self._kept.move_to_end(key)
            return kept.rules
        rules = await collect(self._store, principal_id, tenant_id, now=now)
        until = min((rule.expires_at for rule in rules if rule.expires_at is not None), default=None)
        self._keep(key, _Kept(version, until, rules))
        return rules

    def _keep(self, key: tuple[str, str], kept: _Kept) -> None:
        self._forget(key)
        self._kept[key] = kept
        self._total += len(kept.rules)
        while self._kept and (len(self._kept) > self._size or self._total > self._max_rules):
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        self._total -= len(kept.rules) if kept is not None else 0


async def _version(store: VersionedGrantStore, tenant_id: str) -> str | int:
    version: Any = store.grants_version(tenant_id)
    if inspect.isawaitable(version):
        version = await version
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise GrantStoreError("the grant store's grants_version must return a number or text")
    return version


def _checked(rule: object) -> GrantRule:
    """A rule as it must be to be judged; a garbage rule is an error, never a garbage decision."""
    if not isinstance(rule, GrantRule):
        raise GrantStoreError("the grant store returned something that is not a GrantRule")
    problems = list(_problems(rule))
    if problems:
        listed = "; ".join(f"{field} {problem}" for field, problem in problems)
        raise GrantStoreError(
            f"the grant store returned a malformed GrantRule: {listed}",
            details=[{"field": field, "problem": problem} for field, problem in problems],
        )
    return rule


def _problems(rule: GrantRule) -> Iterator[tuple[str, str]]:
    # A host's types are not checked for it, so each value may be anything.
    for field in ("id", "resource", "action"):
        if not isinstance(getattr(rule, field), str):
            yield field, "must be text"
    for field in ("role_id", "principal_id", "tenant_id"):
        if not isinstance(getattr(rule, field), str | None):
            yield field, "must be text or None"
    for field, enum in (("effect", Effect), ("origin", GrantOrigin)):
        if not isinstance(getattr(rule, field), enum):
            yield field, f"must be of {enum.__name__}"
    conditions: object = rule.conditions
    if conditions is not None and not (
        isinstance(conditions, Mapping) and all(isinstance(name, str) for name in conditions)
    ):
        yield "conditions", "must be a mapping by text, or None"
    moment: object = rule.expires_at
    # utcoffset, not tzinfo: a zone may know no offset, and comparing would then raise.
    if moment is not None and not (isinstance(moment, datetime) and moment.utcoffset() is not None):
        yield "expires_at", "must be an aware datetime, or None"
