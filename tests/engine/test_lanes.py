"""A large batch is written over two connections: what belongs together keeps its order."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg

from corbits_memory.core.enums import AddStatus
from corbits_memory.engine.drafts import Draft, draft_document
from corbits_memory.engine.lanes import LANE_DOCUMENTS, LANES, split_lanes
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import NewDocument
from tests.engine.support import NOON, add, note, turn

Owner = psycopg.AsyncConnection[Any]
ENOUGH = LANE_DOCUMENTS * LANES


def draft(position: int, document: NewDocument) -> Draft:
    return draft_document(
        document,
        position=position,
        tenant_id="t",
        principal_id="p",
        language="english",
        now=datetime(2026, 12, 1, tzinfo=UTC),
    )


def drafts(*documents: NewDocument) -> list[Draft]:
    return [draft(position, document) for position, document in enumerate(documents)]


def test_a_small_batch_has_one_lane() -> None:
    planned = drafts(*(note(f"Text {i}.") for i in range(ENOUGH - 1)))
    assert split_lanes(planned) == [planned]
    assert len(split_lanes([*planned, draft(ENOUGH, note("One more."))])) == LANES


def test_lanes_hold_everything_once_in_order_and_are_alike() -> None:
    lanes = split_lanes(drafts(*(note(f"Text {i}.") for i in range(ENOUGH))))
    positions = [[draft.position for draft in lane] for lane in lanes]
    assert sorted(itertools.chain(*positions)) == list(range(ENOUGH))
    assert all(lane == sorted(lane) for lane in positions)
    assert [len(lane) for lane in lanes] == [LANE_DOCUMENTS] * LANES


def test_a_thread_and_a_document_stay_in_one_lane() -> None:
    planned = drafts(*(turn(i, f"Turn {i}.", thread=f"t{i % 7}") for i in range(ENOUGH)))
    planned += [
        replace(draft, position=ENOUGH + place) for place, draft in enumerate(planned[:20])
    ]  # said again
    homes: dict[object, set[int]] = {}
    for number, lane in enumerate(split_lanes(planned)):
        for one in lane:
            homes.setdefault(one.document.thread, set()).add(number)
            homes.setdefault(one.key, set()).add(number)
    assert all(len(numbers) == 1 for numbers in homes.values())
    assert len(set.union(*homes.values())) == LANES


def test_a_document_that_changes_its_thread_needs_one_lane() -> None:
    planned = drafts(
        *(turn(i, f"Turn {i}.", thread=f"t{i % 2}") for i in range(ENOUGH)),
        turn(0, "Moved.", thread="t1", external_ref="t0:0"),
    )
    assert split_lanes(planned) == [planned]


async def test_a_batch_of_two_lanes_keeps_threads_repeats_versions_and_feed(
    store: PostgresDocumentStore, owner: Owner
) -> None:
    threads, turns = 10, ENOUGH // 10
    documents = [
        replace(turn(i, f"Turn {i}.", thread=f"t{t}"), occurred_at=NOON)
        for i in range(turns)
        for t in range(threads)
    ]
    repeats = [replace(document, title="Changed") for document in documents[:5]]
    answers = await add(store, *documents, *repeats, *documents[5:10])
    statuses = [answer.status for answer in answers]
    assert statuses == ([AddStatus.CREATED] * ENOUGH + [AddStatus.UPDATED] * 5 + [AddStatus.UNCHANGED] * 5)
    assert [answer.version for answer in answers[ENOUGH:]] == [2] * 5 + [1] * 5
    for t in range(threads):
        rows = await (
            await owner.execute(
                "SELECT external_ref, thread_seq FROM memory.document WHERE thread = %s ORDER BY thread_seq",
                [f"t{t}"],
            )
        ).fetchall()
        assert rows == [(f"t{t}:{i}", i + 1) for i in range(turns)]
    feed = await (
        await owner.execute(
            "SELECT array_agg(e.seq ORDER BY e.seq), bool_and(v.feed_seq = e.seq), max(s.feed_seq), "
            "max(s.document_count) "
            "FROM memory.feed_event e JOIN memory.version v ON v.id = e.version_id CROSS JOIN memory.tenant_state s"
        )
    ).fetchone()
    assert feed == (list(range(1, ENOUGH + 6)), True, ENOUGH + 5, ENOUGH)
