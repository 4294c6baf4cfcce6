"""From a host's store to rules that can be trusted, and how long they are kept."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from corbits_memory.access.collect import GrantCache, collect
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.errors import GrantStoreError
from corbits_memory.ports import GrantRule
from tests.unit.access.support import NOW, P, T, allow

ENG = "memory.space:eng"


class HostStore:
    """Answers what it is given, and counts how often it is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    async def collect_grants(self, principal_id: str, tenant_id: str) -> Sequence[GrantRule]:
        self.asked += 1
        found: Sequence[GrantRule] = self.answer
        return found


class VersionedStore(HostStore):
    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.version = 1

    def grants_version(self, tenant_id: str) -> int:
        return self.version


async def kept(*rules: GrantRule) -> list[str]:
    return [rule.id for rule in await collect(HostStore(list(rules)), P, T, now=NOW)]


async def test_sync_and_async_stores_are_asked_alike() -> None:
    rule = allow(ENG)
    assert await collect(InMemoryGrantStore([rule]), P, T, now=NOW) == (rule,)
    assert await collect(HostStore((rule,)), P, T, now=NOW) == (rule,)
    assert await collect(HostStore(iter([rule])), P, T, now=NOW) == (rule,)


async def test_what_concerns_somebody_else_is_left_out() -> None:
    assert await kept(
        allow(ENG, grant_id="own", tenant_id=T),
        allow(ENG, grant_id="any-tenant"),
        allow(ENG, grant_id="role", principal_id=None, role_id="eng"),
        allow(ENG, grant_id="all", principal_id=None),
        allow(ENG, grant_id="other-tenant", tenant_id="globex"),
        allow(ENG, grant_id="other-principal", principal_id="eve"),
    ) == ["own", "any-tenant", "role", "all"]


@pytest.mark.parametrize(("offset", "found"), [(-1, []), (0, []), (1, ["g"])])
async def test_a_rule_is_collected_until_it_expires(offset: int, found: list[str]) -> None:
    assert await kept(allow(ENG, grant_id="g", expires_at=NOW + timedelta(microseconds=offset))) == found


@pytest.mark.parametrize("answer", [None, 5, "rules", b"rules", {"id": 1}])
async def test_an_answer_that_is_no_list_is_an_error(answer: Any) -> None:
    with pytest.raises(GrantStoreError, match="list of GrantRule"):
        await collect(HostStore(answer), P, T, now=NOW)


GOOD: Any = allow(ENG)


@pytest.mark.parametrize(
    "rule",
    [
        {"id": "g"},
        None,
        replace(GOOD, id=1),
        replace(GOOD, resource=None),
        replace(GOOD, action=b"search"),
        replace(GOOD, effect="allow"),
        replace(GOOD, origin="system"),
        replace(GOOD, conditions="memoryShare"),
        replace(GOOD, expires_at="2026-01-01"),
        replace(GOOD, expires_at=datetime(2026, 1, 1)),
    ],
)
async def test_a_garbage_rule_is_an_error_and_no_garbage_decision(rule: Any) -> None:
    with pytest.raises(GrantStoreError):
        await collect(HostStore([GOOD, rule]), P, T, now=NOW)


# --- kept between requests ---


async def test_rules_are_kept_while_the_version_stands() -> None:
    store = VersionedStore([allow(ENG)])
    cache = GrantCache(store)
    for _ in range(3):
        assert len(await cache.rules(T, P, now=NOW)) == 1
    assert store.asked == 1
    store.answer, store.version = [], 2
    assert await cache.rules(T, P, now=NOW) == ()
    assert store.asked == 2


async def test_rules_are_kept_apart_by_tenant_and_principal() -> None:
    store = VersionedStore([])
    cache = GrantCache(store)
    for tenant, principal in ((T, P), (T, "eve"), ("globex", P), (T, P)):
        await cache.rules(tenant, principal, now=NOW)
    assert store.asked == 3


async def test_rules_are_kept_until_the_first_of_them_expires() -> None:
    ends = NOW + timedelta(minutes=1)
    store = VersionedStore([allow(ENG), allow("a:b", expires_at=ends)])
    cache = GrantCache(store)
    assert len(await cache.rules(T, P, now=NOW)) == 2
    assert len(await cache.rules(T, P, now=ends - timedelta(microseconds=1))) == 2
    assert store.asked == 1
    assert len(await cache.rules(T, P, now=ends)) == 1
    assert store.asked == 2


async def test_a_store_without_a_version_is_asked_each_time() -> None:
    store = HostStore([])
    cache = GrantCache(store)
    for _ in range(3):
        await cache.rules(T, P, now=NOW)
    assert store.asked == 3


async def test_a_change_while_rules_are_collected_is_seen_next_time() -> None:
    class Changing(VersionedStore):
        async def collect_grants(self, principal_id: str, tenant_id: str) -> Sequence[GrantRule]:
            answer = await super().collect_grants(principal_id, tenant_id)
            if self.asked == 1:
                self.answer, self.version = [], 2
            return answer

    cache = GrantCache(Changing([allow(ENG)]))
    assert len(await cache.rules(T, P, now=NOW)) == 1
    assert await cache.rules(T, P, now=NOW) == ()


async def test_the_principals_asked_longest_ago_are_let_go() -> None:
    store = VersionedStore([])
    cache = GrantCache(store, size=2)
    for principal in ("a", "b", "a", "c", "a", "b"):
        await cache.rules(T, principal, now=NOW)
    # a, b, c, and b again, which c had put out.
    assert store.asked == 4
