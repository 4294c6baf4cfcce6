"""The verb ``add``: claim, compare, keep, supersede, insert, number. One transaction a batch.

What holds, however many processes write at once: the same content twice is a no-op; of racing different
contents one is active and the versions are 1..n; nothing of a refused document is kept; a batch that
fails as a whole is tried again one document at a time, so that one spoils no other.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncCursor
from psycopg.rows import TupleRow, dict_row

from corbits_memory.core import ids, limits
from corbits_memory.core.enums import AddStatus, AuditOutcome, EdgeEnd, EdgeRel, HintEnd, RetentionClass
from corbits_memory.core.erasure import ERASED, erased_reference
from corbits_memory.engine import drafts
from corbits_memory.engine.access import (
    foreign_sources,
    note_tags,
    resolve_visibility,
    retag,
    tags_refusal,
    visibility_parameters,
)
from corbits_memory.engine.audience import (
    Source,
    fits,
    narrow_to_lineage,
    narrow_to_sources,
    reserved_tags,
    settle_tags,
    widens,
)
from corbits_memory.engine.drafts import Draft, Row
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.lanes import split_lanes, split_transactions
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import (
    DatabaseError,
    ExternalRefInUseError,
    ForbiddenError,
    InvalidInputError,
    MemoryError,
    TooLargeError,
)
from corbits_memory.ports import Access, AddResult, NewDocument, ShareReceipt

logger = logging.getLogger("corbits_memory.capture")

NOTED_TAGS = 100_000
"""Tags that a process remembers to be in use, so that not every capture writes them down again."""
PLANNED_DOCUMENTS = 500
"""So many are planned while those before are written."""
_ROWS = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))
_ABOUT_A_ROW = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.ProgrammingError,
    psycopg.errors.ProgramLimitExceeded,
)
"""Errors that one document may have caused; all others concern the database itself."""


@dataclass(slots=True)
class Captured:
    """What a capture wrote: an answer a document, and the chunks that wait for vectors."""

    answers: list[AddResult | MemoryError]
    chunk_ids: list[str] = field(default_factory=list)
    retagged: bool = False
    """Other tags on known documents: some of their vectors may wait to be made anew."""


Planned = tuple[list[Draft], dict[int, AddResult | MemoryError]]
"""What can be written, and the errors of what can't, by position."""


