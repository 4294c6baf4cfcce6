"""The text of new versions: chunks, what search reads of them, and their place in the queue for vectors."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from corbits_memory.engine import drafts as drafting
from corbits_memory.engine.drafts import Draft
from corbits_memory.engine.statements import Statements, dump_rows


async def insert_texts(
    statements: Statements, drafts: Sequence[Draft], versions: str, *, generation: str, lease_seconds: float
) -> None:
    """Chunks and searched rows of drafts in ``generation``, in a few statements.

    ``versions``: the rows of the drafts' versions, dumped; these are written before or after this, in the same
    transaction. Whoever writes them has first go at their vectors until the lease ends; turns that have
    another turn before them now are queued, too.
    """
    chunks = [row for draft in drafts for row in drafting.chunk_rows(draft)]
    if not chunks:
        return
    await statements.run("keep_plans")
    await statements.run(
        "insert_texts",
        chunks=dump_rows(chunks),
        versions=versions,
        lease=lease_seconds,
        generation=generation,
    )
    await statements.run("plan_anew")


async def insert_unsearched_texts(statements: Statements, drafts: Sequence[Draft]) -> None:
    """The chunks of versions that are kept, and not searched."""
    chunks = [row for draft in drafts for row in drafting.chunk_rows(draft)]
    if chunks:
        await statements.run("insert_chunks", chunks=dump_rows(chunks))


async def enqueue_followers_of(statements: Statements, drafts: Sequence[Draft], *, generation: str) -> None:
    """Queue turns that have one of these drafts' before them now."""
    chunk_ids = [chunk_id for draft in drafts for chunk_id in draft.chunk_ids]
    await enqueue_followers(statements, _spans(drafts), chunk_ids, generation=generation)


async def enqueue_followers(
    statements: Statements,
    spans: Mapping[str, tuple[datetime | str, datetime | str]],
    chunk_ids: Sequence[str],
    *,
    generation: str,
) -> None:
    """Queue turns that have one of these chunks before them now; ``spans``: a thread's earliest and latest of these."""
    if not spans:
        return
    chunks = list(chunk_ids)
    late = await statements.fetch("late_threads", **_columns(spans), chunks=chunks, generation=generation)
    if late:
        found = {row["thread"]: spans[row["thread"]] for row in late}
        await statements.run("enqueue_followers", **_columns(found), chunks=chunks, generation=generation)


def _columns(spans: Mapping[str, tuple[datetime | str, datetime | str]]) -> dict[str, list[datetime | str]]:
    return {
        "threads": list(spans),
        "earliest": [earliest for earliest, _ in spans.values()],
        "latest": [latest for _, latest in spans.values()],
    }


def _spans(drafts: Sequence[Draft]) -> dict[str, tuple[datetime, datetime]]:
    spans: dict[str, tuple[datetime, datetime]] = {}
    for draft in drafts:
        if draft.document.thread:
            earliest, latest = spans.get(draft.document.thread, (draft.occurred_at, draft.occurred_at))
            spans[draft.document.thread] = (min(earliest, draft.occurred_at), max(latest, draft.occurred_at))
    return spans
