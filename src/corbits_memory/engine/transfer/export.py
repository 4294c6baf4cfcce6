"""Writes a tenant, or what one principal may see of it, as lines: everything in it once, in constant memory.

The order of the lines is that of :mod:`~corbits_memory.engine.transfer.format`. All is of one moment. Whoever exports
for a principal gets what reads would tell it, and of its own documents all.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.core.instants import iso_instant
from corbits_memory.engine.access import resolve_visibility, visibility_parameters
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.transfer.format import END, FORMAT, FORMAT_VERSION, KINDS, Line, Row, plural
from corbits_memory.engine.vectors import VectorSpace, active_space
from corbits_memory.ports import Access, Visibility

DOCUMENTS_PAGE = 200
VERSIONS_PAGE = 200
CHUNKS_PAGE = 500
EDGES_PAGE = 1_000
CAPTURES_BYTES = 4_000_000
"""Raw captures that are read at once, unless one alone is larger."""
EXPORT_SECONDS = 600.0
"""One statement of an export may take this long; it is read a page at a time."""


class Exporter:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def export(
        self,
        *,
        tenant_id: str,
        principal_id: str | None = None,
        access: Access | None = None,
        owned: bool = False,
        vectors: bool = True,
    ) -> AsyncIterator[Line]:
        """Lines as JSON objects. ``principal_id`` None: the whole tenant. ``owned``: the principal's own alone."""
        counts = {plural(kind): 0 for kind in KINDS}
        async with self._database.tenant(tenant_id, seconds=EXPORT_SECONDS) as conn:
            # Before any query: all statements see one moment.
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # Pages are read in the order of a key. Before the first ANALYZE the planner takes a tenant for a few rows,
            # which it would rather collect and sort, anew for each page.
            await conn.execute("SET LOCAL enable_bitmapscan = off")
            reading = _Reading(conn, {"tenant": tenant_id})
            head = next(iter(await reading.fetch("export_head")), None)
            space = await active_space(conn, tenant_id) if vectors and head is not None else None
            moment = await (await conn.execute("SELECT now()")).fetchone()
            yield {
                FORMAT: FORMAT_VERSION,
                "tenant": tenant_id,
                "principal": principal_id,
                "exported_at": None if moment is None else iso_instant(moment[0]),
                # How many there are beside its own is not a principal's to know.
                "documents": None if head is None or principal_id is not None else head["document_count"],
                "model": None if head is None or space is None else head["model"],
            }
            if head is not None:
                visibility = Visibility(principal_id=principal_id or "")
                if principal_id is not None and not owned:
                    visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
                reading.scope |= {
                    "generation": head["live_generation"],
                    "all": principal_id is None,
                    **visibility_parameters(visibility),
                }
                reading.visibility = visibility
                async for kind, line in reading.documents(space):
                    counts[plural(kind)] += 1
                    yield line
        yield {END: counts}


Told = AsyncIterator[tuple[str, Line]]
"""Kinds and lines."""