class CaptureService:
    def __init__(self, database: Database, *, language: str, known_languages: frozenset[str]) -> None:
        self._database = database
        self._language = language
        self._known_languages = known_languages
        self._noted_tags: set[tuple[str, str]] = set()

    async def capture(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        documents: Sequence[NewDocument],
        now: datetime,
        lease_seconds: float,
        access: Access | None = None,
    ) -> Captured:
        """Write documents. ``lease_seconds`` is how long the caller itself will try to embed them."""
        answers: dict[int, AddResult | MemoryError] = {}
        chunk_ids: list[str] = []
        retagged = False
        async with aclosing(self._plan_ahead(documents, tenant_id, principal_id, now)) as parts:
            async for planned, refused in parts:
                answers.update(refused)
                written = await self._write_lanes(tenant_id, principal_id, access, planned, lease_seconds)
                answers.update(written)
                retagged = retagged or any(draft.retagged for draft in planned)
                chunk_ids.extend(
                    chunk_id
                    for draft in planned
                    if isinstance(answers[draft.position], AddResult)
                    for chunk_id in draft.chunk_ids
                )
        return Captured([answers[position] for position in range(len(documents))], chunk_ids, retagged)

    async def _plan_ahead(
        self, documents: Sequence[NewDocument], tenant_id: str, principal_id: str, now: datetime
    ) -> AsyncGenerator[Planned, None]:
        """The documents in order, some at a time: while these are written, the next are planned."""

        def begin(start: int) -> asyncio.Task[Planned]:
            # In a thread: a long document takes seconds to plan, and others want answers meanwhile.
            part = documents[start : start + PLANNED_DOCUMENTS]
            return asyncio.create_task(
                asyncio.to_thread(self._draft_all, part, start, tenant_id, principal_id, now)
            )

        planning = begin(0)
        try:
            for start in range(PLANNED_DOCUMENTS, len(documents), PLANNED_DOCUMENTS):
                planned = await planning
                planning = begin(start)
                yield planned
            yield await planning
        finally:
            planning.cancel()

    def _draft_all(
        self, documents: Sequence[NewDocument], start: int, tenant_id: str, principal_id: str, now: datetime
    ) -> Planned:
        planned: list[Draft] = []
        refused: dict[int, AddResult | MemoryError] = {}
        for position, document in enumerate(documents, start):
            try:
                planned.append(self._draft(document, position, tenant_id, principal_id, now))
            except MemoryError as error:
                refused[position] = error
        return planned, refused

    def _draft(
        self, document: NewDocument, position: int, tenant_id: str, principal_id: str, now: datetime
    ) -> Draft:
        if document.language is not None and document.language not in self._known_languages:
            raise InvalidInputError(
                "language is not a text search configuration of this database, like english, german or simple.",
                details={"field": "language"},
            )
        if (document.external_ref or "").startswith(ERASED):
            raise InvalidInputError(
                f"external_ref must not begin with {ERASED} (what is left of a forgotten document's own).",
                details={"field": "external_ref"},
            )
        draft = drafts.draft_document(
            document,
            position=position,
            tenant_id=tenant_id,
            principal_id=principal_id,
            language=self._language,
            now=now,
        )
        if len(document.parts) > limits.CHUNKS_PER_DOCUMENT:
            raise TooLargeError(f"A document may have at most {limits.CHUNKS_PER_DOCUMENT} chunks.")
        return draft

    async def _write_lanes(
        self,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        planned: list[Draft],
        lease_seconds: float,
    ) -> dict[int, AddResult | MemoryError]:
        async def write(lane: list[Draft]) -> dict[int, AddResult | MemoryError]:
            answers: dict[int, AddResult | MemoryError] = {}
            for group in split_transactions(lane):
                answers.update(await self._write_group(tenant_id, principal_id, access, group, lease_seconds))
            return answers

        # All are waited for, so that nothing is still being written when an error is reported.
        lanes = await asyncio.gather(*map(write, split_lanes(planned)), return_exceptions=True)
        answers: dict[int, AddResult | MemoryError] = {}
        for written in lanes:
            if isinstance(written, BaseException):
                raise written
            answers.update(written)
        return answers

    async def _write_group(
        self,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        group: list[Draft],
        lease_seconds: float,
    ) -> dict[int, AddResult | MemoryError]:
        try:
            return await self._write(tenant_id, principal_id, access, group, lease_seconds)
        except DatabaseError as error:
            if not isinstance(error.__cause__, _ABOUT_A_ROW):
                raise
            if len(group) == 1:
                logger.error("a document was refused by the database (SQLSTATE %s)", error.__cause__.sqlstate)
                return {group[0].position: error}
        answers: dict[int, AddResult | MemoryError] = {}
        for draft in group:
            answers.update(await self._write_group(tenant_id, principal_id, access, [draft], lease_seconds))
        return answers

    async def _write(
        self,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        group: list[Draft],
        lease_seconds: float,
    ) -> dict[int, AddResult | MemoryError]:
        async def write() -> dict[int, AddResult | MemoryError]:
            for draft in group:
                draft.chunk_ids = []
            async with self._database.tenant(tenant_id) as conn:
                writer = _Writer(conn, tenant_id, principal_id, access, lease_seconds, self._noted_tags)
                answers = await writer.write(group)
            self._note(tenant_id, writer.new_tags)
            return answers

        return await run_again(write)

    def _note(self, tenant_id: str, tags: set[str]) -> None:
        """Remember, once it is committed, that tags are in use; they stay so."""
        if len(self._noted_tags) + len(tags) > NOTED_TAGS:
            self._noted_tags.clear()
        self._noted_tags.update((tenant_id, tag) for tag in tags)


