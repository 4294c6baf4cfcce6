"""Reads an export back. Ids, numbers, times, owners and tags stay; what search reads is made here anew.

A batch is a transaction, and rows that are here already stay as they are: an interrupted restore goes on when
it is started again.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from corbits_memory.core.text import ends_with_question, normalise, word_count
from corbits_memory.engine.access import note_tags
from corbits_memory.engine.drafts import WORD_COUNT_CHARS, head_text
from corbits_memory.engine.neighbours import enqueue
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.transfer.export import FORMAT, FORMAT_VERSION
from corbits_memory.engine.vectors import Standing, VectorRegistry, VectorSpace
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import Embedder

BATCH_LINES = 1_000
BATCH_CHARS = 8_000_000
KINDS = ("raw_capture", "document", "version", "chunk", "entity", "edge")

Row = dict[str, Any]


@dataclass(slots=True)
class Restored:
    """How much has come back so far. ``skipped`` documents have a reference that is another's here."""

    documents: int = 0
    versions: int = 0
    chunks: int = 0
    vectors: int = 0
    skipped: int = 0


@dataclass(slots=True)
class _Batch:
    rows: dict[str, list[Row]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    vectors: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    chars: int = 0


class Restorer:
    def __init__(self, database: Database, registry: VectorRegistry, embedder: Embedder | None) -> None:
        self._database = database
        self._registry = registry
        self._embedder = embedder
        self._queries = load_queries("transfer")

    async def restore(
        self, lines: AsyncIterator[tuple[Mapping[str, Any], int]], *, tenant_id: str
    ) -> AsyncIterator[Restored]:
        """Read ``(line, its size)``, and tell after each batch how much has come back.

        Raises ``InvalidInputError`` for what is no export; what was read before it stays.
        """
        run = _Run(self._database, self._queries, tenant_id)
        batch = _Batch()
        opened = False
        async for line, size in lines:
            if not opened:
                check_header(line)
                run.space = await self._space(tenant_id, line)
                opened = True
                continue
            _take(batch, line, size)
            if batch.lines >= BATCH_LINES or batch.chars >= BATCH_CHARS:
                yield await run.write(batch)
                batch = _Batch()
        if not opened:
            raise InvalidInputError("the file is empty; an export begins with a line that says what it is")
        yield await run.write(batch)

    async def _space(self, tenant_id: str, head: Mapping[str, Any]) -> VectorSpace | None:
        """Where the export's vectors go: only when the model that is configured here made them."""
        model = head.get("model")
        if self._embedder is None or not isinstance(model, Mapping):
            return None
        if model.get("model_key") != self._embedder.model_key:
            return None
        space, standing = await self._registry.claim(tenant_id, self._embedder)
        return space if standing is Standing.ACTIVE and model.get("dims") == space.dims else None


def check_header(line: Mapping[str, Any]) -> None:
    """Raises ``InvalidInputError`` unless this is the first line of an export that this release reads."""
    if FORMAT not in line:
        raise InvalidInputError(f"this is no export: its first line has no {FORMAT}")
    if line[FORMAT] != FORMAT_VERSION:
        raise InvalidInputError(
            f"this export has the format version {line[FORMAT]}; this release reads {FORMAT_VERSION}. Upgrade it."
        )


def _take(batch: _Batch, line: Mapping[str, Any], size: int) -> None:
    kind = next((name for name in KINDS if name in line), None)
    row = line.get(kind or "")
    if kind is None or not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise InvalidInputError(f"a line of an export holds one of {', '.join(KINDS)}, an object with an id")
    batch.rows[kind].append(row)
    if kind == "chunk" and isinstance(line.get("vector"), str):
        batch.vectors[row["id"]] = line["vector"]
    batch.lines += 1
    batch.chars += size


class _Run:
    """One restore: what it knows from the lines before."""

    def __init__(self, database: Database, queries: Mapping[str, Any], tenant_id: str) -> None:
        self._database = database
        self._queries = queries
        self._tenant_id = tenant_id
        self._done = Restored()
        self._versions: dict[str, Row] = {}
        self._entities: dict[str, str] = {}
        self.space: VectorSpace | None = None

    async def write(self, batch: _Batch) -> Restored:
        rows = batch.rows
        async with self._database.tenant(self._tenant_id) as conn:
            capture = load_queries("capture")
            tenant = {"tenant": self._tenant_id}
            await conn.execute(capture["create_tenant"], tenant)
            (generation,) = [row[0] async for row in await conn.execute(capture["lock_tenant"], tenant)]
            if rows["raw_capture"]:
                await self._run(conn, "restore_raw_captures", rows=rows["raw_capture"])
            fresh_documents = await self._documents(conn, rows["document"])
            versions = await self._known_versions(conn, rows["version"])
            fresh_versions = []
            if versions:
                fresh_versions = await self._ids(
                    conn, "restore_versions", rows=versions, generation=generation
                )
            chunks, vectors = await self._chunks(conn, rows["chunk"], batch.vectors, generation)
            await self._graph(conn, rows["entity"], rows["edge"])
            await conn.execute(
                capture["finish"],
                {
                    **tenant,
                    "versions": fresh_versions,
                    "documents": len(fresh_documents),
                    "chunks": chunks,
                    "languages": sorted({row["language"] for row in versions}),
                },
            )
        done = self._done
        done.documents += len(fresh_documents)
        done.versions += len(fresh_versions)
        done.chunks += chunks
        done.vectors += vectors
        return done

    async def _documents(self, conn: Connection, rows: list[Row]) -> list[str]:
        if not rows:
            return []
        # The page before is done with: its chunks have all come.
        self._versions = {}
        fresh = await self._ids(conn, "restore_documents", rows=rows)
        await note_tags(
            conn,
            self._tenant_id,
            {tag for row in rows for tag in (*row["access_tags"], *row["system_tags"])},
        )
        return fresh

    async def _known_versions(self, conn: Connection, rows: list[Row]) -> list[Row]:
        """Versions of documents that are here; those of the others are left out."""
        if not rows:
            return []
        wanted = sorted({row["document_id"] for row in rows})
        here = {row["id"] for row in await self._fetch(conn, "known_documents", ids=wanted)}
        self._done.skipped += len(wanted) - len(here)
        known = [row for row in rows if row["document_id"] in here]
        self._versions.update((row["id"], row) for row in known)
        return known

    async def _chunks(
        self, conn: Connection, rows: list[Row], vectors: Mapping[str, str], generation: str
    ) -> tuple[int, int]:
        """How many chunks became searchable now, and how many of them with their vector."""
        rows = [row for row in rows if row["version_id"] in self._versions]
        if not rows:
            return 0, 0
        await self._run(conn, "restore_chunks", rows=rows)
        analysed = [_analysed(row, self._versions[row["version_id"]]) for row in rows]
        searchable = await self._fetch(conn, "restore_search_rows", rows=analysed, generation=generation)
        embedded: list[str] = []
        if self.space is not None:
            embedded = [row["chunk_id"] for row in searchable if row["chunk_id"] in vectors]
            await conn.execute(
                self.space.compose(load_queries("vectors")["store_vectors"]),
                {
                    "tenant": self._tenant_id,
                    "chunks": embedded,
                    "vectors": [vectors[chunk_id] for chunk_id in embedded],
                    # None of them is queued yet.
                    "enqueued": [None] * len(embedded),
                },
            )
        waiting = [row for row in searchable if row["chunk_id"] not in set(embedded)]
        await enqueue(conn, self._tenant_id, waiting)
        return len(searchable), len(embedded)

    async def _graph(self, conn: Connection, entities: list[Row], edges: list[Row]) -> None:
        if entities:
            await self._run(conn, "restore_entities", rows=entities)
            named = await self._fetch(conn, "entity_ids", rows=entities)
            self._entities.update((row["exported"], row["id"]) for row in named)
        if edges:
            rows = [
                {**edge, "to_ref": self._entities.get(edge["to_ref"], edge["to_ref"])}
                if edge["to_type"] == "entity"
                else edge
                for edge in edges
            ]
            await self._run(conn, "restore_edges", rows=rows)
        # Entities are told again with each page that names them.
        self._entities = {} if len(self._entities) > BATCH_LINES * 10 else self._entities

    async def _run(self, conn: Connection, query: str, **parameters: Any) -> None:
        await conn.execute(self._queries[query], self._bind(parameters))

    async def _ids(self, conn: Connection, query: str, **parameters: Any) -> list[str]:
        rows = await conn.execute(self._queries[query], self._bind(parameters))
        return [row[0] async for row in rows]

    async def _fetch(self, conn: Connection, query: str, **parameters: Any) -> list[Row]:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries[query], self._bind(parameters))
        return await cursor.fetchall()

    def _bind(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if "rows" in parameters:
            parameters["rows"] = Jsonb(parameters["rows"])
        return {"tenant": self._tenant_id, **parameters}


def _analysed(chunk: Row, version: Row) -> Row:
    text = chunk["text"]
    several = version.get("chunks", 1) > 1
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
