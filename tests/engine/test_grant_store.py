"""Grants and roles on real Postgres: two tenants, the second lock, races, roles of roles, expiry."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import sql

from corbits_memory.access.postgres import PAGE_MAX, ROLE_DEPTH, PostgresGrantStore
from corbits_memory.access.sharing import ShareGrants, build_share_grants
from corbits_memory.core.enums import Effect, GrantOrigin
from corbits_memory.engine.pool import Database
from corbits_memory.errors import ConflictError, InvalidInputError, NotFoundError
from corbits_memory.ports import GrantRule, RevocableGrantStore, VersionedGrantStore

NOW = datetime(2026, 6, 1, tzinfo=UTC)
T, OTHER = "acme", "globex"
ENG = "memory.space:eng"
TABLES = ("access_state", "role", "role_member", "grant")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, pool_max=4)
    await opened.open()
    assert opened.second_lock
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def grants(database: Database, clock: Clock) -> PostgresGrantStore:
    return PostgresGrantStore(database, clock=clock)


def rule(grant_id: str, principal: str | None = "bob", **fields: Any) -> GrantRule:
    values = {"resource": ENG, "action": "search", "effect": Effect.ALLOW, "tenant_id": T, **fields}
    return GrantRule(id=grant_id, principal_id=principal, **values)


async def ids(grants: PostgresGrantStore, principal: str = "bob", tenant: str = T) -> list[str]:
    return sorted(found.id for found in await grants.collect_grants(principal, tenant))


def test_it_is_all_that_a_grant_store_can_be(grants: PostgresGrantStore) -> None:
    assert isinstance(grants, RevocableGrantStore)
    assert isinstance(grants, VersionedGrantStore)


async def test_a_rule_comes_back_as_it_was_put(grants: PostgresGrantStore) -> None:
    full = rule(
        "g1",
        effect=Effect.DENY,
        origin=GrantOrigin.CREATOR,
        conditions={"tool": "search", "time_window": {"after": "09:00", "ü": [1, None, 2.5]}},
        expires_at=NOW + timedelta(days=1),
        created_by="ann",
    )
    await grants.put_grant(full)
    assert await grants.collect_grants("bob", T) == [full]
    assert (await grants.list_grants(T)).grants == (full,)


async def test_put_replaces_all_of_a_grant_by_tenant_and_id(grants: PostgresGrantStore) -> None:
    await grants.put_grant(
        rule("g1", conditions={"tool": "x"}, expires_at=NOW + timedelta(1), created_by="ann")
    )
    await grants.put_role(T, "eng")
    replaced = rule("g1", None, role_id="eng", effect=Effect.ASK, resource="memory*")
    await grants.put_grant(replaced)
    await grants.put_grant(rule("g1", tenant_id=OTHER))
    assert (await grants.list_grants(T)).grants == (replaced,)
    assert await ids(grants) == []
    assert await ids(grants, tenant=OTHER) == ["g1"]


async def test_a_rule_without_tenant_or_sense_is_refused(grants: PostgresGrantStore) -> None:
    with pytest.raises(InvalidInputError, match="tenant_id is required"):
        await grants.put_grant(rule("g1", tenant_id=None))
    with pytest.raises(InvalidInputError, match="resource, action"):
        await grants.put_grant(rule("g1", resource="eng", action="read"))
    with pytest.raises(NotFoundError, match="role add"):
        await grants.put_grant(rule("g1", None, role_id="nobody"))
    assert (await grants.list_grants(T)).grants == ()
    assert await grants.grants_version(T) == 0


async def test_conditions_that_nothing_evaluates_are_refused_when_the_evaluators_are_known(
    database: Database, clock: Clock
) -> None:
    strict = PostgresGrantStore(database, clock=clock, conditions={"tool": lambda value, context: True})
    await strict.put_grant(rule("g1", conditions={"tool": "x"}))
    with pytest.raises(InvalidInputError, match="may only be of: tool"):
        await strict.put_grant(rule("g2", conditions={"weather": "fine"}))


async def test_tenants_do_not_see_or_change_each_other(grants: PostgresGrantStore) -> None:
    for tenant in (T, OTHER):
        await grants.put_role(tenant, "eng")
        await grants.assign(tenant, "eng", "bob")
    await grants.put_grant(rule("own"))
    await grants.put_grant(rule("by-role", None, role_id="eng"))
    assert await ids(grants, tenant=OTHER) == []
    assert not await grants.delete_grant(OTHER, "own")
    assert await grants.delete_resource_grants(OTHER, ENG) == 0
    assert await grants.delete_role(OTHER, "eng")
    assert await ids(grants) == ["by-role", "own"]
    assert (await grants.list_roles(OTHER)).roles == ()


async def test_a_query_that_forgets_its_tenant_gets_nothing(
    grants: PostgresGrantStore, database: Database
) -> None:
    await grants.put_role(T, "eng")
    await grants.assign(T, "eng", "bob")
    await grants.put_grant(rule("g1"))
    for tenant in (OTHER, "", "acme'--"):
        async with database.tenant(tenant) as conn:
            for name in TABLES:
                count = sql.SQL("SELECT count(*) FROM memory.{}").format(sql.Identifier(name))
                assert await (await conn.execute(count)).fetchone() == (0,), name
    async with database.tenant(T) as conn:
        for name in TABLES:
            count = sql.SQL("SELECT count(*) FROM memory.{}").format(sql.Identifier(name))
            assert await (await conn.execute(count)).fetchone() == (1,), name


@pytest.mark.parametrize("tenant", ["o'hara", 'quo"te', "; DROP SCHEMA memory;--", "ünïcode ✓"])
async def test_tenant_names_are_untrusted_text(grants: PostgresGrantStore, tenant: str) -> None:
    await grants.put_grant(rule("g1", tenant_id=tenant))
    assert await ids(grants, tenant=tenant) == ["g1"]
    assert await ids(grants) == []


async def test_every_change_raises_the_version_of_its_tenant_alone(grants: PostgresGrantStore) -> None:
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: grants.put_role(T, "eng"),
        lambda: grants.put_role(T, "staff"),
        lambda: grants.put_grant(rule("g1")),
        lambda: grants.put_grant(rule("g1", effect=Effect.DENY)),
        lambda: grants.put_grant(rule("g2")),
        lambda: grants.assign(T, "eng", "bob"),
        lambda: grants.assign_role(T, "staff", "eng"),
        lambda: grants.unassign_role(T, "staff", "eng"),
        lambda: grants.unassign(T, "eng", "bob"),
        lambda: grants.delete_grant(T, "g1"),
        lambda: grants.delete_resource_grants(T, ENG),
        lambda: grants.delete_role(T, "eng"),
    ]
    seen = [await grants.grants_version(T)]
    for change in changes:
        await change()
        seen.append(await grants.grants_version(T))
    assert seen == sorted(set(seen))
    assert await grants.grants_version(OTHER) == 0


async def test_a_change_that_fails_raises_no_version(grants: PostgresGrantStore) -> None:
    await grants.put_role(T, "eng")
    before = await grants.grants_version(T)
    with pytest.raises(NotFoundError):
        await grants.assign(T, "nobody", "bob")
    with pytest.raises(ConflictError):
        await grants.assign_role(T, "eng", "eng")
    assert await grants.grants_version(T) == before


async def test_racing_puts_lose_nothing_and_each_raises_the_version(grants: PostgresGrantStore) -> None:
    same = [grants.put_grant(rule("same", created_by=f"p{n}")) for n in range(10)]
    different = [grants.put_grant(rule(f"g{n}")) for n in range(10)]
    deletes = [grants.delete_grant(T, "same") for _ in range(4)]
    await asyncio.gather(*same, *different, *deletes)
    assert set(await ids(grants)) - {"same"} == {f"g{n}" for n in range(10)}
    assert await grants.grants_version(T) == 24


async def test_an_expired_grant_is_not_collected_but_listed(grants: PostgresGrantStore, clock: Clock) -> None:
    await grants.put_role(T, "eng")
    await grants.assign(T, "eng", "bob")
    ends = NOW + timedelta(hours=1)
    await grants.put_grant(rule("own", expires_at=ends))
    await grants.put_grant(rule("by-role", None, role_id="eng", expires_at=ends))
    clock.now = ends - timedelta(microseconds=1)
    assert await ids(grants) == ["by-role", "own"]
    clock.now = ends
    assert await ids(grants) == []
    assert len((await grants.list_grants(T)).grants) == 2


async def test_grants_reach_through_roles_of_roles(grants: PostgresGrantStore) -> None:
    for role in ("staff", "eng", "backend", "else"):
        await grants.put_role(T, role)
        await grants.put_grant(rule(f"of-{role}", None, role_id=role))
    await grants.assign_role(T, "staff", "eng")
    await grants.assign_role(T, "eng", "backend")
    await grants.assign(T, "backend", "bob")
    await grants.assign(T, "staff", "ann")
    # Held twice, collected once.
    await grants.assign(T, "staff", "bob")
    assert await ids(grants) == ["of-backend", "of-eng", "of-staff"]
    assert await ids(grants, "ann") == ["of-staff"]
    # A role and a principal of one name are two.
    assert await ids(grants, "eng") == []
    await grants.unassign_role(T, "eng", "backend")
    assert await ids(grants) == ["of-backend", "of-staff"]


async def test_a_role_goes_with_its_grants_and_memberships(grants: PostgresGrantStore) -> None:
    for role in ("staff", "eng"):
        await grants.put_role(T, role)
        await grants.put_grant(rule(f"of-{role}", None, role_id=role))
    await grants.assign_role(T, "staff", "eng")
    await grants.assign(T, "eng", "bob")
    assert await grants.delete_role(T, "eng")
    assert not await grants.delete_role(T, "eng")
    assert await ids(grants) == []
    assert [found.id for found in (await grants.list_grants(T)).grants] == ["of-staff"]
    (staff,) = (await grants.list_roles(T)).roles
    assert staff.roles == ()
    # A new role of the old name has nobody.
    await grants.put_role(T, "eng")
    await grants.put_grant(rule("new", None, role_id="eng"))
    assert await ids(grants) == []


async def test_roles_do_not_lie_in_a_circle(grants: PostgresGrantStore) -> None:
    for role in ("a", "b", "c"):
        await grants.put_role(T, role)
    await grants.assign_role(T, "a", "b")
    await grants.assign_role(T, "b", "c")
    for inner in ("a", "b"):
        with pytest.raises(ConflictError, match="circle"):
            await grants.assign_role(T, "c", inner)
    with pytest.raises(ConflictError, match="circle"):
        await grants.assign_role(T, "a", "a")
    # Two ways to one role are no circle.
    await grants.assign_role(T, "a", "c")


async def test_racing_writers_do_not_close_a_circle_together(grants: PostgresGrantStore) -> None:
    for turn in range(5):
        here, there = f"here{turn}", f"there{turn}"
        await grants.put_role(T, here)
        await grants.put_role(T, there)
        answers = await asyncio.gather(
            grants.assign_role(T, here, there), grants.assign_role(T, there, here), return_exceptions=True
        )
        assert [type(answer) for answer in answers if answer is not None] == [ConflictError]


async def test_a_circle_that_is_there_anyway_does_no_harm(
    grants: PostgresGrantStore, owner: psycopg.AsyncConnection[Any]
) -> None:
    for role in ("a", "b"):
        await grants.put_role(T, role)
        await grants.put_grant(rule(f"of-{role}", None, role_id=role))
    await grants.assign(T, "a", "bob")
    await owner.execute(
        "INSERT INTO memory.role_member (tenant_id, role_id, member_kind, member_id) "
        "VALUES ('acme', 'a', 'role', 'b'), ('acme', 'b', 'role', 'a')"
    )
    assert await ids(grants) == ["of-a", "of-b"]
    with pytest.raises(ConflictError, match="circle"):
        await grants.assign_role(T, "a", "b")


async def test_roles_lie_so_deep_and_no_deeper(grants: PostgresGrantStore) -> None:
    names = [f"r{place:02d}" for place in range(ROLE_DEPTH + 1)]
    for name in names:
        await grants.put_role(T, name)
    # From both ends: what lies above counts as what lies below.
    for outer, inner in [*pairwise(names[:9]), *pairwise(names[9:16])]:
        await grants.assign_role(T, outer, inner)
    await grants.assign_role(T, names[8], names[9])
    with pytest.raises(ConflictError, match="16 deep"):
        await grants.assign_role(T, names[15], names[16])
    with pytest.raises(ConflictError, match="16 deep"):
        await grants.assign_role(T, names[16], names[0])
    await grants.put_grant(rule("top", None, role_id=names[0]))
    await grants.assign(T, names[15], "bob")
    assert await ids(grants) == ["top"]


async def test_a_documents_grants_go_with_it(grants: PostgresGrantStore) -> None:
    share = ShareGrants(
        tenant_id=T,
        document_id="kdoc_1",
        source_version_id="kver_1",
        shared_by="ann",
        principals=("bob", "cy"),
    )
    for written in build_share_grants(share):
        await grants.put_grant(written)
    await grants.put_grant(rule("wide", resource="memory.doc:*"))
    assert await grants.delete_resource_grants(T, "memory.doc:kdoc_1") == 2
    assert await ids(grants) == ["wide"]


async def test_lists_come_in_pages_and_by_filters(grants: PostgresGrantStore) -> None:
    await grants.put_role(T, "eng")
    for number in range(5):
        await grants.put_grant(rule(f"b{number}"))
    await grants.put_grant(rule("a", "ann", resource="memory"))
    await grants.put_grant(rule("r", None, role_id="eng"))
    found: list[str] = []
    after = None
    while True:
        page = await grants.list_grants(T, after=after, limit=3)
        found += [each.id for each in page.grants]
        after = page.next
        if after is None:
            break
    assert found == ["a", "b0", "b1", "b2", "b3", "b4", "r"]
    by = [
        await grants.list_grants(T, principal_id="ann"),
        await grants.list_grants(T, role_id="eng"),
        await grants.list_grants(T, resource="memory"),
        await grants.list_grants(T, principal_id="ann", resource=ENG),
    ]
    assert [[each.id for each in page.grants] for page in by] == [["a"], ["r"], ["a"], []]
    assert (await grants.list_grants(T, limit=7)).next is None
    for wrong in (0, PAGE_MAX + 1):
        with pytest.raises(InvalidInputError, match="limit"):
            await grants.list_grants(T, limit=wrong)


async def test_roles_are_listed_with_their_direct_members(grants: PostgresGrantStore) -> None:
    await grants.put_role(T, "eng", description="Builds")
    await grants.put_role(T, "eng", description="Builds things")
    await grants.put_role(T, "staff")
    await grants.assign(T, "eng", "bob")
    await grants.assign(T, "eng", "bob")
    await grants.assign(T, "eng", "ann")
    await grants.assign_role(T, "staff", "eng")
    page = await grants.list_roles(T, limit=1)
    assert page.next == "eng"
    assert (page.roles[0].description, page.roles[0].principals) == ("Builds things", ("ann", "bob"))
    rest = await grants.list_roles(T, after=page.next)
    assert [(role.id, role.principals, role.roles) for role in rest.roles] == [("staff", (), ("eng",))]
    assert await grants.unassign(T, "eng", "bob")
    assert not await grants.unassign(T, "eng", "bob")


@pytest.mark.parametrize("name", ["", " ", "x" * 257, "a\nb", "a\x00"])
async def test_names_that_can_not_be_kept_are_refused(grants: PostgresGrantStore, name: str) -> None:
    with pytest.raises(InvalidInputError):
        await grants.put_role(T, name)
    with pytest.raises(InvalidInputError):
        await grants.assign(T, "eng", name)


async def test_checks_and_enums_agree(owner: psycopg.AsyncConnection[Any]) -> None:
    rows = await owner.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' "
        "AND conrelid = 'memory.\"grant\"'::regclass"
    )
    checks = [text for (text,) in await rows.fetchall()]
    for column, enum in (("effect", Effect), ("origin", GrantOrigin)):
        (check,) = [text for text in checks if f"({column} = ANY" in text]
        assert set(check.split("'")[1::2]) == {str(word) for word in enum}


async def test_the_hot_reads_are_answered_by_indexes(
    grants: PostgresGrantStore, owner: psycopg.AsyncConnection[Any]
) -> None:
    await owner.execute(
        'INSERT INTO memory."grant" (tenant_id, id, principal_id, resource, action, effect, origin) '
        "SELECT 'acme', 'g' || n, 'p' || n, 'memory.space:x', 'search', 'allow', 'system' "
        "FROM generate_series(1, 5000) AS n"
    )
    await owner.execute('ANALYZE memory."grant"')
    from corbits_memory.access.queries import load_queries

    parameters = {"tenant": T, "principal": "p77", "now": NOW}
    rows = await owner.execute(b"EXPLAIN " + load_queries("grants")["collect"].encode(), parameters)
    plan = "\n".join(line for (line,) in await rows.fetchall())
    assert "grant_principal" in plan
    assert 'Seq Scan on "grant"' not in plan
