"""Where erasure, the sweep and the feed meet: who hears of it, how soon, and what a race leaves."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import FeedOp, RetentionClass
from corbits_memory.engine.erasure import hold_for_replay
from corbits_memory.engine.scrub import scrub
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import ConflictError
from corbits_memory.ports import AddResult, EntityHint, NewDocument
from tests.engine.support import NOW, P, T, add, find, note, titles, turn, until_waiting
from tests.engine.test_access import access_of, grant
from tests.engine.test_feed import ALL, feed

Owner = psycopg.AsyncConnection[Any]
ENG = "memory.space:eng"


def expired(text: str, **fields: Any) -> NewDocument:
    return note(
        text,
        retention_class=RetentionClass.EPHEMERAL,
        valid_until=NOW - timedelta(days=1),
        external_ref="n1",
        **fields,
    )


async def forget(store: PostgresDocumentStore, document_id: str) -> None:
    await store.forget(tenant_id=T, principal_id=P, document_id=document_id)


async def purge(store: PostgresDocumentStore, document_id: str) -> None:
    await store.purge(tenant_id=T, principal_id=P, document_id=document_id)


async def sweep(store: PostgresDocumentStore, document_id: str = "") -> None:
    await store.sweep_ephemeral(tenant_id=T, actor_id="operator", now=NOW)


async def sweep_and_purge(store: PostgresDocumentStore, document_id: str) -> None:
    await sweep(store)
    await purge(store, document_id)


VERBS = [forget, purge, sweep, sweep_and_purge]
Verb = Callable[[PostgresDocumentStore, str], Coroutine[Any, Any, None]]


@pytest.mark.parametrize("verb", VERBS)
async def test_whoever_could_see_a_version_hears_that_it_is_gone(
    store: PostgresDocumentStore, verb: Verb
) -> None:
    reader = await access_of(grant(ENG))
    (added,) = await add(store, expired("Short-lived.", access_tags=(ENG,)))
    await verb(store, added.document_id)
    for principal, access in ((P, None), ("bob", reader)):
        (entry,) = (await feed(store, principal=principal, access=access, ops=ALL)).entries
        assert (entry.seq, entry.op) == (2, FeedOp.RETRACT)
        assert (entry.version_id, entry.document_id) == (added.version_id, added.document_id)
    assert (await feed(store, principal="eve", ops=ALL)).entries == ()


@pytest.mark.parametrize("verb", VERBS)
async def test_followers_are_woken_at_once(store: PostgresDocumentStore, verb: Verb) -> None:
    (added,) = await add(store, expired("Short-lived."))
    waiting = asyncio.create_task(store.feed_changed(tenant_id=T, after=1, seconds=20))
    await asyncio.sleep(0.2)
    await verb(store, added.document_id)
    done = time.monotonic()
    await waiting
    # The numbers alone are looked at every two seconds.
    assert time.monotonic() - done < 0.5


GATE = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_query() LIKE '%status = ''superseded''%' THEN
    PERFORM pg_advisory_xact_lock(4711);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER gate BEFORE UPDATE ON memory.version FOR EACH STATEMENT EXECUTE FUNCTION gate();
"""
"""Whoever is about to supersede waits for a lock, with what it has looked at before."""


async def test_a_sweep_passes_over_a_version_that_is_superseded_just_then(
    store: PostgresDocumentStore, owner: Owner, database_url: str
) -> None:
    (old,) = await add(store, expired("One."))
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        # The capture has looked at what is active, and waits here before it supersedes that.
        await owner.execute(GATE)
        await gate.execute("SELECT pg_advisory_xact_lock(4711)")
        adding = asyncio.create_task(add(store, note("Two.", external_ref="n1")))
        await until_waiting(owner)
        await sweep(store)
    (new,) = await adding
    rows = await owner.execute("SELECT id, status FROM memory.version ORDER BY version")
    assert await rows.fetchall() == [(old.version_id, "superseded"), (new.version_id, "active")]
    told = [(entry.op, entry.version_id) for entry in (await feed(store, ops=ALL)).entries]
    assert told == [(FeedOp.UPSERT, old.version_id), (FeedOp.UPSERT, new.version_id)]


