"""Every verb once over a whole memory, each with what must come of it: for any database that is said to do."""

import asyncio
from datetime import UTC, datetime, timedelta

from corbits_memory.admin import MemoryAdmin
from corbits_memory.config import EmbedConfig, EngineConfig, MemoryConfig
from corbits_memory.core.enums import Effect, FeedOp, SearchProfile
from corbits_memory.ports import AddResult, GrantRule
from corbits_memory.server.startup import Plane
from corbits_memory.validation import AddInput, Content
from tests.engine.transferring import lines_of, restore

ANN, BOB, TEAM = "ann", "bob", "memory.space:team"
NOON = datetime(2026, 5, 7, 12, tzinfo=UTC)
TURNS = 30
"""More than are embedded at once: the rest is the worker's, or drained."""


def config_of(url: str, embed_url: str, **fields: object) -> MemoryConfig:
    embed = EmbedConfig(base_url=embed_url, model="words", timeout_ms=5_000)
    return MemoryConfig(memory=EngineConfig(database_url=url, embed=embed, db_pool_max=4, **fields))  # type: ignore[arg-type]


async def exercise(plane: Plane, tenant: str) -> None:
    """Raises ``AssertionError`` where a verb does not do what it promises."""
    await _add(plane, tenant)
    await _search(plane, tenant)
    await _share(plane, tenant)
    await _follow(plane, tenant)
    await _carry(plane, tenant)
    await _forget(plane, tenant)
    await _look_after(plane, tenant)


async def _put(plane: Plane, tenant: str, reference: str, text: str, **fields: object) -> AddResult:
    return await plane.memory.add(
        tenant_id=tenant,
        principal_id=ANN,
        content=Content(title=reference, text=text),
        external_ref=reference,
        **fields,  # type: ignore[arg-type]
    )


async def _found(plane: Plane, tenant: str, query: str, *, who: str = ANN, **fields: object) -> list[str]:
    result = await plane.memory.search(
        tenant_id=tenant,
        principal_id=who,
        query=query,
        **fields,  # type: ignore[arg-type]
    )
    return [item.external_ref for item in result.items]


async def _add(plane: Plane, tenant: str) -> None:
    first = await _put(plane, tenant, "pool", "The pool closes at nine.", access_tags=[TEAM])
    assert (first.status, first.version) == ("created", 1)
    assert (await _put(plane, tenant, "pool", "The pool closes at nine.")).status == "unchanged"
    second = await _put(plane, tenant, "pool", "The pool closes at ten.", attributes={"floor": 2})
    assert (second.status, second.version) == ("updated", 2)
    claim = await _put(
        plane,
        tenant,
        "claim",
        "Swimming is possible late in the evening.",
        derived_from=[second.version_id],
        supports=[second.version_id],
        generator_agent_id="bot",
    )
    assert claim.status == "created"
    turns = [
        AddInput(
            content=Content(title=f"Turn {place}", text=f"Turn {place} of the harbour tale."),
            thread="tale",
            author=f"A{place % 3}",
            occurred_at=NOON + timedelta(minutes=place),
            external_ref=f"t{place}",
        )
        for place in range(TURNS)
    ]
    kept = await plane.memory.add_batch(
        tenant_id=tenant, principal_id=ANN, items=turns, idempotency_key="tale"
    )
    again = await plane.memory.add_batch(
        tenant_id=tenant, principal_id=ANN, items=turns, idempotency_key="tale"
    )
    assert [one.version_id for one in kept if isinstance(one, AddResult)] == [
        one.version_id for one in again if isinstance(one, AddResult)
    ]
    async with asyncio.timeout(30):
        # A worker of this plane, or of another, may be at it too.
        while await plane.memory.pending_vectors(tenant_id=tenant, principal_id=ANN):
            await plane.store.embedding.drain(tenant)
            await asyncio.sleep(0.02)


async def _search(plane: Plane, tenant: str) -> None:
    for profile in SearchProfile:
        assert "pool" in await _found(plane, tenant, "pool closes", profile=profile)
    assert await _found(plane, tenant, '"closes at ten" -harbour') == ["pool"]
    assert (await _found(plane, tenant, "harbour tale", occurred_before=NOON + timedelta(minutes=1)))[
        0
    ] == "t0"
    assert await _found(plane, tenant, "pool", attributes={"floor": 2}) == ["pool"]
    assert "pool" in await _found(plane, tenant, "pool nine", as_of=datetime.now(UTC))
    assert "pool" in await _found(plane, tenant, "pol", include_deprecated=True, explain=True)
    context = await plane.memory.context(tenant_id=tenant, principal_id=ANN, query="when does the pool close")
    assert "ten" in context.text
    events = await plane.memory.list(tenant_id=tenant, principal_id=ANN, limit=50)
    assert len(events) == TURNS + 2


