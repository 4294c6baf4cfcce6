"""Many writers at once, and writers that die: what holds all the same."""

import asyncio
import random
from typing import Any

import psycopg

from corbits_memory.core.enums import AddStatus
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import DatabaseError, ExternalRefInUseError
from corbits_memory.ports import AddResult, EntityHint
from tests.engine.support import OpenStore, P, T, add, find, note, refs, turn

Owner = psycopg.AsyncConnection[Any]
WRITERS = 8


async def stores(open_store: OpenStore, count: int = WRITERS) -> list[PostgresDocumentStore]:
    """Stores with pools of their own, as processes have."""
    return [await open_store(db_pool_max=2) for _ in range(count)]


async def one(owner: Owner, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = await (await owner.execute(query)).fetchone()
    assert row is not None
    return row


async def test_the_same_content_from_everywhere_is_one_version(open_store: OpenStore, owner: Owner) -> None:
    writers = await stores(open_store)
    answers = await asyncio.gather(*(add(w, note("Same.", external_ref="n1")) for w in writers))
    statuses = sorted(answer[0].status for answer in answers)
    assert statuses == [AddStatus.CREATED] + [AddStatus.UNCHANGED] * (WRITERS - 1)
    assert len({answer[0].version_id for answer in answers}) == 1
    assert await one(owner, "SELECT count(*) FROM memory.version") == (1,)
    assert await one(owner, "SELECT count(*) FROM memory.search_row") == (1,)


async def test_racing_contents_leave_one_active_and_no_gap(open_store: OpenStore, owner: Owner) -> None:
    writers = await stores(open_store)
    await asyncio.gather(*(add(w, note(f"Content {i}.", external_ref="n1")) for i, w in enumerate(writers)))
    assert await one(
        owner,
        "SELECT array_agg(version ORDER BY version), count(*) FILTER (WHERE status = 'active'), "
        "max(version) FILTER (WHERE status = 'active') FROM memory.version",
    ) == (list(range(1, WRITERS + 1)), 1, WRITERS)
    assert await one(owner, "SELECT count(*) FROM memory.search_row") == (1,)
    assert await one(owner, "SELECT feed_seq, chunk_count FROM memory.tenant_state") == (WRITERS, 1)


async def test_overlapping_batches_in_any_order_never_wait_in_a_circle(
    open_store: OpenStore, owner: Owner
) -> None:
    writers = await stores(open_store)
    names = [f"n{i}" for i in range(30)]

    async def write(number: int, store: PostgresDocumentStore) -> None:
        order = random.Random(number).sample(names, len(names))
        await add(store, *(note(f"{name} by {number}", external_ref=name) for name in order))

    await asyncio.gather(*(write(i, store) for i, store in enumerate(writers)))
    assert await one(
        owner,
        "SELECT count(*), count(*) FILTER (WHERE status = 'active'), max(version) FROM memory.version",
    ) == (30 * WRITERS, 30, WRITERS)
    assert await one(owner, "SELECT count(*), min(seq), max(seq) FROM memory.feed_event") == (
        30 * WRITERS,
        1,
        30 * WRITERS,
    )


async def test_two_principals_racing_for_a_reference_one_owns_it(open_store: OpenStore, owner: Owner) -> None:
    writers = await stores(open_store)
    answers = await asyncio.gather(
        *(
            store.add(tenant_id=T, principal_id=f"p{i}", documents=[note(f"By {i}.", external_ref="n1")])
            for i, store in enumerate(writers)
        )
    )
    kept = [answer[0] for answer in answers if isinstance(answer[0], AddResult)]
    refused = [answer[0] for answer in answers if isinstance(answer[0], ExternalRefInUseError)]
    assert (len(kept), len(refused)) == (1, WRITERS - 1)
    assert await one(owner, "SELECT count(*) FROM memory.version") == (1,)


async def test_racing_first_captures_of_a_tenant(open_store: OpenStore, owner: Owner) -> None:
    writers = await stores(open_store)
    await asyncio.gather(*(add(w, note(f"Note {i}.", external_ref=f"n{i}")) for i, w in enumerate(writers)))
    assert await one(
        owner, "SELECT count(*), max(feed_seq), max(document_count) FROM memory.tenant_state"
    ) == (
        1,
        WRITERS,
        WRITERS,
    )


async def test_entities_of_racing_documents_stand_once(open_store: OpenStore, owner: Owner) -> None:
    writers = await stores(open_store)
    hints = [EntityHint(kind="person", identifier=name) for name in ("bob", "carol", "dan")]
    await asyncio.gather(
        *(
            add(w, note(f"Note {i}.", external_ref=f"n{i}", entity_hints=tuple(random.sample(hints, 3))))
            for i, w in enumerate(writers)
        )
    )
    assert await one(owner, "SELECT count(*) FROM memory.entity") == (3,)
    assert await one(owner, "SELECT count(*) FROM memory.edge") == (3 * WRITERS,)


async def test_turns_of_racing_writers_have_one_order(open_store: OpenStore, owner: Owner) -> None:
    writers = await stores(open_store, 4)
    await asyncio.gather(
        *(
            add(w, *(turn(i, f"{n}", external_ref=f"{n}:{i}") for i in range(10)))
            for n, w in enumerate(writers)
        )
    )
    assert await one(owner, "SELECT count(*) FROM memory.search_row WHERE thread = 't1'") == (40,)


async def test_a_writer_whose_connection_is_killed_leaves_nothing(
    open_store: OpenStore, owner: Owner
) -> None:
    """Killed at one line of the transaction after another; repeated, the state is whole."""
    store = await open_store()
    batches = [
        [note(f"Text {i} of {number}. " * 20, external_ref=f"n{number}:{i}") for i in range(100)]
        for number in range(12)
    ]
    failures = 0
    for number, documents in enumerate(batches):
        killer = asyncio.create_task(_kill_after(owner, 0.015 * number))
        try:
            await store.add(tenant_id=T, principal_id=P, documents=documents)
        except DatabaseError:
            failures += 1
        await killer
        counts = await one(
            owner,
            "SELECT (SELECT count(*) FROM memory.document), (SELECT count(*) FROM memory.version), "
            "(SELECT count(*) FROM memory.chunk), (SELECT count(*) FROM memory.search_row), "
            "(SELECT coalesce(max(seq), 0) FROM memory.feed_event)",
        )
        assert len(set(counts)) == 1, counts
    for documents in batches:
        await add(store, *documents)
    assert await one(owner, "SELECT count(*) FROM memory.version WHERE status = 'active'") == (1200,)
    assert "n7:17" in refs(await find(store, '"text 17 of 7"', limit=20))
    assert failures, "no transaction was ever hit; the test shows nothing"


async def _kill_after(owner: Owner, seconds: float) -> None:
    """Wait until a writer is in its transaction, then a little, then kill it."""
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'corbits-memory' AND backend_xid IS NOT NULL"
    )
    for _ in range(400):
        if (await one(owner, busy))[0]:
            break
        await asyncio.sleep(0.005)
    await asyncio.sleep(seconds)
    await owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'corbits-memory'"
    )
