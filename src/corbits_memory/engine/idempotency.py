"""Adds that may be sent again: under one key, one request has one answer.

What holds, however many send it at once and wherever one dies: a document's place in a request is taken by one
transaction, which also writes the document and its answer; who comes second waits for it and is given that answer,
or, when it came to nothing, its place. Another request under the same key is refused. Refused documents leave no
trace: to ask again for them is to ask anew. What a key brings back are ids, which outlive a forgotten document as its
empty rows do.
"""

from collections.abc import Sequence

from corbits_memory.access.tags import document_tag
from corbits_memory.core.enums import AddStatus
from corbits_memory.core.limits import IDEMPOTENCY_SECONDS
from corbits_memory.engine.drafts import Draft, Row
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.statements import Statements
from corbits_memory.errors import IdempotencyKeyReusedError, MemoryError
from corbits_memory.ports import AddResult, Once, ShareReceipt

WHOLE = -1
"""The place of a request of several documents as a whole."""
SWEPT = 5_000
"""Keys that one statement of the sweep removes."""


class OnceOnly:
    """One principal's request, in whatever transaction is handed in."""

    def __init__(self, tenant_id: str, principal_id: str, once: Once) -> None:
        self._tenant_id = tenant_id
        self._principal_id = principal_id
        self._once = once

    async def begin(self, conn: Connection) -> None:
        """Enter a request of several documents, whose own transactions follow. Raises as :meth:`take` does."""
        statements = self._statements(conn)
        await statements.run("take_positions", positions=[WHOLE])
        self._check(await statements.fetch("answers", positions=None))

    async def take(
        self, conn: Connection, group: list[Draft], answers: dict[int, AddResult | MemoryError]
    ) -> list[Draft]:
        """The drafts that are still to be written; the ``answers`` of the others are put in.

        Waits for a transaction that has taken one of these places. Raises ``IdempotencyKeyReusedError``.
        """
        statements = self._statements(conn)
        rows = await statements.fetch("take_positions", positions=[draft.position for draft in group])
        taken = {row["position"] for row in rows}
        known = [draft for draft in group if draft.position not in taken]
        if known:
            rows = await statements.fetch("answers", positions=[draft.position for draft in known])
            self._check(rows)
            given = {row["position"]: row for row in rows}
            shared = [
                given[draft.position]["document_id"] for draft in known if draft.document.share is not None
            ]
            rows = await statements.fetch("document_tags", documents=shared) if shared else []
            tags = {row["id"]: tuple(row["tags"]) for row in rows}
            for draft in known:
                answers[draft.position] = _answer(given[draft.position], draft, tags)
        return [draft for draft in group if draft.position in taken]

    async def keep(
        self, conn: Connection, group: Sequence[Draft], answers: dict[int, AddResult | MemoryError]
    ) -> None:
        """Write down what came of the drafts that :meth:`take` gave."""
        statements = self._statements(conn)
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
            await statements.run("keep_answers", rows=rows)
        if refused:
            await statements.run("give_back", positions=refused)

    def _statements(self, conn: Connection) -> Statements:
        return Statements(
            conn,
            self._tenant_id,
            "idempotency",
            principal=self._principal_id,
            key=self._once.key,
            request=self._once.request,
            seconds=IDEMPOTENCY_SECONDS,
        )

    def _check(self, rows: list[Row]) -> None:
        if any(bytes(row["request_hash"]) != self._once.request for row in rows):
            raise IdempotencyKeyReusedError


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