async def _share(plane: Plane, tenant: str) -> None:
    grants = plane.memory._parts.control._store
    assert await _found(plane, tenant, "pool", who=BOB) == []
    await grants.put_grant(  # type: ignore[union-attr]
        GrantRule(
            id="team",
            tenant_id=tenant,
            principal_id=BOB,
            resource="memory.space:*",
            action="search",
            effect=Effect.ALLOW,
            created_by=ANN,
        )
    )
    assert "pool" in await _found(plane, tenant, "pool closes", who=BOB)
    (event,) = [e for e in await plane.memory.list(tenant_id=tenant, principal_id=BOB) if e.title == "pool"]
    await plane.memory.share(tenant_id=tenant, principal_id=ANN, document_id=event.document_id, tenant=True)
    found = await plane.memory.document(tenant_id=tenant, principal_id=BOB, document_id=event.document_id)
    assert found.owner == ANN
    history = await plane.memory.history(tenant_id=tenant, principal_id=ANN, document_id=event.document_id)
    assert [entry.facts.version for entry in history.entries] == [2, 1]
    version = await plane.memory.version(
        tenant_id=tenant, principal_id=ANN, version_id=history.entries[0].facts.version_id
    )
    assert version.text[0].text == "The pool closes at ten."
    await plane.memory.unshare(tenant_id=tenant, principal_id=ANN, document_id=event.document_id, tenant=True)


async def _follow(plane: Plane, tenant: str) -> None:
    page = await plane.memory.feed(tenant_id=tenant, principal_id=ANN, after=0, limit=100, include_text=True)
    # Of every version one entry: two of the pool.
    assert len(page.entries) == TURNS + 3
    await plane.memory.feed_changed(tenant_id=tenant, after=0, seconds=1)


async def _carry(plane: Plane, tenant: str) -> None:
    lines = await lines_of(plane.store, tenant=tenant)
    done = await restore(plane.store, lines, tenant=f"{tenant}-copy")
    assert (done.documents, done.versions) == (TURNS + 2, TURNS + 3)
    assert "pool" in await _found(plane, f"{tenant}-copy", "pool closes")


async def _forget(plane: Plane, tenant: str) -> None:
    events = await plane.memory.list(tenant_id=tenant, principal_id=ANN, limit=50)
    by_title = {event.title: event for event in events}
    await plane.memory.forget(
        tenant_id=tenant, principal_id=ANN, document_id=by_title["Turn 3"].document_id, cascade=True
    )
    await plane.memory.set_retention_class(
        tenant_id=tenant,
        principal_id=ANN,
        version_id=by_title["Turn 4"].version_id,
        retention_class="ephemeral",
    )
    await plane.memory.purge(tenant_id=tenant, principal_id=ANN, document_id=by_title["Turn 5"].document_id)
    assert not {"t3", "t5"} & set(await _found(plane, tenant, "harbour tale", limit=50))
    gone = await plane.memory.feed(
        tenant_id=tenant, principal_id=ANN, after=0, limit=100, ops=[FeedOp.RETRACT]
    )
    assert len(gone.entries) == 2


async def _look_after(plane: Plane, tenant: str) -> None:
    admin = MemoryAdmin(plane.memory)
    swept = await admin.sweep_ephemeral(
        tenant_id=tenant, actor="ops", now=datetime.now(UTC) + timedelta(days=8)
    )
    assert swept.versions_deprecated == 1
    (event,) = [
        e
        for e in await plane.memory.list(tenant_id=tenant, principal_id=ANN, limit=50)
        if e.title == "Turn 6"
    ]
    await admin.deprecate_version(tenant_id=tenant, actor="ops", version_id=event.version_id)
    assert (await admin.audit(tenant_id=tenant, actor="ops")).events
    assert (await admin.purge_principal(tenant_id=tenant, actor="ops", principal_id=ANN)).dry_run
    await plane.store.statistics.refresh(tenant)
    await plane.store.statistics.refresh_stale()
    await plane.store.embedding.due_tenants()
    assert await plane.store.embedding.enqueue_missing(tenant) == 0
    assert "pool" in await _found(plane, tenant, "pool closes")
