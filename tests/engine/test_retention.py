"""Retention: who may forget, purge and set a class; deprecation; the sweep; and all of them at once."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from corbits_memory import admin as admin_verbs
from corbits_memory.access.control import AccessControl
from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.admin import MemoryAdmin
from corbits_memory.core.enums import AddStatus, AuditAction, DeprecatedReason, Effect, RetentionClass
from corbits_memory.core.erasure import EPHEMERAL_AGE, SOURCE_ONLY_AGE
from corbits_memory.engine import audit, retention
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import (
    ConflictError,
    DatabaseError,
    DurableDocumentError,
    ExternalRefInUseError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
)
from corbits_memory.plane import Memory
from corbits_memory.ports import (
    Access,
    AddResult,
    AuditEvent,
    ForgetResult,
    GrantRule,
    NewDocument,
    PrincipalPurge,
    PurgeResult,
    TimelineQuery,
    VersionState,
)
from tests.engine.support import NOW, OpenStore, P, T, add, find, note, titles
from tests.models.conftest import ModelServer

Owner = psycopg.AsyncConnection[Any]
OPS = "ops"


def forget(
    store: PostgresDocumentStore, document_id: str, *, by: str = P, **fields: Any
) -> Awaitable[ForgetResult]:
    return store.forget(tenant_id=T, principal_id=by, document_id=document_id, **fields)


def purge(store: PostgresDocumentStore, document_id: str, *, by: str = P) -> Awaitable[PurgeResult]:
    return store.purge(tenant_id=T, principal_id=by, document_id=document_id)


async def rows(owner: Owner, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return await (await owner.execute(query, parameters)).fetchall()


# --- forget ---


async def test_what_was_forgotten_is_found_no_more(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("The vault opens at nine.", external_ref="n1"))
    await add(store, note("The vault opens at ten.", external_ref="n1"))
    assert await forget(store, added.document_id) == ForgetResult(document_id=added.document_id, versions=2)
    assert titles(await find(store, "vault", include_deprecated=True)) == []
    assert await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5)) == []
    assert await rows(owner, "SELECT DISTINCT status FROM memory.version") == [("tombstoned",)]
    assert await rows(owner, "SELECT op, seq FROM memory.feed_event ORDER BY seq") == [
        ("upsert", 1),
        ("upsert", 2),
        ("retract", 3),
        ("retract", 4),
    ]
    assert await rows(owner, "SELECT feed_seq, document_count, chunk_count FROM memory.tenant_state") == [
        (4, 1, 0)
    ]


async def test_forgetting_twice_forgets_nothing_more(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("Once."))
    await forget(store, added.document_id)
    before = await rows(owner, "SELECT feed_seq FROM memory.tenant_state")
    assert (await forget(store, added.document_id)).versions == 0
    assert await rows(owner, "SELECT feed_seq FROM memory.tenant_state") == before
    assert await rows(owner, "SELECT count(*) FROM memory.erasure") == [(1,)]


async def test_adding_again_after_forgetting_goes_on_counting(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (first,) = await add(store, note("One.", external_ref="n1", kind="memo"))
    await forget(store, first.document_id)
    assert (await rows(owner, "SELECT external_ref FROM memory.document"))[0][0].startswith("erased:")
    (again,) = await add(store, note("One.", external_ref="n1", kind="memo"))
    assert (again.document_id, again.version, again.status) == (first.document_id, 2, AddStatus.UPDATED)
    assert await rows(owner, "SELECT external_ref, kind, title FROM memory.document") == [
        ("n1", "memo", "Note")
    ]
    assert await rows(owner, "SELECT document_count, chunk_count FROM memory.tenant_state") == [(1, 1)]
    assert titles(await find(store, "one")) == ["Note"]
    assert (await forget(store, first.document_id)).versions == 1


async def test_a_forgotten_name_stays_its_owners(store: PostgresDocumentStore, owner: Owner) -> None:
    (mine,) = await add(store, note("Mine.", external_ref="n1"))
    await forget(store, mine.document_id)
    (answer,) = await store.add(
        tenant_id=T, principal_id="bob", documents=[note("Bob's.", external_ref="n1")]
    )
    assert isinstance(answer, ExternalRefInUseError)
    assert await rows(owner, "SELECT id, left(external_ref, 7) FROM memory.document") == [
        (mine.document_id, "erased:")
    ]


async def test_no_reference_may_look_erased(store: PostgresDocumentStore) -> None:
    (answer,) = await store.add(tenant_id=T, principal_id=P, documents=[note("x", external_ref="erased:abc")])
    assert isinstance(answer, InvalidInputError)
    assert "external_ref" in answer.message


@pytest.mark.parametrize("verb", [forget, purge])
async def test_unknown_and_invisible_are_the_same(store: PostgresDocumentStore, verb: Any) -> None:
    (added,) = await add(store, note("Mine."))
    for document_id, who in ((added.document_id, "bob"), ("kdoc_unknown", P), (added.version_id, P)):
        with pytest.raises(NotFoundError, match=r"^document not found$"):
            await verb(store, document_id, by=who)


@pytest.mark.parametrize("verb", [forget, purge])
async def test_a_tenant_without_anything_has_nothing_to_forget(
    store: PostgresDocumentStore, verb: Any
) -> None:
    with pytest.raises(NotFoundError):
        await verb(store, "kdoc_unknown")


# --- who may ---


async def access_of(*resources: str, principal: str = "bob") -> Access:
    """What a principal sees that may search these resources."""
    rules = [
        GrantRule(id=r, principal_id=principal, resource=r, action="search", effect=Effect.ALLOW)
        for r in resources
    ]
    control = AccessControl(InMemoryGrantStore(rules), conditions=None, clock=lambda: NOW)
    access = await control.access(T, principal)
    assert access is not None
    return access


async def audited(store: PostgresDocumentStore, **filters: Any) -> list[AuditEvent]:
    """Oldest first, without the adds."""
    page = await store.audit_events(tenant_id=T, limit=500, **filters)
    return [event for event in reversed(page.events) if event.action is not AuditAction.ADD]


async def told(store: PostgresDocumentStore) -> list[tuple[str, str, str]]:
    return [(event.actor_id, event.action, event.outcome) for event in await audited(store)]


async def test_seeing_a_document_is_not_owning_it(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("Ours to read.", access_tags=("memory.space:eng",)))
    seen: Any = {"by": "bob", "access": await access_of("memory.space:eng")}
    with pytest.raises(ForbiddenError, match="only the document's creator may forget it"):
        await forget(store, added.document_id, **seen)
    with pytest.raises(ForbiddenError, match="only the document's creator may purge it"):
        await store.purge(
            tenant_id=T, principal_id="bob", document_id=added.document_id, access=seen["access"]
        )
    with pytest.raises(ForbiddenError, match="only the version's creator may change its retention class"):
        await set_class(store, added.version_id, RetentionClass.DURABLE, **seen)
    assert titles(await find(store, "read")) == ["Note"]
    assert await told(store) == [
        ("bob", "forget", "forbidden"),
        ("bob", "purge", "forbidden"),
        ("bob", "retention_class", "forbidden"),
    ]
    assert await rows(owner, "SELECT count(*) FROM memory.erasure") == [(0,)]


async def test_what_was_forgotten_is_nobody_elses_to_see(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("Ours to read.", access_tags=("memory.space:eng",)))
    await forget(store, added.document_id)
    with pytest.raises(NotFoundError):
        await forget(store, added.document_id, by="bob", access=await access_of("*"))


async def test_adding_again_is_shared_with_nobody(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("One.", external_ref="n1", access_tags=("memory.space:eng",)))
    await forget(store, added.document_id)
    await add(store, note("Two.", external_ref="n1"))
    assert await rows(owner, "SELECT tags FROM memory.document") == [(["memory.owner:ann"],)]


async def test_another_tenants_document_is_unknown(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("Theirs."), tenant="other")
    for verb in (forget, purge):
        with pytest.raises(NotFoundError):
            await verb(store, added.document_id)
    with pytest.raises(NotFoundError, match="version not found"):
        await set_class(store, added.version_id, RetentionClass.DURABLE)
    with pytest.raises(NotFoundError):
        await store.purge_on_demand(tenant_id=T, actor_id=OPS, document_id=added.document_id)
    assert await told(store) == []


# --- derived ---


async def claim_of(
    store: PostgresDocumentStore, *sources: AddResult, by: str = P, access: Access | None = None
) -> AddResult:
    document = note("A claim.", derived_from=tuple(source.version_id for source in sources))
    (answer,) = await store.add(tenant_id=T, principal_id=by, documents=[document], access=access)
    assert isinstance(answer, AddResult), answer
    return answer


async def test_forgetting_lists_what_was_derived(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("A source."))
    claim = await claim_of(store, source)
    beyond = await claim_of(store, claim)
    result = await forget(store, source.document_id)
    assert [(d.document_id, d.version_id, d.forgotten) for d in result.derived] == [
        (claim.document_id, claim.version_id, False),
        (beyond.document_id, beyond.version_id, False),
    ]
    assert len(await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5))) == 2


async def test_a_cascade_may_follow_later(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("A source."))
    claim = await claim_of(store, source)
    beyond = await claim_of(store, claim)
    await forget(store, source.document_id)
    # As if a cascade had been interrupted: what lies beyond is found all the same.
    await forget(store, claim.document_id)
    result = await forget(store, source.document_id, cascade=True)
    assert result.versions == 0
    assert [(d.document_id, d.forgotten) for d in result.derived] == [(beyond.document_id, True)]
    assert (await find(store, "claim")).items == ()
    assert (await forget(store, source.document_id, cascade=True)).derived == ()


async def test_a_cascade_takes_the_callers_own_alone(store: PostgresDocumentStore) -> None:
    (source,) = await add(store, note("A source.", access_tags=("memory.space:eng",)))
    mine = await claim_of(store, source)
    access = await access_of("memory.space:eng")
    hidden = await claim_of(store, source, by="bob", access=access)
    shown = await store.add(
        tenant_id=T,
        principal_id="bob",
        documents=[note("Seen.", derived_from=(source.version_id,), access_tags=("memory.space:eng",))],
        access=access,
    )
    assert isinstance(shown[0], AddResult)
    result = await forget(
        store, source.document_id, cascade=True, access=await access_of("memory.space:eng", principal=P)
    )
    assert {d.document_id: d.forgotten for d in result.derived} == {
        mine.document_id: True,
        shown[0].document_id: False,
    }
    kept = await store.list(tenant_id=T, principal_id="bob", query=TimelineQuery(limit=10))
    assert {event.document_id for event in kept} == {hidden.document_id, shown[0].document_id}


# --- purge ---


async def test_purging_leaves_no_row(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("One.", external_ref="n1"))
    await add(store, note("Two.", external_ref="n1"))
    assert (await purge(store, added.document_id)).versions == 2
    for table in ("document", "version", "chunk", "raw_capture", "search_row", "embed_queue", "edge"):
        assert await rows(owner, f"SELECT count(*) FROM memory.{table}") == [(0,)], table
    assert await rows(owner, "SELECT document_count, chunk_count FROM memory.tenant_state") == [(0, 0)]
    assert await rows(owner, "SELECT op FROM memory.feed_event ORDER BY seq") == [
        ("upsert",),
        ("upsert",),
        ("retract",),
        ("retract",),
    ]
    with pytest.raises(NotFoundError):
        await purge(store, added.document_id)
    (again,) = await add(store, note("One.", external_ref="n1"))
    assert (again.version, again.status) == (1, AddStatus.CREATED)
    assert again.document_id != added.document_id


async def test_purging_after_forgetting_takes_the_rest(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("One.", retention_class=RetentionClass.DURABLE))
    await forget(store, added.document_id)
    await purge(store, added.document_id)
    assert await rows(owner, "SELECT count(*) FROM memory.raw_capture") == [(0,)]
    assert await rows(owner, "SELECT op FROM memory.feed_event ORDER BY seq") == [("upsert",), ("retract",)]
    assert await rows(owner, "SELECT kind FROM memory.erasure ORDER BY id") == [("forget",), ("purge",)]


async def test_a_durable_version_forbids_purging(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("One.", external_ref="n1", retention_class=RetentionClass.DURABLE))
    await add(store, note("Two.", external_ref="n1"))
    with pytest.raises(DurableDocumentError) as refused:
        await purge(store, added.document_id)
    assert (refused.value.status, refused.value.code) == (409, "durable_document")
    assert await rows(owner, "SELECT count(*) FROM memory.version") == [(2,)]
    assert await told(store) == [(P, "purge", "held")]


async def test_an_operator_purges_on_demand(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("One.", retention_class=RetentionClass.DURABLE))
    claim = await claim_of(store, added)
    async with Memory(store) as memory:
        admin = MemoryAdmin(memory)
        with pytest.raises(DurableDocumentError):
            await admin.purge(tenant_id=T, actor=OPS, document_id=added.document_id)
        result = await admin.purge(tenant_id=T, actor=OPS, document_id=added.document_id, even_durable=True)
        assert [d.document_id for d in result.derived] == [claim.document_id]
        with pytest.raises(NotFoundError):
            await admin.purge(tenant_id=T, actor=OPS, document_id=added.document_id)
        assert await told(store) == [(OPS, "purge_on_demand", "held"), (OPS, "purge_on_demand", "done")]


async def test_all_that_a_principal_owns_is_counted_and_then_purged(
    store: PostgresDocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_verbs, "OWNED_PAGE", 2)
    mine = await add(store, *(note(f"Note {i}", external_ref=f"n{i}") for i in range(5)))
    await add(store, note("Note 0, again", external_ref="n0"))
    (held,) = await add(store, note("Held", retention_class=RetentionClass.DURABLE))
    await forget(store, mine[1].document_id)
    await add(store, note("Somebody else's"), principal="bob")
    async with Memory(store) as memory:
        admin = MemoryAdmin(memory)

        async def purge(**asked: Any) -> PrincipalPurge:
            return await admin.purge_principal(tenant_id=T, actor=OPS, principal_id=P, **asked)

        counted = PrincipalPurge(principal_id=P, documents=5, versions=6, held=1, dry_run=True)
        assert await purge() == counted
        assert len(await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=9))) == 5
        assert await purge(dry_run=False) == replace(counted, dry_run=False)
        left = await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=9))
        assert [event.document_id for event in left] == [held.document_id]
        assert await purge(dry_run=False, even_durable=True) == replace(
            counted, documents=1, versions=1, held=0, dry_run=False
        )
        assert await purge() == replace(counted, documents=0, versions=0, held=0)
        with pytest.raises(InvalidInputError, match="dry_run"):
            await purge(dry_run="no")
        others = await store.list(tenant_id=T, principal_id="bob", query=TimelineQuery(limit=9))
        assert len(others) == 1
        assert [event.outcome for event in await audited(store) if event.action == "purge_on_demand"] == [
            "done"
        ] * 6


# --- classes ---


def set_class(
    store: PostgresDocumentStore, version_id: str, value: RetentionClass, *, by: str = P, **fields: Any
) -> Awaitable[VersionState]:
    return store.set_retention_class(
        tenant_id=T, principal_id=by, version_id=version_id, retention_class=value, **fields
    )


async def test_a_class_is_set_and_holds(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("One."))
    state = await set_class(store, added.version_id, RetentionClass.DURABLE)
    assert state == VersionState(
        version_id=added.version_id,
        document_id=added.document_id,
        status="active",
        retention_class=RetentionClass.DURABLE,
    )
    with pytest.raises(DurableDocumentError):
        await purge(store, added.document_id)
    await set_class(store, added.version_id, RetentionClass.STANDARD)
    await set_class(store, added.version_id, RetentionClass.STANDARD)
    assert [outcome for *_, outcome in await told(store)] == ["done", "held", "done", "unchanged"]
    await purge(store, added.document_id)


async def test_a_class_reaches_the_same_capture_in_other_generations(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    (added,) = await add(store, note("One."))
    await replay(owner, "g1")
    await set_class(store, added.version_id, RetentionClass.DURABLE)
    assert await rows(owner, "SELECT generation, retention_class FROM memory.version ORDER BY 1") == [
        ("g0", "durable"),
        ("g1", "durable"),
    ]


async def replay(owner: Owner, generation: str, *, status: str = "active") -> None:
    """Every version of g0 once more, as another generation."""
    kept = "CASE status WHEN 'active' THEN %(s)s ELSE status END"
    for table, changed in {
        "version": {"id": "id || %(g)s", "generation": "%(g)s", "status": kept, "feed_seq": "NULL"},
        "chunk": {"id": "id || %(g)s", "version_id": "version_id || %(g)s"},
        "search_row": {
            "chunk_id": "chunk_id || %(g)s",
            "version_id": "version_id || %(g)s",
            "generation": "%(g)s",
            "terms": "memory.term_hashes(tenant_id, %(g)s, fts)",
            "status": kept,
        },
    }.items():
        columns = await rows(
            owner,
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
            "AND NOT attisdropped AND attgenerated = ''",
            f"memory.{table}",
        )
        names = [name for (name,) in columns]
        values = [changed.get(name, name) for name in names]
        only = {
            "version": "generation = 'g0'",
            "chunk": "version_id IN (SELECT id FROM memory.version WHERE generation = 'g0')",
            "search_row": "generation = 'g0'",
        }[table]
        statement: Any = (
            f"INSERT INTO memory.{table} ({', '.join(names)}) "
            f"SELECT {', '.join(values)} FROM memory.{table} WHERE {only}"
        )
        await owner.execute(statement, {"g": generation, "s": status})


# --- deprecation ---


def deprecate(store: PostgresDocumentStore, version_id: str) -> Awaitable[VersionState]:
    return store.deprecate_version(tenant_id=T, actor_id=OPS, version_id=version_id)


async def test_what_is_deprecated_is_found_on_request(
    open_store: OpenStore, word_server: ModelServer, owner: Owner
) -> None:
    store = await open_store(embed_url=word_server.url)
    (added,) = await add(store, note("The vault opens at nine.", external_ref="n1"))
    assert (await deprecate(store, added.version_id)).status == "deprecated"
    for profile in ("default", "compat"):
        assert (await find(store, "vault", profile=profile)).items == ()
        found = await find(store, "vault", profile=profile, include_deprecated=True)
        assert [item.attribution.status for item in found.items if item.attribution] == ["deprecated"]
    assert await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5)) == []
    assert await rows(owner, "SELECT op FROM memory.feed_event ORDER BY seq") == [("upsert",), ("retract",)]
    assert await rows(owner, "SELECT deprecated_reason FROM memory.version") == [("deprecated",)]
    with pytest.raises(ConflictError, match="deprecated"):
        await deprecate(store, added.version_id)
    (again,) = await add(store, note("The vault opens at nine.", external_ref="n1"))
    assert (again.version, again.status) == (2, AddStatus.UPDATED)
    assert titles(await find(store, "vault")) == ["Note"]


@pytest.mark.parametrize("reason", DeprecatedReason)
async def test_why_a_version_was_deprecated_is_in_its_history(
    store: PostgresDocumentStore, reason: DeprecatedReason
) -> None:
    (added,) = await add(store, note("The vault opens at nine."))
    async with Memory(store) as memory:
        await MemoryAdmin(memory).deprecate_version(
            tenant_id=T, actor=OPS, version_id=added.version_id, reason=str(reason)
        )
        page = await store.history(tenant_id=T, principal_id=P, document_id=added.document_id, limit=5)
        assert [entry.deprecated_reason for entry in page.entries] == [reason]


@pytest.mark.parametrize("reason", ["it names the buyer", "", 7])
async def test_a_reason_in_words_is_refused_and_not_repeated(
    store: PostgresDocumentStore, reason: Any
) -> None:
    (added,) = await add(store, note("The vault opens at nine."))
    async with Memory(store) as memory:
        with pytest.raises(InvalidInputError, match="reason must be one of: deprecated") as refused:
            await MemoryAdmin(memory).deprecate_version(
                tenant_id=T, actor=OPS, version_id=added.version_id, reason=reason
            )
        assert "buyer" not in str(refused.value)
        assert titles(await find(store, "vault")) == ["Note"]


async def test_what_was_deprecated_is_forgotten_too(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await add(store, note("The vault opens at nine."))
    await deprecate(store, added.version_id)
    assert (await forget(store, added.document_id)).versions == 1
    assert (await find(store, "vault", include_deprecated=True)).items == ()
    assert await rows(owner, "SELECT op FROM memory.feed_event ORDER BY seq") == [("upsert",), ("retract",)]
    with pytest.raises(ConflictError, match="tombstoned"):
        await deprecate(store, added.version_id)


async def test_an_unknown_version_can_not_be_deprecated(store: PostgresDocumentStore) -> None:
    with pytest.raises(NotFoundError):
        await deprecate(store, "kver_unknown")


# --- sweep ---


def sweep(store: PostgresDocumentStore, now: datetime) -> Awaitable[Any]:
    return store.sweep_ephemeral(tenant_id=T, actor_id=OPS, now=now)


def ephemeral(text: str, **fields: Any) -> NewDocument:
    return note(text, title=text, retention_class=RetentionClass.EPHEMERAL, **fields)


async def test_valid_until_is_when_an_ephemeral_version_expires(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    await add(
        store,
        ephemeral("Until now", valid_until=NOW),
        ephemeral("Longer", valid_until=NOW + timedelta(microseconds=1)),
        note("Standard", title="Standard", valid_until=NOW),
    )
    assert (await sweep(store, NOW)).versions_deprecated == 0
    assert (await sweep(store, NOW + timedelta(microseconds=1))).versions_deprecated == 1
    listed = await store.list(tenant_id=T, principal_id=P, query=TimelineQuery(limit=5))
    assert {event.title for event in listed} == {"Longer", "Standard"}
    assert await rows(owner, "SELECT deprecated_reason FROM memory.version WHERE status = 'deprecated'") == [
        ("ephemeral_ttl",)
    ]
    assert await rows(owner, "SELECT count(*) FROM memory.feed_event WHERE op = 'retract'") == [(1,)]
    assert [(e.outcome, e.amount) for e in await audited(store)] == [("unchanged", 0), ("done", 1)]


@pytest.mark.parametrize(
    ("retention_class", "age", "column"),
    [
        (RetentionClass.EPHEMERAL, EPHEMERAL_AGE, "ingested_at"),
        (RetentionClass.SOURCE_ONLY, SOURCE_ONLY_AGE, "last_seen_at"),
    ],
)
async def test_without_valid_until_age_decides(
    store: PostgresDocumentStore, owner: Owner, retention_class: RetentionClass, age: timedelta, column: str
) -> None:
    await add(store, note("Old.", retention_class=retention_class))
    for table, name in (("version", "ingested_at"), ("document", "last_seen_at")):
        await owner.execute(
            sql.SQL("UPDATE memory.{} SET {} = %s").format(sql.Identifier(table), sql.Identifier(name)), [NOW]
        )
    assert (await sweep(store, NOW + age)).versions_deprecated == 0
    assert (await sweep(store, NOW + age + timedelta(seconds=1))).versions_deprecated == 1


async def test_a_source_that_is_seen_again_stays(store: PostgresDocumentStore, owner: Owner) -> None:
    page = note("A page.", external_ref="wiki:1", retention_class=RetentionClass.SOURCE_ONLY)
    await add(store, page)
    await owner.execute("UPDATE memory.version SET ingested_at = %s", [NOW - 2 * SOURCE_ONLY_AGE])
    await add(store, page)
    (row,) = await rows(owner, "SELECT last_seen_at FROM memory.document")
    assert (await sweep(store, row[0] + SOURCE_ONLY_AGE)).versions_deprecated == 0


async def test_a_sweep_goes_on_in_batches(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SWEEP_VERSIONS", 10)
    await add(store, *(ephemeral(f"Note {i}", valid_until=NOW) for i in range(30)))
    assert (await sweep(store, NOW + timedelta(days=1))).versions_deprecated == 30
    assert [event.amount for event in await audited(store)] == [10, 10, 10]
    assert await rows(owner, "SELECT count(*), max(seq) FROM memory.feed_event") == [(60, 60)]


async def test_the_first_instant_there_is_sweeps_nothing(store: PostgresDocumentStore) -> None:
    await add(store, ephemeral("Old"))
    async with Memory(store) as memory:
        admin = MemoryAdmin(memory)
        swept = await admin.sweep_ephemeral(tenant_id=T, actor=OPS, now="0001-01-01")
        assert swept.versions_deprecated == 0
        for bad in ("yesterday", "2026-13-01", 5, "2026-05-07T25:00:00Z"):
            with pytest.raises(InvalidInputError, match="now must be an ISO 8601"):
                await admin.sweep_ephemeral(tenant_id=T, actor=OPS, now=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="actor"):
            await admin.sweep_ephemeral(tenant_id=T, actor=" ")


# --- audit ---


async def test_the_audit_is_read_in_pages_newest_first(store: PostgresDocumentStore) -> None:
    added = await add(store, *(note(f"Note {i}") for i in range(5)))
    for document in added:
        await forget(store, document.document_id)
    first = await store.audit_events(tenant_id=T, limit=3)
    assert [e.target_id for e in first.events] == [d.document_id for d in reversed(added[2:])]
    last = await store.audit_events(tenant_id=T, limit=3, before=first.before)
    assert ([e.target_id for e in last.events], last.before) == (
        [d.document_id for d in (added[1], added[0], added[4])],
        last.events[-1].id,
    )
    exact = await store.audit_events(tenant_id=T, limit=10)
    assert (len(exact.events), exact.before) == (10, None)
    assert len(await audited(store, target_id=added[0].document_id)) == 1
    assert (await store.audit_events(tenant_id="other", limit=5)).events == ()


async def test_the_audit_can_only_be_added_to(store: PostgresDocumentStore) -> None:
    (added,) = await add(store, note("One."))
    await forget(store, added.document_id)
    for statement in (
        "DELETE FROM memory.audit_event",
        "UPDATE memory.audit_event SET outcome = 'done'",
        "DELETE FROM memory.erasure",
        "UPDATE memory.erasure SET kind = 'purge'",
    ):
        with pytest.raises(DatabaseError, match="42501"):
            async with store._database.tenant(T) as conn:
                await conn.execute(statement)


# --- at once ---


async def several(open_store: OpenStore, count: int) -> list[PostgresDocumentStore]:
    return [await open_store(db_pool_max=2) for _ in range(count)]


async def test_of_many_forgets_one_forgets(open_store: OpenStore, owner: Owner) -> None:
    stores = await several(open_store, 6)
    (added,) = await add(stores[0], note("One."))
    results = await asyncio.gather(*(forget(store, added.document_id) for store in stores))
    assert sorted(result.versions for result in results) == [0, 0, 0, 0, 0, 1]
    assert await rows(owner, "SELECT count(*) FROM memory.feed_event") == [(2,)]


async def test_forgetting_races_with_adding(open_store: OpenStore, owner: Owner) -> None:
    """Whoever comes first: one document, numbers without a gap, and no text of what was forgotten."""
    stores = await several(open_store, 6)
    (first,) = await add(stores[0], note("Version 0.", external_ref="n1"))

    async def write(number: int, store: PostgresDocumentStore) -> None:
        for turn in range(4):
            await add(store, note(f"Version {number} {turn}.", external_ref="n1"))

    async def erase(store: PostgresDocumentStore) -> None:
        for _ in range(4):
            await forget(store, first.document_id)

    await asyncio.gather(
        *(write(i, store) for i, store in enumerate(stores[:4])), *(erase(store) for store in stores[4:])
    )
    assert await rows(owner, "SELECT id FROM memory.document") == [(first.document_id,)]
    numbers = await rows(owner, "SELECT version FROM memory.version ORDER BY version")
    assert numbers == [(i,) for i in range(1, 18)]
    kept = await rows(
        owner,
        "SELECT count(*) FROM memory.chunk c JOIN memory.version v ON v.id = c.version_id "
        "WHERE v.status = 'tombstoned'",
    )
    assert kept == [(0,)]
    await forget(stores[0], first.document_id)
    assert await rows(owner, "SELECT count(*) FROM memory.chunk") == [(0,)]
    assert await rows(owner, "SELECT chunk_count, feed_seq FROM memory.tenant_state") == [(0, 34)]
    assert await rows(owner, "SELECT count(*) FROM memory.raw_capture WHERE raw_text IS NOT NULL") == [(0,)]


async def test_purging_races_with_adding(open_store: OpenStore, owner: Owner) -> None:
    stores = await several(open_store, 4)

    async def write(number: int, store: PostgresDocumentStore) -> None:
        for turn in range(5):
            await add(store, note(f"Version {number} {turn}.", external_ref="n1"))

    async def erase(store: PostgresDocumentStore) -> None:
        for _ in range(10):
            for (document,) in await rows(owner, "SELECT id FROM memory.document"):
                try:
                    await purge(store, document)
                except NotFoundError:
                    continue

    await asyncio.gather(write(0, stores[0]), write(1, stores[1]), write(2, stores[2]), erase(stores[3]))
    await erase(stores[3])
    for table in ("document", "version", "chunk", "raw_capture", "search_row", "embed_queue"):
        assert await rows(owner, f"SELECT count(*) FROM memory.{table}") == [(0,)], table


async def test_a_sweep_races_with_adding(
    open_store: OpenStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SWEEP_VERSIONS", 7)
    stores = await several(open_store, 4)
    later = NOW + timedelta(days=1)

    async def write(number: int, store: PostgresDocumentStore) -> None:
        for turn in range(3):
            await add(
                store,
                *(
                    ephemeral(f"{number} {turn} {i}", external_ref=f"n{i}", valid_until=NOW)
                    for i in range(20)
                ),
            )

    async def keep_sweeping() -> None:
        for _ in range(8):
            await sweep(stores[3], later)

    await asyncio.gather(*(write(i, store) for i, store in enumerate(stores[:3])), keep_sweeping())
    await sweep(stores[3], later)
    assert await rows(owner, "SELECT count(*) FROM memory.version WHERE status = 'active'") == [(0,)]
    assert await rows(
        owner,
        "SELECT count(*) FROM memory.search_row r JOIN memory.version v ON v.id = r.version_id "
        "WHERE r.status <> v.status",
    ) == [(0,)]
    (counts,) = await rows(owner, "SELECT count(*), count(DISTINCT seq), max(seq) FROM memory.feed_event")
    assert counts[0] == counts[1] == counts[2]


async def test_a_session_that_dies_leaves_all_or_nothing(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (added,) = await add(store, note("The vault opens at nine."))
    before = await rows(owner, "SELECT (v.*)::text FROM memory.version v")

    async def die(*_: Any, **__: Any) -> None:
        await owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
        )

    with monkeypatch.context() as patch:
        patch.setattr(audit, "record", die)  # after the erasure, before the commit
        with pytest.raises(DatabaseError):
            await forget(store, added.document_id)
    assert await rows(owner, "SELECT (v.*)::text FROM memory.version v") == before
    assert titles(await find(store, "vault")) == ["Note"]
    assert (await forget(store, added.document_id)).versions == 1


async def test_a_document_of_many_chunks_is_forgotten_in_a_few_statements(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    parts = tuple(note(f"Part {i}.").parts[0] for i in range(2_000))
    (added,) = await add(store, NewDocument(title="Long", parts=parts))
    assert added.chunks == 2_000
    async with asyncio.timeout(20):
        await forget(store, added.document_id)
    assert await rows(owner, "SELECT count(*) FROM memory.chunk") == [(0,)]
    assert await rows(owner, "SELECT chunk_count FROM memory.tenant_state") == [(0,)]