async def test_a_deprecated_version_is_found_on_request_whatever_comes_after(
    store: PostgresDocumentStore,
) -> None:
    (old,) = await add(store, note("zebra", title="Old", external_ref="n1"))
    await store.deprecate_version(tenant_id=T, actor_id="operator", version_id=old.version_id)
    for text in ("yak", "gnu"):
        await add(store, note(text, external_ref="n1"))
        assert titles(await find(store, "zebra", include_deprecated=True)) == ["Old"]
    assert titles(await find(store, "yak", include_deprecated=True)) == []


async def test_a_scrub_waits_for_older_transactions(
    store: PostgresDocumentStore, owner: Owner, database_url: str
) -> None:
    """What they could still read would be carried over into the new files."""
    (added,) = await add(store, note("x"))
    async with await psycopg.AsyncConnection.connect(database_url) as reader:
        await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await reader.execute("SELECT count(*) FROM memory._migrations")
        await forget(store, added.document_id)
        with pytest.raises(ConflictError, match="A transaction that began before"):
            await scrub(owner, patience_seconds=0.3)
    assert (await scrub(owner)).tables > 20


FAIL_ONCE = """
CREATE SEQUENCE memory.tries;
GRANT ALL ON SEQUENCE memory.tries TO public;
CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('memory.tries') = 1 THEN
    RAISE EXCEPTION 'as one that waited in a circle' USING ERRCODE = '40P01';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER fail_once AFTER INSERT ON memory.version FOR EACH STATEMENT EXECUTE FUNCTION fail_once();
"""
"""The first transaction that writes a version fails at its end, as if by a deadlock."""


@pytest.mark.parametrize("verb", [forget, purge])
async def test_an_add_that_runs_again_settles_everything_anew(
    store: PostgresDocumentStore, owner: Owner, database_url: str, verb: Verb
) -> None:
    """Between its two transactions the document that the first one found is erased."""
    (old,) = await add(store, note("One.", external_ref="n1"))
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        await owner.execute(FAIL_ONCE)
        await gate.execute("LOCK TABLE memory.raw_capture IN EXCLUSIVE MODE")
        adding = asyncio.create_task(add(store, note("Two.", external_ref="n1")))
        await until_waiting(owner)
        erasing = asyncio.create_task(verb(store, old.document_id))
        await until_waiting(owner, count=2)
    await erasing
    (new,) = await adding
    # A purge takes the id along; what was forgotten is taken up again.
    assert (new.document_id == old.document_id) == (verb is forget)
    assert titles(await find(store, "two")) == ["Note"]
    assert titles(await find(store, "one")) == []
    rows = await owner.execute("SELECT document_id, version, status FROM memory.version ORDER BY version")
    kept = [(old.document_id, 1, "tombstoned")] if verb is forget else []
    assert await rows.fetchall() == [*kept, (new.document_id, len(kept) + 1, "active")]


async def test_an_add_that_runs_again_asks_for_what_it_asked_for_before(
    store: PostgresDocumentStore, owner: Owner, database_url: str
) -> None:
    """What its first transaction withheld, for the readers that a source had then, it need not withhold any more."""
    access = await access_of(grant(ENG))
    (source,) = await store.add(
        tenant_id=T, principal_id="bob", documents=[note("A source.", access_tags=(ENG,))]
    )
    assert isinstance(source, AddResult)
    claim = note(
        "A claim.",
        derived_from=(source.version_id,),
        access_tags=(ENG, "memory.space:new"),
        retention_class=RetentionClass.DURABLE,
    )
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        await owner.execute(FAIL_ONCE)
        await gate.execute("LOCK TABLE memory.raw_capture IN EXCLUSIVE MODE")
        adding = asyncio.create_task(store.add(tenant_id=T, principal_id=P, documents=[claim], access=access))
        await until_waiting(owner)
        await store.change_access_tags(
            tenant_id=T, principal_id="bob", document_id=source.document_id, add=["memory.space:new"]
        )
    (made,) = await adding
    assert isinstance(made, AddResult)
    assert made.share is None
    shown = await store.document(tenant_id=T, principal_id=P, document_id=made.document_id)
    assert {ENG, "memory.space:new"} <= set(shown.access_tags)


