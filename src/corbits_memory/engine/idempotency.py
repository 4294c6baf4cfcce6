"""Adds that may be sent again: under one key, one request has one answer.

What holds, however many send it at once and wherever one dies: a document's place in a request is taken by one
transaction, which also writes the document and its answer; who comes second waits for it and is given that answer,
or, when it came to nothing, its place. Another request under the same key is refused. Refused documents leave no
trace: to ask again for them is to ask anew. What a key brings back are ids, which outlive a forgotten document as its
empty rows do.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.access.tags import document_tag
from corbits_memory.core.enums import AddStatus
from corbits_memory.core.limits import IDEMPOTENCY_SECONDS
from corbits_memory.engine.drafts import Draft
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import IdempotencyKeyReusedError, MemoryError
from corbits_memory.ports import AddResult, Once, ShareReceipt

logger = logging.getLogger("corbits_memory.idempotency")

Row = dict[str, Any]

WHOLE = -1
"""The place of a request of several documents as a whole."""
SWEPT = 5_000
"""Keys that one statement of the sweep removes."""


class OnceOnly:
    """One principal's request, in whatever transaction is handed in."""

    def __init__(self, tenant_id: str, principal_id: str, once: Once) -> None:
        self._once = once
        self._parameters = {
            "tenant": tenant_id,
            "principal": principal_id,
            "key": once.key,
            "request": once.request,
            "seconds": IDEMPOTENCY_SECONDS,
        }
        self._queries = load_queries("idempotency")

    async def begin(self, conn: Connection) -> None:
        """Enter a request of several documents, whose own transactions follow. Raises as :meth:`take` does."""
        await self._take(conn, [WHOLE])
        self._check(await self._fetch(conn, "answers", positions=None))

    async def take(self, conn: Connection, group: list[Draft], answers: dict[int, Any]) -> list[Draft]:
        """The drafts that are still to be written; the ``answers`` of the others are put in.

        Waits for a transaction that has taken one of these places. Raises ``IdempotencyKeyReusedError``.
        """
        taken = await self._take(conn, [draft.position for draft in group])
        known = [draft for draft in group if draft.position not in taken]
        if known:
            rows = await self._fetch(conn, "answers", positions=[draft.position for draft in known])
            self._check(rows)
            by_position = {row["position"]: row for row in rows}
            shared = [by_position[d.position]["document_id"] for d in known if d.document.share is not None]
            tags = await self._tags(conn, shared)
            for draft in known:
                answers[draft.position] = _answer(by_position[draft.position], draft, tags)
        return [draft for draft in group if draft.position in taken]

    async def keep(
        self, conn: Connection, group: Sequence[Draft], answers: dict[int, AddResult | MemoryError]
    ) -> None:
        """Write down what came of the drafts that :meth:`take` gave."""
        rows, refused = [], []
        for draft in group:
            answer = answers[draft.position]
            if isinstance(answer, MemoryError):
                refused.append(draft.position)
                continue
            rows.append(
                {
                    "position": draft.position,
                    "document_id": answer.document_id,
                    "version_id": answer.version_id,
                    "version": answer.version,
                    "status": answer.status,
                    "chunks": answer.chunks,
                }
            )
        if rows:
            await conn.execute(self._queries["keep_answers"], {**self._parameters, "rows": json.dumps(rows)})
        if refused:
            await conn.execute(self._queries["give_back"], {**self._parameters, "positions": refused})

    async def _take(self, conn: Connection, positions: list[int]) -> set[int]:
        return {row["position"] for row in await self._fetch(conn, "take_positions", positions=positions)}

    async def _tags(self, conn: Connection, documents: list[str]) -> dict[str, tuple[str, ...]]:
        if not documents:
            return {}
        return {
            row["id"]: tuple(row["tags"])
            for row in await self._fetch(conn, "document_tags", documents=documents)
        }

    def _check(self, rows: list[Row]) -> None:
        if any(bytes(row["request_hash"]) != self._once.request for row in rows):
            raise IdempotencyKeyReusedError

    async def _fetch(self, conn: Connection, query: str, **parameters: Any) -> list[Row]:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries[query], {**self._parameters, **parameters})
        return await cursor.fetchall()


class IdempotencyService:
    """Forgets what has expired."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("idempotency")

    async def sweep(self) -> int:
        """Remove the expired keys of all tenants; how many. Twice at once does no harm."""
        expired = {"seconds": IDEMPOTENCY_SECONDS}
        async with self._database.operator() as conn:
            rows = await (await conn.execute(self._queries["expired_tenants"], expired)).fetchall()
        swept = 0
        for (tenant_id,) in rows:
            parameters = {**expired, "tenant": tenant_id, "limit": SWEPT}
            removed = SWEPT
            while removed == SWEPT:
                async with self._database.tenant(tenant_id) as conn:
                    removed = (await conn.execute(self._queries["sweep"], parameters)).rowcount
                swept += removed
        return swept


def _answer(row: Row, draft: Draft, tags: dict[str, tuple[str, ...]]) -> AddResult:
    return AddResult(
        document_id=row["document_id"],
        version_id=row["version_id"],
        version=row["version"],
        status=AddStatus(row["status"]),
        chunks=row["chunks"],
        share=None if draft.document.share is None else _receipt(row["document_id"], draft, tags),
    )


def _receipt(document_id: str, draft: Draft, tags: dict[str, tuple[str, ...]]) -> ShareReceipt:
    """What the document carries now. The first time may have died before its grants were written: they are written
    once more where the document is still open to them."""
    carried = tags.get(document_id, ())
    open_to_peers = document_tag(document_id) in carried
    return ShareReceipt(tags=carried, principals=tuple(draft.peers) if open_to_peers else ())
