"""A large batch is written over two connections: what belongs together keeps its order."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg

from corbits_memory.core.enums import AddStatus
from corbits_memory.engine.lanes import DOCUMENT_CHARS, LANE_DOCUMENTS, LANES, split_lanes
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.ports import NewDocument
from tests.engine.support import NOON, add, note, turn

Owner = psycopg.AsyncConnection[Any]
ENOUGH = LANE_DOCUMENTS * LANES


def everything(documents: Sequence[NewDocument]) -> list[list[int]]:
    return [list(range(len(documents)))]


def test_a_small_batch_has_one_lane() -> None:
    documents = [note(f"Text {i}.") for i in range(ENOUGH - 1)]
    assert split_lanes(documents) == everything(documents)
    assert len(split_lanes([*documents, note("One more.")])) == LANES


def test_lanes_hold_everything_once_in_order_and_are_alike() -> None:
    lanes = split_lanes([note(f"Text {i:03}.") for i in range(ENOUGH)])
    assert sorted(itertools.chain(*lanes)) == list(range(ENOUGH))
    assert all(lane == sorted(lane) for lane in lanes)
    assert [len(lane) for lane in lanes] == [LANE_DOCUMENTS] * LANES


def test_lanes_have_about_as_much_text() -> None:
    documents = [note("x" * (50_000 if i < 10 else 50)) for i in range(ENOUGH * 5)]
    loads = [sum(len(documents[i].text) + DOCUMENT_CHARS for i in lane) for lane in split_lanes(documents)]
    assert min(loads) > 0.9 * max(loads)


def test_a_thread_and_a_document_stay_in_one_lane() -> None:
    documents = [turn(i, f"Turn {i}.", thread=f"t{i % 7}") for i in range(ENOUGH)]
    documents += documents[:20]  # said again
    documents += [note("Once.", external_ref="n"), note("Twice.", external_ref="n")]
    homes: dict[object, set[int]] = {}
    for number, lane in enumerate(split_lanes(documents)):
        for position in lane:
            document = documents[position]
            homes.setdefault(("thread", document.thread or "none"), set()).add(number)
            homes.setdefault(("reference", document.external_ref), set()).add(number)
    assert all(len(numbers) == 1 for numbers in homes.values())
    assert len(set.union(*homes.values())) == LANES


def test_a_document_that_changes_its_thread_needs_one_lane() -> None:
    documents = [
        *(turn(i, f"Turn {i}.", thread=f"t{i % 2}") for i in range(ENOUGH)),
        turn(0, "Moved.", thread="t1", external_ref="t0:0"),
    ]
    assert split_lanes(documents) == everything(documents)


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
