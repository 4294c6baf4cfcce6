"""The grant store in memory does what the ports say."""

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.ports import RevocableGrantStore, VersionedGrantStore
from tests.unit.access.support import T, allow, deny

ENG = "memory.space:eng"


def test_it_is_all_that_a_grant_store_can_be() -> None:
    assert isinstance(InMemoryGrantStore(), RevocableGrantStore)
    assert isinstance(InMemoryGrantStore(), VersionedGrantStore)


def test_rules_are_of_a_principal_and_a_tenant() -> None:
    here, everywhere, there = (
        allow(ENG, grant_id="h", tenant_id=T),
        allow(ENG, grant_id="e"),
        allow(ENG, grant_id="t", tenant_id="globex"),
    )
    store = InMemoryGrantStore([here, everywhere, there])
    assert store.collect_grants("bob", T) == [here, everywhere]
    assert store.collect_grants("bob", "globex") == [everywhere, there]
    assert store.collect_grants("eve", T) == []


def test_put_replaces_by_tenant_and_id() -> None:
    store = InMemoryGrantStore(
        [allow(ENG, grant_id="g", tenant_id=T), allow(ENG, grant_id="g", tenant_id="o")]
    )
    store.put_grant(deny(ENG, grant_id="g", tenant_id=T))
    assert [str(rule.effect) for rule in store.collect_grants("bob", T)] == ["deny"]
    assert [str(rule.effect) for rule in store.collect_grants("bob", "o")] == ["allow"]


def test_delete_tells_whether_there_was_one() -> None:
    store = InMemoryGrantStore([allow(ENG, grant_id="g", tenant_id=T)])
    assert not store.delete_grant("globex", "g")
    assert store.delete_grant(T, "g")
    assert not store.delete_grant(T, "g")
    assert store.collect_grants("bob", T) == []


def test_a_roles_rules_reach_those_who_hold_it_in_the_tenant() -> None:
    store = InMemoryGrantStore([allow(ENG, principal_id=None, role_id="eng")])
    store.assign(T, "eng", "bob")
    assert len(store.collect_grants("bob", T)) == 1
    assert store.collect_grants("bob", "globex") == []
    assert store.collect_grants("eve", T) == []
    store.unassign(T, "eng", "bob")
    assert store.collect_grants("bob", T) == []


def test_every_change_raises_the_version() -> None:
    store = InMemoryGrantStore()
    seen = [store.grants_version(T)]
    for change in (
        lambda: store.put_grant(allow(ENG, grant_id="g", tenant_id=T)),
        lambda: store.assign(T, "eng", "bob"),
        lambda: store.unassign(T, "eng", "bob"),
        lambda: store.delete_grant(T, "g"),
    ):
        change()
        seen.append(store.grants_version(T))
    assert seen == sorted(set(seen))