# --- what a replay may read --------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [forget, purge])
async def test_erasing_waits_for_a_replay_that_writes_and_takes_its_work_along(
    store: PostgresDocumentStore, owner: Owner, verb: Verb
) -> None:
    (added,) = await add(store, note("Secret."))
    capture = await _capture(owner)
    async with store._database.tenant(T) as conn:
        assert await hold_for_replay(conn, T, [capture]) == [capture]
        erasing = asyncio.create_task(verb(store, added.document_id))
        await until_waiting(owner)
        await conn.execute(
            "INSERT INTO memory.version SELECT (jsonb_populate_record(v, "
            """'{"id": "kver_replayed", "generation": "g1", "feed_seq": null}')).* """
            "FROM memory.version v WHERE v.tenant_id = %s",
            [T],
        )
    await erasing
    left = await owner.execute("SELECT status, title FROM memory.version WHERE generation = 'g1'")
    assert await left.fetchall() == ([("tombstoned", "")] if verb is forget else [])


@pytest.mark.parametrize("verb", [forget, purge])
async def test_what_is_being_erased_is_not_replayed(
    store: PostgresDocumentStore, owner: Owner, database_url: str, verb: Verb
) -> None:
    (added, _) = await add(store, note("Secret.", external_ref="n1"), note("Other."))
    captures = [row[0] for row in await (await owner.execute("SELECT id FROM memory.raw_capture")).fetchall()]
    erased = await _capture(owner)
    async with await psycopg.AsyncConnection.connect(database_url) as gate:
        # The erasure holds the document and waits here.
        await gate.execute("LOCK TABLE memory.erasure IN EXCLUSIVE MODE")
        erasing = asyncio.create_task(verb(store, added.document_id))
        await until_waiting(owner)
        replaying = asyncio.create_task(_hold(store, captures))
        await until_waiting(owner, count=2)
    await erasing
    assert await replaying == sorted(set(captures) - {erased})
    # Adding it anew makes a capture that replays may read.
    await add(store, note("Secret.", external_ref="n1"))
    assert len(await _hold(store, [await _capture(owner, newest=True)])) == 1


async def _hold(store: PostgresDocumentStore, captures: list[str]) -> list[str]:
    async with store._database.tenant(T) as conn:
        return await hold_for_replay(conn, T, captures)


async def _capture(owner: Owner, *, newest: bool = False) -> str:
    order = "DESC" if newest else "ASC"
    row = await (
        await owner.execute(
            f"SELECT id FROM memory.raw_capture ORDER BY fetched_at {order}, id {order} LIMIT 1"
        )
    ).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("verb", [forget, purge])
async def test_erasing_holds_no_entity_before_the_rows_that_captures_hold_first(
    store: PostgresDocumentStore, owner: Owner, verb: Verb
) -> None:
    """In the other order an erasure and an add that name the same, in one thread, would wait for each other."""
    named = (EntityHint(kind="person", identifier="tomas"),)
    (first,) = await add(store, turn(1, "one", entity_hints=named))
    await add(store, turn(3, "three"))
    await store.statistics.refresh(T)
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock(hashtext('memory.term_stat'), hashtext(%s))", [T])
        erasing = asyncio.create_task(verb(store, first.document_id))
        async with asyncio.timeout(20):
            while not await waits(owner):  # noqa: ASYNC110 - the server's view
                await asyncio.sleep(0.02)
            await add(store, turn(2, "two", entity_hints=named))
        assert not erasing.done()
    await erasing


async def waits(owner: Owner) -> bool:
    """Whether anybody waits for an advisory lock."""
    found = await owner.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    return await found.fetchone() is not None
