"""One tick: over scripted pages with the original's values, and over a real memory on Postgres."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from corbits_memory.core.enums import LineageClass
from corbits_memory.distiller import (
    DistillEntry,
    DistillUnavailableError,
    Outcome,
    PlaneMemory,
    Poison,
    Skip,
    TickAbortedError,
    Write,
    run_distill_tick,
)
from corbits_memory.errors import DatabaseError
from corbits_memory.plane import Memory
from corbits_memory.wire.feed import FeedEntryResponse, FeedResponse
from corbits_memory.wire.responses import AddResponse
from tests.distiller.support import ANN, BOB, TENANT, Recorder, claims, put, write


class Scripted:
    """A memory of one page, at the port that a distiller is handed."""

    def __init__(self, *entries: FeedEntryResponse, next_cursor: int | None, failing: bool = False) -> None:
        self.page = FeedResponse(entries=list(entries), next_cursor=next_cursor, has_more=False)
        self.asked: list[dict[str, Any]] = []
        self.added: list[dict[str, Any]] = []
        self.failing = failing

    async def feed(self, **asked: Any) -> FeedResponse:
        self.asked.append(asked)
        return self.page

    async def add(self, **body: Any) -> AddResponse:
        if self.failing:
            raise DatabaseError
        self.added.append(body)
        return AddResponse(document_id="d", version_id="w", version=1, status="created", chunks=1)  # type: ignore[arg-type]


def told(seq: int, **fields: Any) -> FeedEntryResponse:
    return FeedEntryResponse(feed_seq=seq, op="upsert", version_id=f"v{seq}", **fields)  # type: ignore[arg-type]


def broken(entry: DistillEntry) -> Outcome:
    raise ValueError("cannot")


async def test_one_entry_one_claim_with_its_tags() -> None:
    memory = Scripted(told(1, access_tags=["memory.owner:u1"]), next_cursor=1)
    tick = await run_distill_tick(memory, write)
    assert (tick.next_cursor, len(tick.wrote), tick.processed) == (1, 1, 1)
    (body,) = memory.added
    assert body["derived_from"] == ["v1"]
    assert body["access_tags"] == ["memory.owner:u1"]
    assert memory.asked == [
        {"after": 0, "limit": None, "exclude_generator": "resident-distiller", "include_text": True}
    ]


async def test_an_inference_that_throws_poisons_its_entry_and_the_cursor_goes_on() -> None:
    tick = await run_distill_tick(Scripted(told(3), next_cursor=3), broken, after=2)
    assert (len(tick.poisoned), len(tick.wrote), tick.next_cursor) == (1, 0, 3)
    assert (tick.poisoned[0].reason, tick.poisoned[0].version_id) == ("ValueError: cannot", "v3")


async def test_an_empty_page_keeps_the_cursor() -> None:
    assert (await run_distill_tick(Scripted(next_cursor=None), write, after=7)).next_cursor == 7


async def test_what_a_page_does_not_tell_has_its_default() -> None:
    recorder = Recorder()
    await run_distill_tick(Scripted(told(1), next_cursor=1), recorder)
    (entry,) = recorder.seen
    assert (entry.kind, entry.status, entry.created_by_kind, entry.provenance, entry.access_tags) == (
        "note", "active", "system", "unknown", (),
    )  # fmt: skip


async def test_skip_poison_and_async_inferences() -> None:
    async def distill(entry: DistillEntry) -> Outcome:
        await anyio.lowlevel.checkpoint()
        outcomes: list[Outcome] = [Skip(), Poison(reason="for\x00 nobody"), Poison(), write(entry)]
        return outcomes[entry.seq - 1]

    tick = await run_distill_tick(Scripted(*map(told, (1, 2, 3, 4)), next_cursor=4), distill)
    assert (tick.processed, tick.skipped, len(tick.wrote)) == (4, 1, 1)
    assert [one.reason for one in tick.poisoned] == ["for nobody", "the inference gave no reason"]


async def test_an_inference_that_answers_something_else_is_told_so() -> None:
    tick = await run_distill_tick(Scripted(told(1), next_cursor=1), lambda _: "write")  # type: ignore[arg-type, return-value]
    assert tick.poisoned[0].reason == "TypeError: distill must answer Skip, Poison or Write"


@pytest.mark.parametrize("title", [" ", "x" * 500, "x" * 501])
async def test_a_claim_that_can_not_be_kept_poisons_its_entry(
    anns: PlaneMemory, memory: Memory, title: str
) -> None:
    await put(memory, "A")
    tick = await run_distill_tick(anns, lambda _: Write(title=title, text="t"))
    kept = title == "x" * 500
    assert (len(tick.wrote), len(tick.poisoned)) == (int(kept), int(not kept))
    assert kept or tick.poisoned[0].reason.startswith("invalid_input: ")


@pytest.mark.parametrize("cause", ["memory", "inference"])
async def test_a_tick_that_breaks_off_says_how_far_it_was(cause: str) -> None:
    memory = Scripted(told(1), told(2), next_cursor=2, failing=cause == "memory")

    def distill(entry: DistillEntry) -> Outcome:
        if entry.seq == 1:
            return Skip()
        if cause == "inference":
            raise DistillUnavailableError
        return write(entry)

    with pytest.raises(TickAbortedError, match="broke off at entry 2") as told_so:
        await run_distill_tick(memory, distill)
    assert (told_so.value.tick.next_cursor, told_so.value.tick.has_more) == (1, True)


async def test_a_stop_ends_before_the_next_entry() -> None:
    stop = anyio.Event()

    def distill(entry: DistillEntry) -> Outcome:
        stop.set()
        return Skip()

    tick = await run_distill_tick(Scripted(told(1), told(2), next_cursor=2), distill, stop=stop)
    assert (tick.next_cursor, tick.processed, tick.has_more) == (1, 1, True)


@pytest.mark.parametrize(("tags", "copied"), [(64, 64), (65, 64)])
async def test_a_claim_names_as_many_tags_as_an_add_may(tags: int, copied: int) -> None:
    memory = Scripted(told(1, access_tags=[f"t:{n}" for n in range(tags)]), next_cursor=1)
    await run_distill_tick(memory, write)
    assert memory.added[0]["access_tags"] == [f"t:{n}" for n in range(copied)]


# --- over Postgres ---


async def test_a_claim_stands_beside_its_source_and_is_never_distilled_again(
    memory: Memory, anns: PlaneMemory
) -> None:
    source = await put(memory, "Deploys", access_tags=["memory.space:ops"])
    recorder = Recorder()
    first = await run_distill_tick(anns, recorder)
    assert [(entry.title, entry.text) for entry in recorder.seen] == [("Deploys", "All about Deploys.")]
    (claim,) = first.wrote
    found = await memory.version(tenant_id=TENANT, principal_id=ANN, version_id=claim.answer.version_id)
    assert (found.derived_from, found.facts.source_class) == ((source.version_id,), LineageClass.DERIVED)
    document = await memory.document(tenant_id=TENANT, principal_id=ANN, document_id=claim.answer.document_id)
    assert set(document.access_tags) == {"memory.owner:ann", "memory.space:ops"}
    again = await run_distill_tick(anns, recorder, after=first.next_cursor)
    assert (again.processed, len(recorder.seen)) == (0, 1)


async def test_distilling_twice_and_a_new_version_of_the_source_pile_nothing_up(
    memory: Memory, anns: PlaneMemory
) -> None:
    await put(memory, "A", external_ref="a", text="Five years.")
    first = await run_distill_tick(anns, write)
    again = await run_distill_tick(anns, write)
    assert [one.answer.status for one in (*first.wrote, *again.wrote)] == ["created", "unchanged"]
    await put(memory, "A", external_ref="a", text="Six years.")
    renewed = await run_distill_tick(anns, write)
    # Of the version that was replaced nothing is distilled.
    assert [(one.answer.status, one.answer.version) for one in renewed.wrote] == [("updated", 2)]
    assert len(await claims(memory)) == 1
    found = await memory.version(
        tenant_id=TENANT, principal_id=ANN, version_id=renewed.wrote[0].answer.version_id
    )
    assert found.text[0].text == "The claim is: Six years."


async def test_two_distillers_do_not_feed_each_other(memory: Memory, anns: PlaneMemory) -> None:
    await put(memory, "A")
    cursors = {"one": 0, "two": 0}
    for _ in range(4):
        for agent in cursors:
            tick = await run_distill_tick(
                anns, write, after=cursors[agent], generator_agent_id=agent, limit=100
            )
            cursors[agent] = tick.next_cursor
    assert len(await claims(memory)) == 2


async def test_a_claim_about_somebody_elses_document_has_no_more_readers_than_it(
    memory: Memory, anns: PlaneMemory
) -> None:
    await put(memory, "Bobs", who=BOB, share=None, access_tags=["memory.space:secret"])
    shared = await put(memory, "Shared", who=BOB, access_tags=["memory.space:secret"])
    await memory.share(tenant_id=TENANT, principal_id=BOB, document_id=shared.document_id, principals=[ANN])
    recorder = Recorder()
    tick = await run_distill_tick(anns, recorder)
    assert recorder.titles == ["Shared"]
    (claim,) = tick.wrote
    document = await memory.document(tenant_id=TENANT, principal_id=ANN, document_id=claim.answer.document_id)
    assert set(document.access_tags) <= {"memory.owner:ann", f"memory.doc:{shared.document_id}"}


async def test_claims_for_and_against(memory: Memory, anns: PlaneMemory) -> None:
    old = await put(memory, "Five years")
    other = await put(memory, "Ten years")
    new = await put(memory, "Six years")

    def distill(entry: DistillEntry) -> Outcome:
        if entry.version_id != new.version_id:
            return Skip()
        return Write(title="Six", text="Six.", supports=(other.version_id,), contradicts=(old.version_id,))

    (claim,) = (await run_distill_tick(anns, distill)).wrote
    found = await memory.version(tenant_id=TENANT, principal_id=ANN, version_id=claim.answer.version_id)
    assert (found.supports, found.contradicts) == ((other.version_id,), (old.version_id,))


async def test_two_principals_with_one_agent_id_are_told_to_part(memory: Memory, anns: PlaneMemory) -> None:
    document = await put(memory, "Ours", who=BOB)
    await memory.share(tenant_id=TENANT, principal_id=BOB, document_id=document.document_id, principals=[ANN])
    bobs = PlaneMemory(memory, tenant_id=TENANT, principal_id=BOB)
    await run_distill_tick(bobs, write)
    mine = await put(memory, "Mine")
    tick = await run_distill_tick(anns, write)
    # The one is given up, and holds up nothing behind it.
    assert [one.version_id for one in tick.poisoned] == [document.version_id]
    assert "an id of its own" in tick.poisoned[0].reason
    assert [one.claim["derived_from"] for one in tick.wrote] == [[mine.version_id]]
    assert len((await run_distill_tick(anns, write, claims_of=ANN)).wrote) == 2
