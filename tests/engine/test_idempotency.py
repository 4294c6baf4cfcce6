"""Adds that are sent again under one key: once, however many send them and wherever one dies."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.limits import IDEMPOTENCY_SECONDS
from corbits_memory.engine.idempotency import SWEPT
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.worker import FORGET_KEYS
from corbits_memory.errors import ExternalRefInUseError, IdempotencyKeyReusedError, MemoryError
from corbits_memory.ports import AddResult, NewDocument, Once, Share
from corbits_memory.validation import AddInput, Content, once_of
from tests.engine.support import OpenStore, P, T, add, find, note

Owner = psycopg.AsyncConnection[Any]
SENDERS = 6


def key(name: str, *documents: NewDocument) -> Once:
    """The key of a name for these documents, as the plane makes it of what came in."""
    return once_of(name, [AddInput(content=Content(title=d.title, text=d.text)) for d in documents])


async def send(
    store: PostgresDocumentStore,
    name: str,
    *documents: NewDocument,
    once: Once | None = None,
    principal: str = P,
    tenant: str = T,
) -> list[AddResult | MemoryError]:
    return await store.add_once(
        tenant_id=tenant, principal_id=principal, documents=documents, once=once or key(name, *documents)
    )


async def count(owner: Owner, table: str) -> int:
    row = await (await owner.execute(f"SELECT count(*) FROM memory.{table}")).fetchone()
    assert row is not None
    return int(row[0])


async def age(owner: Owner, seconds: float) -> None:
    await owner.execute(
        "UPDATE memory.idempotency_key SET created_at = created_at - %s", [timedelta(0, seconds)]
    )


async def test_a_retry_gets_the_first_answer(store: PostgresDocumentStore, owner: Owner) -> None:
    first = await send(store, "k1", note("Once."))
    again = await send(store, "k1", note("Once."))
    assert again == first
    assert (await count(owner, "document"), await count(owner, "version")) == (1, 1)
    assert await send(store, "k2", note("Once.")) != first, "another key is another document"


async def test_a_retry_gets_the_first_answer_though_the_document_moved_on(
    store: PostgresDocumentStore,
) -> None:
    first = await send(store, "k1", note("One.", external_ref="n"))
    await add(store, note("Two.", external_ref="n"))
    assert await send(store, "k1", note("One.", external_ref="n")) == first
    assert [item.snippet for item in (await find(store, "two")).items] == ["Two."]


@pytest.mark.parametrize("documents", [1, 5])
async def test_another_request_of_the_same_key_is_refused(
    store: PostgresDocumentStore, owner: Owner, documents: int
) -> None:
    await send(store, "k1", *(note(f"This {n}.") for n in range(documents)))
    for size in (1, 2, documents + 1):
        with pytest.raises(IdempotencyKeyReusedError):
            await send(store, "k1", *(note(f"That {n}.") for n in range(size)))
    assert await count(owner, "document") == documents


async def test_a_key_is_its_principals_and_its_tenants_own(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    answers = [
        await send(store, "k1", note("Mine."), principal=principal, tenant=tenant)
        for principal, tenant in (("ann", "acme"), ("bob", "acme"), ("ann", "other"))
    ]
    assert len({answer.document_id for (answer,) in answers if isinstance(answer, AddResult)}) == 3
    assert await count(owner, "document") == 3


@pytest.mark.parametrize("documents", [1, 40, 450])
async def test_sent_by_many_at_once_it_is_written_once(
    open_store: OpenStore, owner: Owner, documents: int
) -> None:
    stores = [await open_store() for _ in range(SENDERS if documents < 100 else 3)]
    batch = [note(f"Number {n}.") for n in range(documents)]
    answers = await asyncio.gather(*(send(store, "k1", *batch) for store in stores))
    assert all(answer == answers[0] for answer in answers)
    assert await count(owner, "version") == documents
    assert await count(owner, "feed_event") == documents


async def test_different_requests_race_for_a_key_and_one_is_written(
    open_store: OpenStore, owner: Owner
) -> None:
    stores = [await open_store(db_pool_max=2) for _ in range(SENDERS)]
    answers = await asyncio.gather(
        *(send(store, "k1", note(f"By {n}.")) for n, store in enumerate(stores)), return_exceptions=True
    )
    kinds = sorted(type(answer).__name__ for answer in answers)
    assert kinds == ["IdempotencyKeyReusedError"] * (SENDERS - 1) + ["list"]
    assert await count(owner, "document") == 1


async def test_a_batch_that_died_half_way_goes_on(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corbits_memory.engine.lanes.TRANSACTION_DOCUMENTS", 10)
    batch = [note(f"Number {n}.") for n in range(30)]
    commits = 0
    commit = Connection.commit

    async def dies(conn: Connection) -> None:
        nonlocal commits
        commits += 1
        # Some of it is written; then the process is gone.
        if commits == 4:
            await conn.close()
            raise psycopg.OperationalError("gone")
        await commit(conn)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.AsyncConnection, "commit", dies)
        with pytest.raises(MemoryError):
            await send(store, "k1", *batch)
    assert 0 < await count(owner, "version") < 30
    answers = await send(store, "k1", *batch)
    assert await count(owner, "version") == 30
    assert len({answer.document_id for answer in answers if isinstance(answer, AddResult)}) == 30
    assert await send(store, "k1", *batch) == answers


async def test_a_lost_answer_is_no_lost_document(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Connection.commit

    async def answers_into_the_void(conn: Connection) -> None:
        await commit(conn)
        raise psycopg.OperationalError("the connection broke after the commit")

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.AsyncConnection, "commit", answers_into_the_void)
        with pytest.raises(MemoryError):
            await send(store, "k1", note("Kept."))
    (answer,) = await send(store, "k1", note("Kept."))
    assert isinstance(answer, AddResult)
    assert await count(owner, "document") == 1


async def test_what_was_refused_is_judged_anew(store: PostgresDocumentStore, owner: Owner) -> None:
    await add(store, note("Ann's.", external_ref="n"))
    batch = (note("Bob's.", external_ref="n"), note("Fine."))
    refused, kept = await send(store, "k1", *batch, principal="bob")
    assert isinstance(refused, ExternalRefInUseError)
    await owner.execute("UPDATE memory.document SET external_ref = 'free' WHERE external_ref = 'n'")
    written, again = await send(store, "k1", *batch, principal="bob")
    assert isinstance(written, AddResult)
    assert again == kept
    assert await count(owner, "document") == 3


async def test_waiting_for_a_key_ends_when_who_held_it_dies(open_store: OpenStore, owner: Owner) -> None:
    first, second = await open_store(), await open_store()
    once = key("k1", note("Once."))
    async with first._database.tenant(T) as conn:
        await conn.execute("SELECT 1")
        await conn.execute(
            "INSERT INTO memory.idempotency_key (tenant_id, principal_id, key_hash, position, request_hash) "
            "VALUES (%s, %s, %s, 0, %s)",
            [T, P, once.key, once.request],
        )
        waiting = asyncio.create_task(send(second, "k1", note("Once.")))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await conn.rollback()
        (answer,) = await waiting
    assert isinstance(answer, AddResult)
    assert await count(owner, "document") == 1


@pytest.mark.parametrize(("seconds", "documents"), [(IDEMPOTENCY_SECONDS - 60, 1), (IDEMPOTENCY_SECONDS, 2)])
async def test_a_key_expires_after_a_day(
    store: PostgresDocumentStore, owner: Owner, seconds: float, documents: int
) -> None:
    await send(store, "k1", note("Once."))
    await age(owner, seconds)
    await send(store, "k1", note("Once."))
    assert await count(owner, "document") == documents
    await send(store, "k1", note("Once."))
    assert await count(owner, "document") == documents
    assert await count(owner, "idempotency_key") == 1


async def test_an_expired_key_may_be_used_for_something_else(store: PostgresDocumentStore) -> None:
    await send(store, "k1", note("This."), note("And that."))
    async with store._database.tenant(T) as conn:
        await conn.execute(
            "UPDATE memory.idempotency_key SET created_at = created_at - make_interval(secs => %s)",
            [IDEMPOTENCY_SECONDS],
        )
    assert len(await send(store, "k1", note("Other."), note("Things."))) == 2


async def test_the_sweep_removes_what_has_expired_of_every_tenant(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    for tenant in ("a", "b", "c"):
        await send(store, "k1", note("Old."), tenant=tenant)
    await age(owner, IDEMPOTENCY_SECONDS + 1)
    await send(store, "k2", note("New."), tenant="b")
    await owner.execute(
        "INSERT INTO memory.idempotency_key (tenant_id, principal_id, key_hash, position, request_hash, created_at) "
        "SELECT 'd', 'p', '', n, '', now() - interval '25 hours' FROM generate_series(0, %s) AS n",
        [SWEPT],
    )
    assert await store.idempotency.sweep() == 3 + SWEPT + 1
    assert await count(owner, "idempotency_key") == 1
    assert await store.idempotency.sweep() == 0


async def test_the_worker_sweeps(store: PostgresDocumentStore, owner: Owner) -> None:
    await send(store, "k1", note("Old."))
    await age(owner, IDEMPOTENCY_SECONDS + 1)
    app = store._worker._app
    assert app is not None
    (periodic,) = [p for p in app.periodic_registry.periodic_tasks.values() if p.task.name == FORGET_KEYS]
    await periodic.task(timestamp=0)
    assert await count(owner, "idempotency_key") == 0


async def test_a_key_tells_nothing_of_a_document(store: PostgresDocumentStore, owner: Owner) -> None:
    (added,) = await send(store, "a-secret-key", note("ocelots hum", title="Secret ocelot"))
    assert isinstance(added, AddResult)
    await store.forget(tenant_id=T, principal_id=P, document_id=added.document_id)
    row = await (await owner.execute("SELECT k::text FROM memory.idempotency_key k")).fetchone()
    assert row is not None
    for word in (
        "ocelot",
        "a-secret-key",
        key("other", note("ocelots hum", title="Secret ocelot")).request.hex(),
    ):
        assert word not in row[0]
    assert await send(store, "a-secret-key", note("ocelots hum", title="Secret ocelot")) == [added]
    assert (await find(store, "ocelots")).items == (), "a retry brings nothing back"


async def test_a_purged_document_is_not_brought_back_by_a_retry(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    shared = note("Gone.", share=Share(principals=("bob",)))
    (added,) = await send(store, "k1", shared)
    assert isinstance(added, AddResult)
    assert added.share is not None
    assert added.share.principals == ("bob",)
    await store.purge(tenant_id=T, principal_id=P, document_id=added.document_id)
    (again,) = await send(store, "k1", shared)
    assert isinstance(again, AddResult)
    assert again.document_id == added.document_id
    assert again.share is not None
    assert again.share.principals == ()
    assert await count(owner, "document") == 0


async def test_a_retry_tells_the_share_again(store: PostgresDocumentStore) -> None:
    shared = note("Ours.", share=Share(principals=("bob",), tags=("memory.space:eng",)))
    assert await send(store, "k1", shared) == await send(store, "k1", shared)
