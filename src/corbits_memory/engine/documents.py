"""Documents by id: the document, its history, a version with its text. Unknown and invisible are the same."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.core.enums import VersionStatus
from corbits_memory.core.limits import LOOKUP_TEXT_BYTES
from corbits_memory.engine.access import resolve_visibility, visibility_among, visibility_parameters
from corbits_memory.engine.pool import READ_SECONDS, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import NotFoundError
from corbits_memory.ports import (
    Access,
    DocumentDetail,
    HistoryEntry,
    HistoryPage,
    LookupPage,
    LookupQuery,
    VersionDetail,
    VersionFacts,
    VersionText,
    Visibility,
)

Row = dict[str, Any]

_FACTS = (
    "version_id", "version", "status", "title", "kind", "thread", "author", "language", "occurred_at", "ingested_at",
    "valid_from", "valid_until", "created_by_principal_id", "created_by_kind", "generator_agent_id", "provenance",
    "source_class", "temporal_class", "retention_class",
)  # fmt: skip
_COMPARED = (
    "title", "text", "kind", "attributes", "access_tags", "thread", "author", "language", "occurred_at", "valid_from",
    "valid_until", "provenance", "source_class", "temporal_class", "retention_class", "generator_agent_id",
)  # fmt: skip
_NO_DOCUMENT, _NO_VERSION = "document not found", "version not found"


class DocumentService:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("documents")

    async def document(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None
    ) -> DocumentDetail:
        """Raises ``NotFoundError``, also for what the caller may not see."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            row, visibility = await self._visible_document(conn, tenant_id, principal_id, document_id, access)
        return DocumentDetail(
            document_id=row["document_id"],
            adapter=row["adapter"],
            external_ref=row["external_ref"],
            owner=row["owner_principal_id"],
            access_tags=visibility.tells(owner=row["owner_principal_id"], tags=row["tags"]),
            created_at=row["created_at"],
            last_seen_at=row["last_seen_at"],
            current=_facts(row),
        )

    async def lookup(
        self, *, tenant_id: str, principal_id: str, query: LookupQuery, access: Access | None
    ) -> LookupPage:
        """A page of a source's documents."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            rows = await self._fetch(
                conn,
                "lookup",
                tenant=tenant_id,
                adapter=query.adapter,
                refs=list(query.external_refs) or None,
                low=query.prefix,
                high=_behind(query.prefix),
                after=query.after,
                limit=query.limit,
                **visibility_parameters(visibility),
            )
            kept = _that_fit(rows[: query.limit]) if query.include_text else rows[: query.limit]
            captures = [row["raw_capture_id"] for row in kept] if query.include_text else []
            raw = (
                await self._fetch(conn, "raw_texts", tenant=tenant_id, captures=captures) if captures else []
            )
        # In a thread: to read ten megabytes of JSON takes a while.
        texts = await asyncio.to_thread(lambda: {row["id"]: _text_of(row["raw_text"]) for row in raw})
        details = tuple(
            DocumentDetail(
                document_id=row["document_id"],
                adapter=row["adapter"],
                external_ref=row["external_ref"],
                owner=row["owner_principal_id"],
                access_tags=visibility.tells(owner=row["owner_principal_id"], tags=row["tags"]),
                created_at=row["created_at"],
                last_seen_at=row["last_seen_at"],
                current=_facts(row),
                text=texts.get(row["raw_capture_id"]),
            )
            for row in kept
        )
        more = len(rows) > len(kept)
        return LookupPage(documents=details, next_after=kept[-1]["external_ref"] if more else None)

    async def history(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        limit: int,
        before: int | None,
        access: Access | None,
    ) -> HistoryPage:
        """Versions newest first, below the number ``before``. Raises ``NotFoundError``."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            document, visibility = await self._visible_document(
                conn, tenant_id, principal_id, document_id, access
            )
            # One more than asked for: the last of the page is compared with the one before it.
            rows = await self._fetch(
                conn,
                "history",
                tenant=tenant_id,
                document=document_id,
                before=before if before is not None else 2**31 - 1,
                limit=limit + 1,
            )
        entries = [
            _entry(row, previous)
            for row, previous in zip(rows[:limit], [*rows[1:], None], strict=False)
            if _shows(visibility, document, row)
        ]
        more = len(rows) > limit
        return HistoryPage(
            document_id=document_id,
            entries=tuple(entries),
            next_before=rows[limit - 1]["version"] if more else None,
        )

    async def version(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        limit: int,
        after: int | None,
        access: Access | None,
    ) -> VersionDetail:
        """A version with a page of its text. Raises ``NotFoundError``, also for what the caller may not see."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            found = await self._fetch(conn, "version", tenant=tenant_id, version=version_id)
            sources = await self._fetch(conn, "sources", tenant=tenant_id, version=version_id)
            # One judgement of all that could be told.
            tags = {tag for row in (*found, *sources) for tag in row["tags"]}
            visibility = await visibility_among(tags, principal_id, access)
            if not found or not _admits(visibility, found[0]):
                raise NotFoundError(_NO_VERSION)
            (row,) = found
            chunks = await self._fetch(
                conn,
                "chunks",
                tenant=tenant_id,
                version=version_id,
                after=-1 if after is None else after,
                limit=limit + 1,
            )
            sources = [source for source in sources if _admits(visibility, source)]
        page = chunks[:limit]
        return VersionDetail(
            document_id=row["document_id"],
            adapter=row["adapter"],
            external_ref=row["external_ref"],
            owner=row["owner_principal_id"],
            facts=_facts(row),
            superseded_at=row["superseded_at"],
            deprecated_at=row["deprecated_at"],
            deprecated_reason=row["deprecated_reason"],
            supersedes_version_id=row["supersedes_version_id"],
            text=tuple(VersionText(**chunk) for chunk in page),
            next_after=page[-1]["ordinal"] if len(chunks) > limit else None,
            derived_from=_targets(sources, "derived_from"),
            supports=_targets(sources, "supports"),
            contradicts=_targets(sources, "contradicts"),
        )

    async def _visible_document(
        self,
        conn: Connection,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        access: Access | None,
    ) -> tuple[Row, Visibility]:
        found = await self._fetch(conn, "document", tenant=tenant_id, document=document_id)
        if found:
            (row,) = found
            visibility = await visibility_among(row["tags"], principal_id, access)
            if _admits(visibility, row):
                return row, visibility
        raise NotFoundError(_NO_DOCUMENT)

    async def _fetch(self, conn: Connection, query: str, **parameters: Any) -> list[Row]:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries[query], parameters)
        return await cursor.fetchall()


def _behind(prefix: str) -> str | None:
    """The first text, in byte order, behind all that begin so; None: there is none."""
    kept = prefix.rstrip(chr(sys.maxunicode))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # Surrogates are no characters of UTF-8.
    return kept[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)


def _that_fit(rows: Sequence[Row]) -> Sequence[Row]:
    """As many as one page has room for with their texts, at least one."""
    total = 0
    for place, row in enumerate(rows):
        total += row["bytes"] or 0
        if total > LOOKUP_TEXT_BYTES and place:
            return rows[:place]
    return rows


def _text_of(raw_text: str | None) -> str | None:
    """The text of a captured payload, its parts put together; None for what was erased."""
    if not raw_text:
        return None
    return "".join(part["text"] for part in json.loads(raw_text)["document"]["chunks"])


def _admits(visibility: Visibility, row: Mapping[str, Any]) -> bool:
    return visibility.admits_version(
        active=row["status"] == VersionStatus.ACTIVE,
        written=row["access_tags"],
        owner=row["owner_principal_id"],
        tags=row["tags"],
        document_id=row["document_id"],
    )


def _shows(visibility: Visibility, document: Row, version: Row) -> bool:
    """Its owner is shown that there was a version even when that is forgotten."""
    if document["owner_principal_id"] == visibility.principal_id:
        return True
    named = {name: document[name] for name in ("document_id", "owner_principal_id", "tags")}
    return version["status"] != VersionStatus.TOMBSTONED and _admits(visibility, {**version, **named})


def _facts(row: Mapping[str, Any]) -> VersionFacts:
    return VersionFacts(attributes=dict(row["attributes"] or {}), **{name: row[name] for name in _FACTS})


def _entry(row: Row, previous: Row | None) -> HistoryEntry:
    changed: tuple[str, ...] = ()
    if previous is not None:
        changed = tuple(name for name in _COMPARED if row[name] != previous[name])
    return HistoryEntry(
        facts=_facts(row),
        superseded_at=row["superseded_at"],
        deprecated_at=row["deprecated_at"],
        deprecated_reason=row["deprecated_reason"],
        changed=changed,
    )


def _targets(rows: Sequence[Row], rel: str) -> tuple[str, ...]:
    return tuple(row["to_ref"] for row in rows if row["rel"] == rel)
