"""What every grant store must do."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.ports import (
    GrantRule,
    GrantStore,
    ReaderGrantStore,
    ResourceGrantStore,
    RevocableGrantStore,
    VersionedGrantStore,
    WritableGrantStore,
)
from corbits_memory.testing.conformance.running import Conformance, able, awaited, conforms

ENG, OPS = "memory.space:eng", "memory.space:ops"


class GrantStoreConformance(Conformance):
    """Whom rules reach; and, for a store that can be written, that rules come back as they were put."""

    @conforms
    async def test_it_has_the_method(self, store: GrantStore) -> None:
        assert isinstance(store, GrantStore)

    @conforms
    async def test_a_stranger_has_no_rules(self, store: GrantStore) -> None:
        found = await awaited(store.collect_grants("nobody", _tenant()))
        assert isinstance(found, (list, tuple))
        assert list(found) == []

    @conforms
    async def test_a_rule_comes_back_as_it_was_put(self, store: GrantStore) -> None:
        writable, tenant = able(store, WritableGrantStore), _tenant()
        rule = GrantRule(
            id="g1",
            resource="memory.space:*",
            action="search",
            effect=Effect.DENY,
            origin=GrantOrigin.CREATOR,
            conditions={"tool": "memory_search"},
            expires_at=datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
            principal_id="bob",
            tenant_id=tenant,
            created_by="ann",
        )
        await awaited(writable.put_grant(rule))
        assert list(await awaited(store.collect_grants("bob", tenant))) == [rule]

    @conforms
    async def test_rules_reach_their_principal_in_their_tenant_alone(self, store: GrantStore) -> None:
        writable, tenant = able(store, WritableGrantStore), _tenant()
        await awaited(writable.put_grant(_rule("g1", tenant)))
        assert await _ids(store, "bob", tenant) == ["g1"]
        assert await _ids(store, "bob2", tenant) == []
        assert await _ids(store, "bob", f"{tenant}-2") == []

    @conforms
    async def test_putting_again_replaces_by_tenant_and_id(self, store: GrantStore) -> None:
        writable, tenant = able(store, WritableGrantStore), _tenant()
        await awaited(writable.put_grant(_rule("g1", tenant)))
        await awaited(writable.put_grant(_rule("g1", f"{tenant}-2")))
        await awaited(writable.put_grant(_rule("g1", tenant, resource=OPS)))
        (found,) = await awaited(store.collect_grants("bob", tenant))
        assert found.resource == OPS
        (other,) = await awaited(store.collect_grants("bob", f"{tenant}-2"))
        assert other.resource == ENG

    @conforms
    async def test_a_deleted_rule_is_gone_once(self, store: GrantStore) -> None:
        revocable, tenant = able(store, RevocableGrantStore), _tenant()
        await awaited(revocable.put_grant(_rule("g1", tenant)))
        assert await awaited(revocable.delete_grant(f"{tenant}-2", "g1")) is False
        assert await awaited(revocable.delete_grant(tenant, "g1")) is True
        assert await awaited(revocable.delete_grant(tenant, "g1")) is False
        assert await _ids(store, "bob", tenant) == []

    @conforms
    async def test_rules_on_what_is_gone_go_with_it(self, store: GrantStore) -> None:
        writable, tenant = able(store, WritableGrantStore), _tenant()
        cleaning = able(store, ResourceGrantStore)
        for name, where, resource in (
            ("g1", tenant, ENG),
            ("g2", tenant, f"{ENG}2"),
            ("g3", tenant, "memory.space:*"),
            ("g4", f"{tenant}-2", ENG),
        ):
            await awaited(writable.put_grant(_rule(name, where, resource=resource)))
        await awaited(cleaning.delete_resource_grants(tenant, ENG))
        assert await _ids(store, "bob", tenant) == ["g2", "g3"]
        assert await _ids(store, "bob", f"{tenant}-2") == ["g4"]

    @conforms
    async def test_readers_are_those_whom_a_rule_allows(self, store: GrantStore) -> None:
        writable, tenant = able(store, WritableGrantStore), _tenant()
        reading = able(store, ReaderGrantStore)
        for rule in (
            _rule("g1", tenant, "bob"),
            _rule("g2", tenant, "cleo", action="*"),
            _rule("g3", tenant, "dan", effect=Effect.DENY),
            _rule("g4", tenant, "eve", action="add"),
            _rule("g5", tenant, "fay", resource=OPS),
        ):
            await awaited(writable.put_grant(rule))
        assert sorted(await awaited(reading.readers_of(tenant, ENG, 10))) == ["bob", "cleo"]
        assert len(await awaited(reading.readers_of(tenant, ENG, 1))) == 1

    @conforms
    async def test_each_change_is_another_version(self, store: GrantStore) -> None:
        revocable, tenant = able(store, RevocableGrantStore), _tenant()
        versioned = able(store, VersionedGrantStore)
        seen = [await awaited(versioned.grants_version(tenant))]
        assert await awaited(versioned.grants_version(tenant)) == seen[0]
        await awaited(revocable.put_grant(_rule("g1", tenant)))
        seen.append(await awaited(versioned.grants_version(tenant)))
        await awaited(revocable.put_grant(_rule("g1", tenant, resource=OPS)))
        seen.append(await awaited(versioned.grants_version(tenant)))
        await awaited(revocable.delete_grant(tenant, "g1"))
        seen.append(await awaited(versioned.grants_version(tenant)))
        assert len(set(seen)) == len(seen)

    @conforms
    async def test_names_are_untrusted_text(self, store: GrantStore) -> None:
        writable, tenant = able(store, WritableGrantStore), _tenant()
        for name in ("o'brien", 'say "hi"', "100%", "日本", "a;b--", "\\"):
            await awaited(writable.put_grant(_rule("g1", tenant + name, name)))
            assert await _ids(store, name, tenant + name) == ["g1"]
            assert await _ids(store, name, tenant) == []


def _tenant() -> str:
    return f"tenant-{uuid4().hex[:12]}"


def _rule(
    grant_id: str,
    tenant: str,
    principal: str = "bob",
    *,
    resource: str = ENG,
    action: str = "search",
    effect: Effect = Effect.ALLOW,
) -> GrantRule:
    return GrantRule(
        id=grant_id,
        resource=resource,
        action=action,
        effect=effect,
        principal_id=principal,
        tenant_id=tenant,
    )


async def _ids(store: GrantStore, principal: str, tenant: str) -> list[str]:
    return sorted(rule.id for rule in await awaited(store.collect_grants(principal, tenant)))
