"""The text of new versions: chunks, what search reads of them, and their place in the queue for vectors."""

from collections.abc import Sequence
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
    chunk_ids = [chunk_id for draft in drafts for chunk_id in draft.chunk_ids]
    if not chunk_ids:
        return
    chunks = dump_rows([row for draft in drafts for row in drafting.chunk_rows(draft)])
    await statements.run("keep_plans")
    await statements.run(
        "insert_texts", chunks=chunks, versions=versions, lease=lease_seconds, generation=generation
    )
    await statements.run("plan_anew")
    await _enqueue_followers(statements, drafts, chunk_ids, generation)


async def insert_unsearched_texts(statements: Statements, drafts: Sequence[Draft]) -> None:
    """The chunks of versions that are kept, and not searched."""
    chunks = [row for draft in drafts for row in drafting.chunk_rows(draft)]
    if chunks:
        await statements.run("insert_chunks", chunks=dump_rows(chunks))


async def _enqueue_followers(
    statements: Statements, drafts: Sequence[Draft], chunk_ids: list[str], generation: str
) -> None:
    spans: dict[str, tuple[datetime, datetime]] = {}
    for draft in drafts:
        if draft.document.thread:
            earliest, latest = spans.get(draft.document.thread, (draft.occurred_at, draft.occurred_at))
            spans[draft.document.thread] = (min(earliest, draft.occurred_at), max(latest, draft.occurred_at))
    if spans:
        await statements.run(
            "enqueue_followers",
            threads=list(spans),
            earliest=[earliest for earliest, _ in spans.values()],
            latest=[latest for _, latest in spans.values()],
            chunks=chunk_ids,
            generation=generation,
        )
