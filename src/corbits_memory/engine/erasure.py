"""Takes a document's content away, within one transaction: forget leaves empty rows, purge leaves none.

The order matters twice. Locks are taken as captures and workers take them (the tenant's row, the document,
its versions, searched rows by chunk), and the feed's number comes last. What of a document's content stands
where is listed in docs/erasure.md; a test dumps every table to prove it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.access.tags import owner_tag
from corbits_memory.core import ids
from corbits_memory.core.enums import ErasureKind, RetentionClass, VersionStatus
from corbits_memory.core.erasure import ERASED, erased_reference
from corbits_memory.engine.access import visibility_parameters
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.neighbours import embed_anew, followers, lock_rows
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.queries import load_queries
from corbits_memory.ports import Visibility

Row = dict[str, Any]

_IN_FEED = (VersionStatus.ACTIVE, VersionStatus.SUPERSEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasable:
    """A document that is locked, to be erased in this transaction."""

    document_id: str
    owner: str
    tags: tuple[str, ...]
    adapter: str
    external_ref: str
    live_generation: str
    tenant_id: str
    versions: list[Row]

    @property
    def version_ids(self) -> list[str]:
        return [row["id"] for row in self.versions]

    @property
    def kept_versions(self) -> list[str]:
        """Those that are not forgotten yet."""
        return [row["id"] for row in self.versions if row["status"] != VersionStatus.TOMBSTONED]

    @property
    def newest(self) -> Row | None:
        """What the document shows: its active version, else the last that is not forgotten."""
        kept = [row for row in self.versions if row["status"] != VersionStatus.TOMBSTONED]
        return max(
            kept, key=lambda row: (row["status"] == VersionStatus.ACTIVE, row["version"]), default=None
        )

    @property
    def held(self) -> bool:
        """Whether a durable version forbids that its rows go."""
        return any(
            row["retention_class"] == RetentionClass.DURABLE and row["status"] != VersionStatus.TOMBSTONED
            for row in self.versions
        )

    @property
    def in_feed(self) -> list[str]:
        """Versions that readers of the feed have heard of and not seen leave."""
        return [row["id"] for row in self.versions if told_by_feed(row, self.live_generation)]

    @property
    def erased_ref(self) -> str:
        if self.external_ref.startswith(ERASED):
            return self.external_ref
        return erased_reference(self.tenant_id, self.adapter, self.external_ref)


def told_by_feed(version: Row, live_generation: str) -> bool:
    """Whether a version stands in the feed: captured into it, or promoted with its generation."""
    told = version["feed_seq"] is not None or version["generation"] == live_generation
    return told and version["status"] in _IN_FEED


async def hold_for_replay(conn: Connection, tenant_id: str, raw_capture_ids: Sequence[str]) -> list[str]:
    """Which of these raw captures a replay may read now, in order of their ids.

    The first statements of the transaction that also writes what it makes of them: until that ends, a forget
    or a purge of their documents waits, and then erases what was made too. Texts that were read before are
    not to be used.
    """
    queries = load_queries("erasure")
    captures = list(raw_capture_ids)
    await conn.execute(queries["hold_for_replay"], {"tenant": tenant_id, "captures": captures})
    # A statement of its own: what was erased while the first one waited is seen by a new snapshot alone.
    rows = await _fetch(conn, queries["replayable"], tenant=tenant_id, captures=captures)
    return [row["id"] for row in rows]


async def lock_erasable(conn: Connection, tenant_id: str, document_id: str) -> Erasable | None:
    """The document with its versions, locked; None when there is none."""
    tenant = await _fetch(conn, load_queries("capture")["lock_tenant"], tenant=tenant_id)
    if not tenant:
        return None
    queries = load_queries("erasure")
    await conn.execute(queries["hold_restores"], {"tenant": tenant_id})
    found = await _fetch(conn, queries["lock_document"], tenant=tenant_id, document=document_id)
    if not found:
        return None
    row = found[0]
    return Erasable(
        document_id=document_id,
        tenant_id=tenant_id,
        owner=row["owner_principal_id"],
        tags=tuple(row["tags"]),
        adapter=row["adapter"],
        external_ref=row["external_ref"],
        live_generation=tenant[0]["live_generation"],
        versions=await _fetch(conn, queries["lock_versions"], tenant=tenant_id, document=document_id),
    )


async def derived_documents(
    conn: Connection, document: Erasable, visibility: Visibility | None, *, limit: int
) -> list[Row]:
    """What was made from the document and is not forgotten: rows of ``document_id, version_id, owner``.

    ``visibility`` None: whoever may see it.
    """
    seen = visibility if visibility is not None else Visibility(principal_id="")
    return await _fetch(
        conn,
        load_queries("erasure")["derived"],
        tenant=document.tenant_id,
        document=document.document_id,
        versions=document.version_ids,
        all=visibility is None,
        limit=limit,
        **visibility_parameters(seen),
    )


class Eraser:
    """The statements that erase one document, which :func:`lock_erasable` has locked."""

    def __init__(self, conn: Connection, document: Erasable, *, by: str) -> None:
        self._conn = conn
        self._document = document
        self._by = by
        self._queries = load_queries("erasure")
        self._chunks: list[str] = []
        self._captures: list[str] = []
        self._entities: list[str] = []
        self._live_rows = 0
        self._recount = False
        self.waiting = False
        """Whether vectors of other documents were dropped and wait to be made anew."""

    async def forget(self) -> int:
        """Empty every row; the number of versions that were not forgotten before."""
        kept = self._document.kept_versions
        if not kept and self._document.external_ref.startswith(ERASED):
            return 0
        retracted = self._document.in_feed
        await self._prepare()
        await self._run("drop_edges", chunks=self._chunks)
        await self._drop_entities()
        await self._run("drop_chunks")
        erased_ref = self._document.erased_ref
        await self._run("empty_raw_captures", captures=self._captures, erased_ref=erased_ref)
        await self._run("empty_versions")
        await self._run("empty_document", erased_ref=erased_ref, tags=[owner_tag(self._document.owner)])
        await self._finish(ErasureKind.FORGET, retracted, documents=0)
        return len(kept)

    async def purge(self) -> int:
        """Remove every row; how many versions there were."""
        retracted = self._document.in_feed
        await self._prepare()
        await self._run("drop_all_edges", chunks=self._chunks)
        await self._drop_entities()
        await self._run("drop_document")
        await self._run("drop_raw_captures", captures=self._captures)
        await self._finish(ErasureKind.PURGE, retracted, documents=1)
        return len(self._document.versions)

    async def _prepare(self) -> None:
        """What has to be known, and taken out of other rows, while the document's own rows still stand."""
        document = self._document
        self._captures = [
            row["id"]
            for row in await self._rows(
                "raw_captures", adapter=document.adapter, external_ref=document.external_ref
            )
        ]
        self._chunks = [row["id"] for row in await self._rows("chunks")]
        await self._run("drop_failures")
        await self._run("hold_statistics")
        # Rows, then entities: captures hold turns that follow theirs, too, before they name anything.
        await self._embed_apart()
        self._entities = [row["id"] for row in await self._rows("named_entities", chunks=self._chunks)]
        self._recount = bool(await self._rows("superseded_since_counted"))
        await self._run("drop_terms")
        await self._run("drop_empty_terms")

    async def _embed_apart(self) -> None:
        """Vectors that may hold the document's text in front of another's go, and are made anew."""
        document = self._document
        apart = await followers(self._conn, document.tenant_id, [document.document_id])
        locked = await lock_rows(self._conn, document.tenant_id, [document.document_id], apart)
        own = [row for row in locked if row["document_id"] == document.document_id]
        self._live_rows = sum(row["generation"] == document.live_generation for row in own)
        others = [row for row in locked if row["document_id"] != document.document_id]
        if others:
            await embed_anew(self._conn, document.tenant_id, others)
            self.waiting = True

    async def _drop_entities(self) -> None:
        if self._entities:
            await self._run("drop_entities", entities=self._entities)
            await self._run("unlabel_entities", entities=self._entities)

    async def _finish(self, kind: ErasureKind, retracted: list[str], *, documents: int) -> None:
        captures: list[str | None] = [*self._captures] or [None]
        await self._run(
            "enter_ledger",
            kind=kind,
            captures=captures,
            ids=[new_id(ids.ERASURE) for _ in captures],
            adapter=self._document.adapter,
        )
        await self._run(
            "finish",
            retracted=retracted,
            document=self._document.document_id,
            owner=self._document.owner,
            tags=list(self._document.tags),
            documents=documents,
            rows=self._live_rows,
            recount=self._recount,
        )

    async def _run(self, query: str, **parameters: Any) -> None:
        await self._conn.execute(self._queries[query], self._bound(parameters))

    async def _rows(self, query: str, **parameters: Any) -> list[Row]:
        return await _fetch(self._conn, self._queries[query], **self._bound(parameters))

    def _bound(self, parameters: dict[str, Any]) -> dict[str, Any]:
        document = self._document
        return {
            "tenant": document.tenant_id,
            "document": document.document_id,
            "versions": document.version_ids,
            "principal": self._by,
            **parameters,
        }


async def _fetch(conn: Connection, query: Any, **parameters: Any) -> list[Row]:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(query, parameters)
    return await cursor.fetchall()
