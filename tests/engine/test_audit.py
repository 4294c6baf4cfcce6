"""The audit on real Postgres: every act that changes what is kept or who may see it, and nothing of what is said."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corbits_memory.access.postgres import PostgresGrantStore
from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget, Effect, RetentionClass
from corbits_memory.engine import audit
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import ForbiddenError, NotFoundError
from corbits_memory.ports import AuditEvent, GrantRule
from tests.engine.support import T, add, note
from tests.engine.test_access import ANN, BOB, access_of, grant

Told = tuple[str, AuditAction, AuditTarget, str, AuditOutcome]


async def told(store: PostgresDocumentStore, *, target: str | None = None) -> list[Told]:
    """Who did what to which thing, oldest first."""
    page = await store.audit_events(tenant_id=T, limit=100, target_id=target)
    return [_short(event) for event in reversed(page.events)]


def _short(event: AuditEvent) -> Told:
    return event.actor_id, event.action, event.target_type, event.target_id, event.outcome


async def test_each_version_that_is_added_is_told_and_repeats_are_not(store: PostgresDocumentStore) -> None:
    one, two = await add(store, note("one", external_ref="1"), note("two", external_ref="2"))
    await add(store, note("one", external_ref="1"))
    await add(store, note("one, changed", external_ref="1"))
    await add(store, note("two", external_ref="2", access_tags=("memory.space:eng",)))
    added = [
        ("ann", AuditAction.ADD, AuditTarget.DOCUMENT, d.document_id, AuditOutcome.DONE) for d in (one, two)
    ]
    assert sorted((await told(store))[:2]) == sorted(added)
    assert (await told(store))[2:] == added
    assert await told(store, target=one.document_id) == [added[0]] * 2


async def test_a_refused_add_is_told_where_the_document_is_no_secret(store: PostgresDocumentStore) -> None:
    eng = "memory.space:eng"
    (made,) = await add(store, note("one", external_ref="1", access_tags=(eng,)))
    durable = note("two", external_ref="1", retention_class=RetentionClass.DURABLE)
    await store.add(**BOB, documents=[durable], access=await access_of(grant(eng, action="add")))
    await store.add(**BOB, documents=[durable], access=await access_of())
    assert (await told(store, target=made.document_id))[1:] == [
        ("bob", AuditAction.ADD, AuditTarget.DOCUMENT, made.document_id, AuditOutcome.FORBIDDEN)
    ]


async def test_shares_are_told_with_what_came_of_them(store: PostgresDocumentStore) -> None:
    (made,) = await add(store, note("one"))
    document = made.document_id

    async def change(outcome: AuditOutcome, *, action: AuditAction, **given: Any) -> Told:
        await store.change_access_tags(**ANN, document_id=document, **given)
        return ("ann", action, AuditTarget.DOCUMENT, document, outcome)

    share, unshare = AuditAction.SHARE, AuditAction.UNSHARE
    expected = [
        await change(AuditOutcome.DONE, action=share, add=["memory.space:eng"]),
        await change(AuditOutcome.UNCHANGED, action=share, add=["memory.space:eng"]),
        await change(AuditOutcome.DONE, action=unshare, remove=["memory.space:eng"]),
        await change(AuditOutcome.UNCHANGED, action=unshare, remove=["memory.space:eng"]),
    ]
    with pytest.raises(NotFoundError):
        await store.change_access_tags(**BOB, document_id=document, add=["a:b"])
    with pytest.raises(ForbiddenError):
        await store.change_access_tags(
            **BOB, document_id=document, add=["a:b"], access=await access_of(grant("memory.owner:ann"))
        )
    expected.append(("bob", share, AuditTarget.DOCUMENT, document, AuditOutcome.FORBIDDEN))
    assert (await told(store, target=document))[1:] == expected


async def test_grants_and_roles_are_told(store: PostgresDocumentStore) -> None:
    grants = PostgresGrantStore(store._database, audit=audit.record)
    rule = GrantRule(
        id="g1", tenant_id=T, principal_id="bob", resource="a:b", action="search", effect=Effect.ALLOW
    )
    document = "memory.doc:kdoc_1"
    steps: list[tuple[Callable[[], Awaitable[object]], Told]] = [
        (lambda: grants.put_grant(rule), _of("operator", AuditAction.GRANT, "g1")),
        (lambda: grants.delete_grant(T, "g1", by="sara"), _of("sara", AuditAction.REVOKE_GRANT, "g1")),
        (
            lambda: grants.delete_grant(T, "g1"),
            _of("operator", AuditAction.REVOKE_GRANT, "g1", outcome=AuditOutcome.UNCHANGED),
        ),
        (
            lambda: grants.put_role(T, "eng", created_by="sara"),
            _of("sara", AuditAction.PUT_ROLE, "eng", AuditTarget.ROLE),
        ),
        (
            lambda: grants.assign(T, "eng", "bob", created_by="sara"),
            _of("sara", AuditAction.ASSIGN_ROLE, "eng", AuditTarget.ROLE),
        ),
        (
            lambda: grants.unassign(T, "eng", "bob", by="sara"),
            _of("sara", AuditAction.UNASSIGN_ROLE, "eng", AuditTarget.ROLE),
        ),
        (
            lambda: grants.delete_role(T, "eng", by="sara"),
            _of("sara", AuditAction.DELETE_ROLE, "eng", AuditTarget.ROLE),
        ),
    ]
    for number, (act, expected) in enumerate(steps, 1):
        await act()
        events = await told(store)
        assert (len(events), events[-1]) == (number, expected)
    await grants.put_grant(GrantRule(**{**_fields(rule), "id": "g2", "resource": document}))
    await grants.delete_resource_grants(T, document)
    await grants.delete_resource_grants(T, document)
    page = await store.audit_events(tenant_id=T, limit=1)
    assert _short(page.events[0]) == _of("operator", AuditAction.REVOKE_GRANT, document, AuditTarget.TAG)
    assert page.events[0].amount == 1
    assert len(await told(store)) == len(steps) + 2


async def test_a_change_that_fails_is_not_told(store: PostgresDocumentStore) -> None:
    grants = PostgresGrantStore(store._database, audit=audit.record)
    with pytest.raises(NotFoundError):
        await grants.assign(T, "nothing", "bob")
    assert await told(store) == []


def _of(
    actor: str,
    action: AuditAction,
    target: str,
    kind: AuditTarget = AuditTarget.GRANT,
    outcome: AuditOutcome = AuditOutcome.DONE,
) -> Told:
    return actor, action, kind, target, outcome


def _fields(rule: GrantRule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}
