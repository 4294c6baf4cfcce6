"""The text of a batch: chunks, what search reads of them, and their vectors."""

from collections.abc import Collection, Sequence

from corbits_memory.core.enums import VersionStatus
from corbits_memory.core.text import ends_with_question, normalise, word_count
from corbits_memory.engine.drafts import WORD_COUNT_CHARS, head_text
from corbits_memory.engine.neighbours import enqueue
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.texts import enqueue_followers
from corbits_memory.engine.transfer.batch import Statements, Written, sliced
from corbits_memory.engine.transfer.format import Row
from corbits_memory.engine.transfer.pieces import Unit
from corbits_memory.engine.vectors import VectorSpace
from corbits_memory.errors import ConflictError

_SEARCHABLE = frozenset({VersionStatus.ACTIVE, VersionStatus.DEPRECATED})


async def insert(db: Statements, units: Sequence[Unit], space: VectorSpace | None, done: Written) -> None:
    searched = {unit.id for unit in units if unit.row["status"] in _SEARCHABLE}
    searchable: list[Row] = []
    for part in sliced([chunk for unit in units for chunk in unit.chunks], "text"):
        made = {row["id"] for row in await db.fetch("restore_chunks", rows=part)}
        if len(made) != len(part):
            lost = next(chunk["version_id"] for chunk in part if chunk["id"] not in made)
            line = next(unit.line for unit in units if unit.id == lost)
            raise ConflictError(f"line {line}: a chunk of this version has the id of another one here")
    for unit_part in sliced(
        [_analysed(chunk, unit) for unit in units if unit.id in searched for chunk in unit.chunks], "body"
    ):
        searchable += await db.fetch("restore_search_rows", rows=unit_part)
    done.chunks = len(searchable)
    if not searchable:
        return
    if space is not None and not await _is_filled(db, space):
        space = None
    vectors = {} if space is None else await _usable_vectors(db, units, searchable)
    if space is not None and vectors:
        parameters = {
            "tenant": db.tenant_id,
            "chunks": list(vectors),
            "vectors": list(vectors.values()),
            # None of them is queued yet.
            "enqueued": [None] * len(vectors),
        }
        await db.conn.execute(space.compose(load_queries("vectors")["store_vectors"]), parameters)
    done.vectors = len(vectors)
    await enqueue(db.conn, db.tenant_id, [row for row in searchable if row["chunk_id"] not in vectors])
    await _embed_followers(db, units, searchable)


async def _is_filled(db: Statements, space: VectorSpace) -> bool:
    """Whether vectors of this model are all that the tenant needs, to the end of the transaction."""
    parameters = {"tenant": db.tenant_id, "model_key": space.model_key}
    row = await (await db.conn.execute(load_queries("vectors")["hold_active_model"], parameters)).fetchone()
    return row is not None and row[0] is None


async def _usable_vectors(db: Statements, units: Sequence[Unit], searchable: Sequence[Row]) -> dict[str, str]:
    """A turn's vector holds the text of the one before: it is taken over only where that is the same one here."""
    told = {chunk_id: pair for unit in units for chunk_id, pair in unit.vectors.items()}
    given = {row["chunk_id"]: told[row["chunk_id"]] for row in searchable if row["chunk_id"] in told}
    turns = {chunk["id"] for unit in units if unit.row["thread"] for chunk in unit.chunks}.intersection(given)
    before: dict[str, str | None] = {}
    if turns:
        before = await _turns_before(db, turns)
        # Whoever changes their readers waits for this transaction, or was first and is seen by the next look.
        held = {"tenant": db.tenant_id, "chunks": sorted(filter(None, before.values()))}
        await db.conn.execute(load_queries("vectors")["hold_rows"], held)
        before = await _turns_before(db, turns)
    return {chunk: vector for chunk, (vector, previous) in given.items() if before.get(chunk) == previous}


async def _turns_before(db: Statements, chunks: Collection[str]) -> dict[str, str | None]:
    return {row["chunk_id"]: row["previous"] for row in await db.fetch("turns_before", chunks=sorted(chunks))}


async def _embed_followers(db: Statements, units: Sequence[Unit], searchable: Sequence[Row]) -> None:
    """Turns that were here and now have another one before them are embedded anew."""
    spans: dict[str, list[str]] = {}
    for unit in units:
        if unit.row["thread"] and unit.row["status"] in _SEARCHABLE:
            spans.setdefault(unit.row["thread"], []).append(unit.row["occurred_at"])
    await enqueue_followers(
        db.capture,
        {thread: (min(instants), max(instants)) for thread, instants in spans.items()},
        [row["chunk_id"] for row in searchable],
        generation=db.generation,
    )


def _analysed(chunk: Row, unit: Unit) -> Row:
    version, text = unit.row, chunk["text"]
    several = len(unit.chunks) > 1
    return {
        "id": chunk["id"],
        "version_id": version["id"],
        "ordinal": chunk["ordinal"],
        "context_key": version["thread"] or (version["document_id"] if several else None),
        "head": normalise(head_text(version["title"], version["author"])),
        "body": normalise(text),
        "words": word_count(text[:WORD_COUNT_CHARS]),
        "asks": ends_with_question(text),
    }