class _Reading:
    """The statements of one export, each a page at a time."""

    def __init__(self, conn: Connection, scope: dict[str, Any]) -> None:
        self._conn = conn
        self._queries = load_queries("transfer")
        self.scope = scope
        self.visibility = Visibility(principal_id="")

    async def fetch(self, query: str, **parameters: Any) -> list[Row]:
        cursor = self._conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries[query], {**self.scope, **parameters})
        return await cursor.fetchall()

    async def documents(self, space: VectorSpace | None) -> Told:
        after = ""
        while True:
            page = await self.fetch("export_documents", after=after, limit=DOCUMENTS_PAGE)
            if not page:
                return
            after = page[-1]["id"]
            versions = _InTurn(self._versions([row["id"] for row in page], space))
            edges = _InTurn(self._document_edges([row["id"] for row in page if row["whole"]]))
            for row in page:
                yield "document", {"document": self._told(row)}
                async for told in versions.of(row["id"]):
                    yield told
                async for told in edges.of(row["id"]):
                    yield told

    def _told(self, row: Row) -> Row:
        """A document or version; with whom somebody else's is shared beside the caller is left out."""
        told: Row = row["row"]
        if not row["whole"]:
            owner = told["owner_principal_id"]
            for name in ("access_tags", "system_tags"):
                if name in told:
                    told[name] = list(self.visibility.tells(owner=owner, tags=told[name]))
        return told

    async def _versions(self, documents: Sequence[str], space: VectorSpace | None) -> "_Keyed":
        """What belongs to versions of these documents, version by version, each under its document's id."""
        place: dict[str, Any] = {"after_document": "", "after_version": 0}
        while True:
            page = await self.fetch(
                "export_versions", documents=list(documents), limit=VERSIONS_PAGE, **place
            )
            for part in _parts(page):
                captures = await self._captures(part)
                edges = await self._version_edges(part)
                chunks = _InTurn(self._chunks(part, space))
                for row in part:
                    capture = captures.get(row["raw_capture_id"] or "")
                    if capture is not None:
                        yield row["document_id"], ("raw_capture", {"raw_capture": capture})
                    yield row["document_id"], ("version", {"version": self._told(row)})
                    async for line in chunks.of(row["id"]):
                        yield row["document_id"], line
                    for edge in edges.get(row["id"], ()):
                        yield row["document_id"], ("edge", {"edge": edge})
            if len(page) < VERSIONS_PAGE:
                return
            place = {"after_document": page[-1]["document_id"], "after_version": page[-1]["version"]}

    async def _captures(self, versions: Sequence[Row]) -> dict[str, Row]:
        wanted = sorted({row["raw_capture_id"] for row in versions if row["raw_capture_id"]})
        if not wanted:
            return {}
        return {row["id"]: row["row"] for row in await self.fetch("export_raw_captures", captures=wanted)}

    async def _version_edges(self, versions: Sequence[Row]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in await self.fetch("export_version_edges", versions=[row["id"] for row in versions]):
            found.setdefault(row["from_ref"], []).append(row["row"])
        return found

    async def _chunks(self, versions: Sequence[Row], space: VectorSpace | None) -> "_Keyed":
        """The text of versions, each chunk under its version's id, in the order of ``versions``."""
        for run in _runs(versions):
            ids = [row["id"] for row in run]
            place: dict[str, Any] = {"after_version": "", "after_ordinal": -1}
            while True:
                rows = await self.fetch("export_chunks", versions=ids, limit=CHUNKS_PAGE, **place)
                vectors = await self._vectors([row["id"] for row in rows], space)
                # One version may be longer than a page; of several that are not, all came at once.
                order = {version_id: number for number, version_id in enumerate(ids)}
                for row in sorted(rows, key=lambda row: (order[row["version_id"]], row["ordinal"])):
                    yield row["version_id"], ("chunk", {"chunk": row["row"], **vectors.get(row["id"], {})})
                if len(rows) < CHUNKS_PAGE:
                    break
                place = {"after_version": rows[-1]["version_id"], "after_ordinal": rows[-1]["ordinal"]}

    async def _vectors(self, chunks: list[str], space: VectorSpace | None) -> dict[str, Line]:
        if space is None or not chunks:
            return {}
        query = space.compose(self._queries["export_vectors"])
        rows = await self._conn.execute(query, {**self.scope, "chunks": chunks})
        before = {row["chunk_id"]: row["previous"] for row in await self.fetch("turns_before", chunks=chunks)}
        return {
            chunk: {"vector": vector} | ({"previous": before[chunk]} if chunk in before else {})
            async for chunk, vector in rows
        }

    async def _document_edges(self, documents: list[str]) -> "_Keyed":
        place: dict[str, Any] = {"after_document": "", "after_edge": ""}
        while documents:
            page = await self.fetch("export_document_edges", documents=documents, limit=EDGES_PAGE, **place)
            for row in page:
                entity = {} if row["entity"] is None else {"entity": row["entity"]}
                yield row["from_ref"], ("edge", {"edge": row["row"], **entity})
            if len(page) < EDGES_PAGE:
                return
            place = {"after_document": page[-1]["from_ref"], "after_edge": page[-1]["id"]}


_Keyed = AsyncIterator[tuple[str, tuple[str, Line]]]
"""Lines under the id of what they belong to."""


class _InTurn:
    """Lines that come in the order of what they belong to, taken for one after the other."""

    def __init__(self, lines: _Keyed) -> None:
        self._lines = lines
        self._next: tuple[str, tuple[str, Line]] | None = None

    async def of(self, key: str) -> Told:
        while True:
            if self._next is None:
                self._next = await anext(self._lines, None)
            if self._next is None or self._next[0] != key:
                return
            told, self._next = self._next[1], None
            yield told


def _parts(versions: Sequence[Row]) -> list[list[Row]]:
    """Cut so that the raw captures of a part fit in memory."""
    return _cut(versions, lambda row: int(row["raw_bytes"]), CAPTURES_BYTES)


def _runs(versions: Sequence[Row]) -> list[list[Row]]:
    """Cut so that the chunks of several versions fit in a page that is not full; one alone may be longer."""
    return _cut(versions, lambda row: int(row["chunks"]), CHUNKS_PAGE - 1)


def _cut(rows: Sequence[Row], weight: Callable[[Row], int], most: int) -> list[list[Row]]:
    parts: list[list[Row]] = []
    total = 0
    for row in rows:
        heavy = weight(row)
        if not parts or total + heavy > most:
            parts.append([])
            total = 0
        parts[-1].append(row)
        total += heavy
    return parts
