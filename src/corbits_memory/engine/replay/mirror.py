"""Copies versions into a generation, derived anew by its settings, and keeps the copies as their originals are.

What a copy says comes from the stored payload, by the capture's own derivation; which number and status it has,
when it came in, and who may read it, from the version that it is a copy of and from its document as it is now.
However often this runs and whatever was interrupted, a generation has one copy of each version: the database
holds that.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from corbits_memory.core import ids
from corbits_memory.core.enums import VersionStatus
from corbits_memory.core.strategies import Cutting
from corbits_memory.engine import drafts as drafting
from corbits_memory.engine.drafts import Draft, Row
from corbits_memory.engine.erasure import hold_for_replay
from corbits_memory.engine.generations import Generation
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.retention import deprecate_rows
from corbits_memory.engine.statements import Statements, dump_rows
from corbits_memory.engine.texts import (
    enqueue_followers_of,
    insert_texts,
    insert_unsearched_texts,
)
from corbits_memory.errors import MemoryError
from corbits_memory.ports.transform import TransformScope
from corbits_memory.validation import stored_document

NO_VERSION = "no version was made from it"
LINKS_PAGE = 1_000


@dataclass(slots=True)
class Planned:
    """What payloads became, by raw capture: drafts, and why some can't be read."""

    drafts: dict[str, Draft] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Mirrored:
    """``problems`` are of captures that should have had a copy."""

    versions: int = 0
    problems: dict[str, str] = field(default_factory=dict)


def plan_payloads(rows: Sequence[Row], cutting: Cutting, *, tenant_id: str, now: datetime) -> Planned:
    """Drafts from rows of ``id, raw_text``. Takes seconds for a long document: call it in a thread."""
    planned = Planned()
    for row in rows:
        try:
            planned.drafts[row["id"]] = drafting.draft_document(
                stored_document(row["raw_text"]),
                position=0,
                tenant_id=tenant_id,
                principal_id="",
                language="",
                now=now,
                cutting=cutting,
            )
        except MemoryError as error:
            planned.problems[row["id"]] = error.message
    return planned


class Mirror:
    """The statements of one transaction, in which the tenant's row is held and ``live`` was read."""

    def __init__(
        self,
        conn: Connection,
        tenant_id: str,
        generation: Generation,
        scope: TransformScope,
        *,
        live: str,
        lease_seconds: float = 0.0,
    ) -> None:
        """``lease_seconds``: how long the caller itself has first go at the vectors."""
        self._conn = conn
        self._scope = scope
        self._lease_seconds = lease_seconds
        self._tenant_id = tenant_id
        self._generation = generation
        self._statements = Statements(
            conn, tenant_id, "replay", generation=generation.id, live=live, principal=None
        )
        self._capture = Statements(conn, tenant_id, "capture", principal=None)

    async def copy_captures(self, capture_ids: Sequence[str], planned: Planned) -> Mirrored:
        """Copies of what was made from raw captures, all of which were planned."""
        kept = await hold_for_replay(self._conn, self._tenant_id, capture_ids)
        found = await self._statements.fetch("sources_of_captures", captures=kept)
        await self._lock(sorted({row["document_id"] for row in found}), found)
        # Read anew, by a statement of its own: it sees what was committed while the locks were waited for.
        sources = await self._statements.fetch("sources_of_captures", captures=kept)
        mirrored = await self._copy(sources, planned, every_status=False)
        for row in await self._statements.fetch("captures_without_version", captures=kept):
            mirrored.problems[row["id"]] = planned.problems.get(row["id"], NO_VERSION)
        return mirrored

    async def copy_documents(self, documents: Sequence[str], planned: Planned, now: datetime) -> Mirrored:
        """Documents as they are in the live generation. What was not planned is planned here."""
        found = await self._missing(documents)
        await hold_for_replay(self._conn, self._tenant_id, [row["raw_capture_id"] for row in found])
        await self._lock(sorted(documents), found)
        sources = await self._missing(documents)
        captures = sorted({row["raw_capture_id"] for row in sources})
        kept = set(await hold_for_replay(self._conn, self._tenant_id, captures))
        sources = [row for row in sources if row["raw_capture_id"] in kept]
        await self._plan(planned, sorted(kept), now)
        mirrored = await self._copy(sources, planned, every_status=True, documents=documents)
        after: str | None = ""
        while after is not None:
            after = await link(self._statements, self._capture, documents=documents, after=after)
        return mirrored

    async def _missing(self, documents: Sequence[str]) -> list[Row]:
        """Live versions in scope that have no copy."""
        found = await self._statements.fetch("sources_of_documents", documents=list(documents))
        return [row for row in found if in_scope(row, self._scope)]

    async def _plan(self, planned: Planned, captures: Sequence[str], now: datetime) -> None:
        missing = [one for one in captures if one not in planned.drafts and one not in planned.problems]
        if missing:
            payloads = await self._statements.fetch("payloads", captures=missing)
            more = await asyncio.to_thread(
                plan_payloads, payloads, self._generation.cutting, tenant_id=self._tenant_id, now=now
            )
            planned.drafts.update(more.drafts)
            planned.problems.update(more.problems)

    async def _lock(self, documents: list[str], sources: list[Row]) -> None:
        """Neither the documents nor the versions change before this ends. As captures lock them."""
        await self._statements.run("lock_documents", documents=documents)
        await self._statements.run("lock_sources", versions=[row["id"] for row in sources])

    async def _copy(
        self,
        sources: list[Row],
        planned: Planned,
        *,
        every_status: bool,
        documents: Sequence[str] | None = None,
    ) -> Mirrored:
        mirrored = Mirrored()
        touched = sorted({row["document_id"] for row in sources}.union(documents or ()))
        await self._align(touched, every_status=every_status)
        wanted = [row for row in sources if row["copy_id"] is None]
        if not wanted:
            return mirrored
        places = _Places(
            await self._statements.fetch(
                "places",
                documents=touched,
                wanted_documents=[row["document_id"] for row in wanted],
                wanted_numbers=[row["version"] for row in wanted],
            )
        )
        copies = []
        for source in wanted:
            capture = source["raw_capture_id"]
            draft = planned.drafts.get(capture)
            if draft is not None:
                copies.append((source, _copy_of(source, draft, places)))
            elif capture in planned.problems:
                mirrored.problems[capture] = planned.problems[capture]
        await self._insert(copies)
        mirrored.versions = len(copies)
        return mirrored

    async def _align(self, documents: list[str], *, every_status: bool) -> None:
        """Copies of what was superseded, deprecated or held since; before the next becomes the active one."""
        aligned = await self._statements.fetch("align_copies", documents=documents, every_status=every_status)
        gone = [row["id"] for row in aligned if row["status"] == VersionStatus.SUPERSEDED]
        if gone:
            await self._statements.run("drop_rows_of", versions=gone)
        deprecated = [row for row in aligned if row["status"] == VersionStatus.DEPRECATED]
        if deprecated:
            await deprecate_rows(self._conn, self._tenant_id, documents, [row["id"] for row in deprecated])

    async def _insert(self, copies: list[tuple[Row, Draft]]) -> None:
        made = {source["id"]: draft.version_id for source, draft in copies}
        rows = [_version_row(source, draft, made) for source, draft in copies]
        await self._statements.run("insert_copies", rows=rows)
        searched = [draft for source, draft in copies if source["searched"]]
        await insert_texts(
            self._capture,
            searched,
            dump_rows([row for row, (source, _) in zip(rows, copies, strict=True) if source["searched"]]),
            generation=self._generation.id,
            lease_seconds=self._lease_seconds,
        )
        await enqueue_followers_of(self._capture, searched, generation=self._generation.id)
        await insert_unsearched_texts(
            self._capture, [draft for source, draft in copies if not source["searched"]]
        )


