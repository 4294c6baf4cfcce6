"""Writes a tenant, or what one principal may see of it, as lines: everything in it once, in constant memory.

The first line says what this is. Then come pages of documents, each in the order in which it can be read back:
raw captures, documents, versions, chunks (with their vectors), entities, edges. All is of one moment.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.core.instants import iso_instant
from corbits_memory.engine.access import resolve_visibility, visibility_parameters
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import VectorSpace, active_space
from corbits_memory.ports import Access, Visibility

FORMAT, FORMAT_VERSION = "corbits-memory-export", 1
DOCUMENTS_PAGE = 200
CHUNKS_PAGE = 500
EXPORT_SECONDS = 600.0
"""One statement of an export may take this long; it is read a page at a time."""

Line = dict[str, Any]


class Exporter:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("transfer")

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
        async with self._database.tenant(tenant_id, seconds=EXPORT_SECONDS) as conn:
            # Before any query: all statements see one moment.
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            heads = await self._fetch(conn, "export_head", tenant=tenant_id)
            if not heads:
                yield _header(tenant_id, None, None, documents=0)
                return
            (head,) = heads
            space = await active_space(conn, tenant_id) if vectors else None
            moment = await (await conn.execute("SELECT now()")).fetchone()
            yield _header(
                tenant_id,
                None if space is None else head["model"],
                None if moment is None else iso_instant(moment[0]),
                documents=head["document_count"],
            )
            visibility = Visibility(principal_id=principal_id or "")
            if principal_id is not None and not owned:
                visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            scope = {
                "tenant": tenant_id,
                "generation": head["live_generation"],
                "all": principal_id is None,
                **visibility_parameters(visibility),
            }
            async for line in self._pages(conn, scope, space):
                yield line

    async def _pages(
        self, conn: Connection, scope: Mapping[str, Any], space: VectorSpace | None
    ) -> AsyncIterator[Line]:
        after = ""
        while True:
            documents = await self._fetch(
                conn, "export_documents", after=after, limit=DOCUMENTS_PAGE, **scope
            )
            if not documents:
                return
            after = documents[-1]["id"]
            ids = [row["id"] for row in documents]
            versions = await self._fetch(conn, "export_versions", documents=ids, **scope)
            captures = sorted({row["raw_capture_id"] for row in versions if row["raw_capture_id"]})
            for row in await self._fetch(conn, "export_raw_captures", captures=captures, **scope):
                yield {"raw_capture": row["row"]}
            for row in documents:
                yield {"document": row["row"]}
            for row in versions:
                yield {"version": row["row"]}
            version_ids = sorted(row["id"] for row in versions)
            async for line in self._chunks(conn, scope, version_ids, space):
                yield line
            edges = await self._fetch(conn, "export_edges", refs=[*ids, *version_ids], **scope)
            entities = sorted({row["row"]["to_ref"] for row in edges if row["row"]["to_type"] == "entity"})
            for row in await self._fetch(conn, "export_entities", entities=entities, **scope):
                yield {"entity": row["row"]}
            for row in edges:
                yield {"edge": row["row"]}

    async def _chunks(
        self, conn: Connection, scope: Mapping[str, Any], versions: list[str], space: VectorSpace | None
    ) -> AsyncIterator[Line]:
        place = ("", -1)
        while True:
            rows = await self._fetch(
                conn,
                "export_chunks",
                versions=versions,
                after_version=place[0],
                after_ordinal=place[1],
                limit=CHUNKS_PAGE,
                **scope,
            )
            vectors: dict[str, str] = {}
            if space is not None and rows:
                found = await conn.execute(
                    space.compose(self._queries["export_vectors"]),
                    {"tenant": scope["tenant"], "chunks": [row["id"] for row in rows]},
                )
                vectors = {chunk_id: vector async for chunk_id, vector in found}
            for row in rows:
                vector = vectors.get(row["id"])
                yield {"chunk": row["row"]} | ({"vector": vector} if vector is not None else {})
            if len(rows) < CHUNKS_PAGE:
                return
            place = (rows[-1]["version_id"], rows[-1]["ordinal"])

    async def _fetch(self, conn: Connection, query: str, **parameters: Any) -> list[dict[str, Any]]:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries[query], parameters)
        return await cursor.fetchall()


def _header(tenant_id: str, model: Mapping[str, Any] | None, moment: str | None, *, documents: int) -> Line:
    return {
        FORMAT: FORMAT_VERSION,
        "tenant": tenant_id,
        "exported_at": moment,
        "documents": documents,
        "model": None if model is None else dict(model),
    }