class _Writer:
    """The statements of one transaction."""

    def __init__(
        self,
        conn: Connection,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
        lease_seconds: float,
        noted_tags: Collection[tuple[str, str]],
    ) -> None:
        self._conn = conn
        self._queries = load_queries("capture")
        self._lease_seconds = lease_seconds
        self._tenant_id = tenant_id
        self._principal_id = principal_id
        self._access = access
        self._noted_tags = noted_tags
        self.new_tags: set[str] = set()
        self._generation = ""

    async def write(self, group: list[Draft]) -> dict[int, AddResult | MemoryError]:
        answers: dict[int, AddResult | MemoryError] = {}
        self._generation = await self._lock_tenant()
        group = await self._refuse_unknown_references(group, answers)
        claimed = await self._claim(group)
        owned = []
        for draft in group:
            row = claimed[draft.key]
            refusal = await self._refusal(draft, row)
            if refusal is not None:
                answers[draft.position] = refusal
                continue
            settle_tags(draft, row)
            owned.append((draft, row))
        await self._narrow_claims([(draft, row) for draft, row in owned if widens(draft, row)])
        await self._take_up([(draft, row) for draft, row in owned if "erased" in row])
        changed, retagged = await self._compare(owned, answers)
        if retagged:
            await retag(self._conn, self._tenant_id, retagged)
        acts = [(row["document_id"], AuditOutcome.DONE) for row in retagged]
        acts += [
            (claimed[draft.key]["id"], AuditOutcome.FORBIDDEN)
            for draft in group
            if isinstance(answers.get(draft.position), ForbiddenError)
        ]
        if acts:
            await self._run(
                "audit",
                events=[new_id(ids.AUDIT_EVENT) for _ in acts],
                documents=[document_id for document_id, _ in acts],
                outcomes=[str(outcome) for _, outcome in acts],
            )
        if changed:
            await self._insert(changed, fresh=sum(claimed[d.key]["fresh"] for d in changed))
        for draft in changed:
            answers[draft.position] = AddResult(
                document_id=draft.document_id,
                version_id=draft.version_id,
                version=draft.version,
                status=AddStatus.CREATED if claimed[draft.key]["fresh"] else AddStatus.UPDATED,
                chunks=len(draft.chunks),
                share=_receipt(draft),
            )
        return answers

    async def _lock_tenant(self) -> str:
        rows = await self._fetch("lock_tenant")
        if not rows:
            await self._run("create_tenant")
            rows = await self._fetch("lock_tenant")
        return str(rows[0]["live_generation"])

    async def _refuse_unknown_references(
        self, group: list[Draft], answers: dict[int, AddResult | MemoryError]
    ) -> list[Draft]:
        wanted = sorted({reference for draft in group for reference in draft.references})
        if not wanted and not any(reserved_tags(draft, self._principal_id) for draft in group):
            return group
        visibility = await resolve_visibility(self._conn, self._tenant_id, self._principal_id, self._access)
        rows = await self._fetch("citable_versions", ids=wanted, **visibility_parameters(visibility))
        sources = {row["id"]: Source(row["owner_principal_id"], frozenset(row["tags"])) for row in rows}
        kept = []
        for draft in group:
            unknown = sum(reference not in sources for reference in draft.references)
            if unknown:
                answers[draft.position] = InvalidInputError(
                    "derived_from, supports and contradicts must name versions that exist and that you may see.",
                    details={"unknown": unknown},
                )
            elif not narrow_to_sources(draft, sources, self._principal_id):
                answers[draft.position] = InvalidInputError(
                    "access_tags may hold reserved tags only as copies of what a derived_from version carries.",
                    details={"field": "access_tags"},
                )
            else:
                kept.append(draft)
        return kept

    async def _refusal(self, draft: Draft, row: Row) -> MemoryError | None:
        """Why this caller may not write to the document that the reference names."""
        if row["owner_principal_id"] == self._principal_id:
            return None
        if "erased" in row:
            # Taking up what was forgotten is its owner's decision.
            return ExternalRefInUseError()
        tags = (*row["access_tags"], *row["system_tags"])
        if self._access is None or not await self._access.reaches("add", tags):
            return ExternalRefInUseError()
        if draft.access_tags is not None or draft.system_tags is not None:
            return ForbiddenError(
                "only the document's creator may change its tags or share it; leave out access_tags and share"
            )
        if draft.document.thread != row["thread"]:
            return ForbiddenError(
                "only the document's creator may move it to another thread; add it with the thread that it has"
            )
        if not fits(draft, row):
            return ForbiddenError(
                "derived_from names a version that has fewer readers than this document; only the document's "
                "creator may narrow it"
            )
        return None

    async def _claim(self, group: list[Draft]) -> dict[tuple[str, str], Row]:
        if not group:
            return {}
        rows = [drafts.document_row(draft, self._principal_id, self._tenant_id) for draft in group]
        claimed = await self._fetch("claim_documents", rows=rows)
        found = {(row["adapter"], row["external_ref"]): row for row in claimed}
        named = [draft.key for draft in group if draft.document.external_ref and found[draft.key]["fresh"]]
        if named:
            found.update(await self._forgotten(named, found))
        return found

    async def _forgotten(
        self, keys: list[tuple[str, str]], claimed: dict[tuple[str, str], Row]
    ) -> dict[tuple[str, str], Row]:
        """Forgotten documents of these names, in the place of the rows that were made for them just now.

        Asked after the claim, with a snapshot of its own: whoever forgets one meanwhile holds the claim up.
        """
        erased = {erased_reference(self._tenant_id, *key): key for key in keys}
        rows = await self._fetch(
            "forgotten_documents", adapters=[key[0] for key in erased.values()], refs=list(erased)
        )
        if not rows:
            return {}
        found = {}
        for row in rows:
            key = erased[row["external_ref"]]
            found[key] = {**row, "fresh": False, "erased": True, "thread_seq": claimed[key]["thread_seq"]}
        await self._run("drop_claims", documents=[claimed[key]["id"] for key in found])
        return found

    async def _take_up(self, forgotten: list[tuple[Draft, Row]]) -> None:
        """Give forgotten documents their names back: they are added to anew."""
        if forgotten:
            rows = [
                {"id": row["id"], "external_ref": draft.external_ref, "thread_seq": row["thread_seq"]}
                for draft, row in forgotten
            ]
            await self._run("rename_documents", rows=rows)

    async def _narrow_claims(self, widened: list[tuple[Draft, Row]]) -> None:
        if not widened:
            return
        known = [draft.document_id for draft, _ in widened]
        foreign = await foreign_sources(self._conn, self._tenant_id, known)
        for draft, row in widened:
            narrow_to_lineage(draft, row, foreign.get(draft.document_id, ()))

    async def _compare(
        self, owned: list[tuple[Draft, Row]], answers: dict[int, AddResult | MemoryError]
    ) -> tuple[list[Draft], list[Row]]:
        """The drafts that need a version, and the rows whose tags alone changed."""
        known = [draft.document_id for draft, row in owned if not row["fresh"]]
        current: dict[str, Row] = {}
        if known:
            rows = await self._fetch("current_versions", documents=known, generation=self._generation)
            current = {row["document_id"]: row for row in rows}
        changed: list[Draft] = []
        retagged: list[Row] = []
        for draft, row in owned:
            version = current.get(draft.document_id, {})
            refusal = tags_refusal(draft.tags) or _settle_retention(draft, version, self._principal_id)
            if refusal is not None:
                answers[draft.position] = refusal
                continue
            if version.get("content_hash") != draft.content_hash:
                draft.version = (version.get("last_version") or 0) + 1
                draft.supersedes = version.get("active_id")
                draft.version_id = new_id(ids.VERSION)
                draft.chunk_ids = [new_id(ids.CHUNK) for _ in draft.chunks]
                changed.append(draft)
                continue
            same = draft.own_tags == row["access_tags"] and draft.shared_tags == row["system_tags"]
            if not same:
                draft.retagged = True
                retagged.append(
                    {
                        "document_id": draft.document_id,
                        "access_tags": draft.own_tags,
                        "system_tags": draft.shared_tags,
                    }
                )
            answers[draft.position] = AddResult(
                document_id=draft.document_id,
                version_id=version["active_id"],
                version=version["active_version"],
                status=AddStatus.UNCHANGED if same else AddStatus.UPDATED,
                chunks=0,
                share=_receipt(draft),
            )
        return changed, retagged

    async def _insert(self, changed: list[Draft], *, fresh: int) -> None:
        """All statements in one go: while the database works on one, the rows of the next are made."""
        superseding = [draft for draft in changed if draft.supersedes]
        chunk_ids = [chunk_id for draft in changed for chunk_id in draft.chunk_ids]
        dropped: AsyncCursor[TupleRow] | None = None
        async with self._conn.pipeline():
            # A statement of its own: a payload that raced is seen only by the next one's snapshot.
            payloads = [drafts.raw_capture(draft) for draft in changed]
            await self._run(
                "keep_raw_captures",
                ids=[new_id(ids.RAW_CAPTURE) for _ in changed],
                adapters=[draft.document.adapter for draft in changed],
                references=[draft.external_ref for draft in changed],
                instants=[drafts.iso(draft.occurred_at) for draft in changed],
                payloads=payloads,
                hashes=[draft.source_hash for draft in changed],
            )
            if superseding:
                documents = [draft.document_id for draft in superseding]
                await self._run("supersede_versions", versions=[draft.supersedes for draft in superseding])
                dropped = await self._run(
                    "drop_search_rows", documents=documents, generation=self._generation
                )
            versions = [drafts.version_row(draft) for draft in changed]
            again = [row for row, draft in zip(versions, changed, strict=True) if draft.version > 1]
            if again:
                await self._run("update_documents", rows=again)
            await self._run("insert_versions", rows=versions, generation=self._generation)
            if chunk_ids:
                # Written out once for the two statements that read it.
                chunks = _dump([row for draft in changed for row in drafts.chunk_rows(draft)])
                await self._run("insert_chunks", chunks=chunks)
                await self._run("insert_search_rows", chunks=chunks, generation=self._generation)
                owners = [draft.owner for draft in changed for _ in draft.chunk_ids]
                await self._run("enqueue_chunks", chunks=chunk_ids, owners=owners, lease=self._lease_seconds)
                await self._enqueue_followers(changed, chunk_ids)
            if dropped is None and not any(map(_has_graph, changed)):
                await self._note_tags(changed)
                await self._finish(changed, chunks=len(chunk_ids), fresh=fresh)
                return
        await self._insert_graph(changed)
        await self._note_tags(changed)
        await self._finish(changed, chunks=len(chunk_ids) - (dropped.rowcount if dropped else 0), fresh=fresh)

    async def _enqueue_followers(self, changed: list[Draft], chunk_ids: list[str]) -> None:
        spans: dict[str, tuple[datetime, datetime]] = {}
        for draft in changed:
            if draft.document.thread:
                earliest, latest = spans.get(draft.document.thread, (draft.occurred_at, draft.occurred_at))
                spans[draft.document.thread] = (
                    min(earliest, draft.occurred_at),
                    max(latest, draft.occurred_at),
                )
        if spans:
            await self._run(
                "enqueue_followers",
                threads=list(spans),
                earliest=[earliest for earliest, _ in spans.values()],
                latest=[latest for _, latest in spans.values()],
                chunks=chunk_ids,
                generation=self._generation,
            )

    async def _insert_graph(self, changed: list[Draft]) -> None:
        entities = await self._upsert_entities(changed)
        edges = [edge for draft in changed for edge in _edges(draft, entities)]
        if edges:
            await self._run("insert_edges", rows=edges)

    async def _upsert_entities(self, changed: list[Draft]) -> dict[tuple[str, str], str]:
        wanted: dict[tuple[str, str], str | None] = {}
        for draft in changed:
            for hint in draft.document.entity_hints:
                wanted[hint.kind, hint.identifier] = hint.label or wanted.get((hint.kind, hint.identifier))
            for edge in draft.document.edges:
                if edge.type is HintEnd.NATIVE:
                    wanted.setdefault(("principal", edge.ref), None)
        if not wanted:
            return {}
        rows = [
            {"id": new_id(ids.ENTITY), "kind": kind, "identifier": identifier, "label": label}
            for (kind, identifier), label in wanted.items()
        ]
        found = await self._fetch("upsert_entities", rows=rows)
        return {(row["kind"], row["identifier"]): row["id"] for row in found}

    async def _note_tags(self, changed: list[Draft]) -> None:
        tags = {tag for draft in changed for tag in draft.tags}
        self.new_tags = {tag for tag in tags if (self._tenant_id, tag) not in self._noted_tags}
        if self.new_tags:
            await note_tags(self._conn, self._tenant_id, self.new_tags)

    async def _finish(self, changed: list[Draft], *, chunks: int, fresh: int) -> None:
        await self._run(
            "finish",
            versions=[draft.version_id for draft in changed],
            events=[new_id(ids.AUDIT_EVENT) for _ in changed],
            targets=[draft.document_id for draft in changed],
            documents=fresh,
            chunks=chunks,
            languages=sorted({draft.language for draft in changed}),
        )

    async def _run(self, query: str, **parameters: Any) -> AsyncCursor[TupleRow]:
        return await self._conn.execute(self._queries[query], self._bind(parameters))

    async def _fetch(self, query: str, **parameters: Any) -> list[Row]:
        cursor = self._conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries[query], self._bind(parameters))
        return await cursor.fetchall()

    def _bind(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if "rows" in parameters:
            parameters["rows"] = _dump(parameters["rows"])
        return {"tenant": self._tenant_id, "principal": self._principal_id, **parameters}


def _settle_retention(draft: Draft, version: Row, principal_id: str) -> MemoryError | None:
    """Whoever may add to another's document keeps its class: a hold, or an end, is its creator's to set."""
    if draft.owner == principal_id:
        return None
    kept = RetentionClass(version.get("retention_class") or draft.retention_class)
    if draft.retention_class not in (RetentionClass.STANDARD, kept):
        return ForbiddenError("only the document's creator may change its retention class")
    draft.retention_class = kept
    return None


def _receipt(draft: Draft) -> ShareReceipt | None:
    """What became of the share on this side; grants are the plane's to write."""
    if draft.document.share is None and not draft.withheld:
        return None
    return ShareReceipt(tags=tuple(draft.tags), principals=tuple(draft.peers), withheld=tuple(draft.withheld))


def _dump(rows: list[Row]) -> str:
    return _ROWS.encode(rows)


def _has_graph(draft: Draft) -> bool:
    document = draft.document
    return bool(document.entity_hints or document.edges or draft.references)


def _edges(draft: Draft, entities: dict[tuple[str, str], str]) -> Iterator[Row]:
    document = draft.document
    for hint in document.entity_hints:
        yield _edge(
            EdgeRel.MENTIONS,
            EdgeEnd.DOCUMENT,
            draft.document_id,
            EdgeEnd.ENTITY,
            entities[hint.kind, hint.identifier],
        )
    for edge in document.edges:
        if edge.type is HintEnd.NATIVE:
            yield _edge(
                edge.rel, EdgeEnd.DOCUMENT, draft.document_id, EdgeEnd.ENTITY, entities["principal", edge.ref]
            )
        else:
            yield _edge(edge.rel, EdgeEnd.DOCUMENT, draft.document_id, EdgeEnd(edge.type), edge.ref)
    claims = {
        EdgeRel.DERIVED_FROM: document.derived_from,
        EdgeRel.SUPPORTS: document.supports,
        EdgeRel.CONTRADICTS: document.contradicts,
    }
    for rel, references in claims.items():
        for reference in references:
            yield _edge(rel, EdgeEnd.VERSION, draft.version_id, EdgeEnd.VERSION, reference)


def _edge(rel: EdgeRel, from_type: EdgeEnd, from_ref: str, to_type: EdgeEnd, to_ref: str) -> Row:
    return {
        "id": new_id(ids.EDGE),
        "rel": rel,
        "from_type": from_type,
        "from_ref": from_ref,
        "to_type": to_type,
        "to_ref": to_ref,
    }