class _Places:
    """Which number and status a copy gets among those that its document has in the generation already."""

    def __init__(self, rows: list[Row]) -> None:
        self._last = {row["document_id"]: row["last"] for row in rows}
        self._taken = {(row["document_id"], number) for row in rows for number in row["taken"]}
        self._active = {row["document_id"] for row in rows if row["active"]}
        self._live = {row["document_id"] for row in rows if row["live_active"]}

    def number(self, source: Row) -> int:
        """The original's, so that people know it again; the next one where another copy has it."""
        document, number = source["document_id"], int(source["version"])
        if (document, number) in self._taken or not source["live"]:
            number = max(self._last[document], number if source["live"] else 0) + 1
        self._taken.add((document, number))
        self._last[document] = max(self._last[document], number)
        return number

    def status(self, source: Row) -> str:
        """The original's. What is not live itself is active only where nothing else is."""
        status, document = str(source["status"]), source["document_id"]
        if status != VersionStatus.ACTIVE:
            return status
        if document in self._active or (not source["live"] and document in self._live):
            return VersionStatus.SUPERSEDED
        self._active.add(document)
        return status


def _copy_of(source: Row, draft: Draft, places: _Places) -> Draft:
    status = places.status(source)
    source["copy_status"] = status
    source["searched"] = status == VersionStatus.ACTIVE or (
        status == VersionStatus.DEPRECATED and source["searched"]
    )
    return replace(
        draft,
        document_id=source["document_id"],
        version_id=new_id(ids.VERSION),
        version=places.number(source),
        language=source["language"],
        content_hash=source["content_hash"],
        owner=source["owner_principal_id"],
        thread_seq=source["thread_seq"],
        chunk_ids=[new_id(ids.CHUNK) for _ in draft.chunks],
        own_tags=list(source["access_tags"]),
        searched_tags=list(source["tags"]),
    )


def _version_row(source: Row, draft: Draft, made: Mapping[str, str]) -> Row:
    return {
        **drafting.version_row(draft),
        "source": source["id"],
        "origin": source["origin"],
        # One that was copied before is looked up.
        "supersedes": made.get(source["supersedes_version_id"]),
        "status": source["copy_status"],
    }


def in_scope(row: Row, scope: TransformScope) -> bool:
    """Whether a version is one that a run reads; ``captures_in_scope`` asks the database the same."""
    return (
        scope.adapter in (None, row["adapter"])
        and (scope.since is None or row["fetched_at"] >= scope.since)
        and (scope.until is None or row["fetched_at"] <= scope.until)
        and (not scope.kinds or row["document_kind"] in scope.kinds)
        and (not scope.document_ids or row["document_id"] in scope.document_ids)
    )


async def link(
    statements: Statements, capture: Statements, *, documents: Sequence[str] | None = None, after: str = ""
) -> str | None:
    """Have copies say of each other what their originals say: of some documents, or a page of all.

    Returns where the next page begins; None: there is none.
    """
    page = {"after": after, "limit": LINKS_PAGE}
    if documents is None:
        edges = await statements.fetch("edges_to_link", **page)
    else:
        edges = await statements.fetch("edges_of_documents", documents=list(documents), **page)
    rows = [
        {
            "id": new_id(ids.EDGE),
            "rel": row["rel"],
            "from_type": "version",
            "from_ref": row["from_copy"],
            "to_type": "version",
            "to_ref": row["to_copy"],
        }
        for row in edges
        if row["from_copy"] is not None and row["to_copy"] is not None
    ]
    if rows:
        await capture.run("insert_edges", rows=rows)
    return edges[-1]["place"] if len(edges) == LINKS_PAGE else None
