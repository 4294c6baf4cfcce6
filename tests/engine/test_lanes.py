"""A large batch is written over several connections: what belongs together keeps its order."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from corbits_memory.core.enums import AddStatus
from corbits_memory.engine.capture import PLANNED_DOCUMENTS
from corbits_memory.engine.drafts import Draft
from corbits_memory.engine.lanes import DOCUMENT_CHARS, LANE_DOCUMENTS, LANES, split_evenly, split_lanes
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.writer import CaptureWriter
from corbits_memory.errors import UnavailableError
from corbits_memory.ports import NewDocument
from tests.engine.support import NOON, P, T, add, note, turn

Owner = psycopg.AsyncConnection[Any]
ENOUGH = LANE_DOCUMENTS * LANES


def everything(documents: Sequence[NewDocument]) -> list[list[int]]:
    return [list(range(len(documents)))]


@pytest.mark.parametrize("lanes", range(2, LANES + 1))
def test_a_lane_has_enough_to_do(lanes: int) -> None:
    documents = [note(f"Text {i}.") for i in range(LANE_DOCUMENTS * lanes - 1)]
    assert len(split_lanes(documents)) == lanes - 1
    assert len(split_lanes([*documents, note("One more.")])) == lanes


def test_there_are_no_more_lanes_than_that() -> None:
    assert len(split_lanes([note(f"Text {i}.") for i in range(ENOUGH * 2)])) == LANES


def test_lanes_hold_everything_once_in_order_and_are_alike() -> None:
    lanes = split_lanes([note(f"Text {i:03}.") for i in range(ENOUGH)])
    assert sorted(itertools.chain(*lanes)) == list(range(ENOUGH))
    assert all(lane == sorted(lane) for lane in lanes)
    assert [len(lane) for lane in lanes] == [LANE_DOCUMENTS] * LANES


def test_lanes_have_about_as_much_text() -> None:
    documents = [note("x" * (50_000 if i < 10 else 50)) for i in range(ENOUGH * 5)]
    loads = [sum(len(documents[i].text) + DOCUMENT_CHARS for i in lane) for lane in split_lanes(documents)]
    assert min(loads) > 0.9 * max(loads)


@pytest.mark.parametrize(
    ("size", "parts"),
    [(0, [0]), (1, [1]), (250, [250]), (262, [262]), (374, [374]), (376, [188, 188]), (1_000, [250] * 4)],
)
def test_a_lane_is_cut_evenly(size: int, parts: list[int]) -> None:
    cut = split_evenly(list(range(size)), 250)
    assert [len(part) for part in cut] == parts
    assert list(itertools.chain(*cut)) == list(range(size))


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


async def test_when_one_lane_fails_the_others_are_waited_for_and_begin_nothing_new(
    store: PostgresDocumentStore, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [note(f"Text {i}.", external_ref=f"n{i}") for i in range(PLANNED_DOCUMENTS * 3)]
    insert = CaptureWriter.write
    begun = ended = 0
    broken: list[Draft] = []
    all_begun = asyncio.Event()

    async def write(writer: CaptureWriter, group: list[Draft], request: Any) -> Any:
        nonlocal begun, ended
        begun += 1
        second = begun == 2
        if begun == LANES:
            all_begun.set()
        if second:
            await all_begun.wait()  # connections open one after the other
            broken.extend(group)
            raise UnavailableError("The database has gone.")
        answers = await insert(writer, group, request)
        ended += 1
        return answers

    monkeypatch.setattr(CaptureWriter, "write", write)
    with pytest.raises(UnavailableError):
        await store.add(tenant_id=T, principal_id=P, documents=documents)
    assert (begun, ended) == (LANES, LANES - 1)
    monkeypatch.undo()
    # What was written is whole, and the same call completes the rest.
    answers = await add(store, *documents)
    unchanged = [answer for answer in answers if answer.status is AddStatus.UNCHANGED]
    assert 0 < len(unchanged) <= len(documents) - len(broken)
    row = await (
        await owner.execute(
            "SELECT s.feed_seq, s.document_count, s.chunk_count, (SELECT count(*) FROM memory.feed_event), "
            "(SELECT count(*) FROM memory.audit_event WHERE outcome = 'done') FROM memory.tenant_state s"
        )
    ).fetchone()
    assert row == (len(documents),) * 5
