"""The verb ``feed``: what was written, in commit order."""

from collections.abc import Sequence
from dataclasses import replace

from psycopg.rows import dict_row

from corbits_memory.core.enums import CreatedByKind, FeedOp, LineageClass, VersionStatus
from corbits_memory.core.limits import FEED_TEXT_BYTES
from corbits_memory.engine.access import visibility_among
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.pool import READ_SECONDS, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import InvalidCursorError
from corbits_memory.ports import Access, FeedEntry, FeedPage, FeedQuery, FeedVersion, Visibility

SCANNED_EVENTS = 1_000
"""Events that one page looks at: where few of them are asked for, it ends early and says that there is more."""


class FeedService:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def name_readers(self, *, tenant_id: str, document_id: str, principals: Sequence[str]) -> None:
        parameters = {"tenant": tenant_id, "document": document_id, "principals": list(principals)}
        async with self._database.tenant(tenant_id) as conn:
            await conn.execute(load_queries("feed")["name_readers"], parameters)

    async def page(
        self, *, tenant_id: str, principal_id: str, query: FeedQuery, access: Access | None
    ) -> FeedPage:
        """The events after the cursor that the caller may see. Raises ``InvalidCursorError``."""
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            rows = await _page(conn, tenant_id, query)
            tags = {tag for row in rows for tag in row["tags"] or ()}
            visibility = await visibility_among(tags, principal_id, access)
            page = _read_page(rows, query, visibility)
            if query.include_text:
                page = await _with_texts(conn, tenant_id, page)
        return page


async def append_retractions(conn: Connection, tenant_id: str, version_ids: Sequence[str]) -> None:
    """Tell the feed that versions can't be read any more. Before their rows are deleted; the last step of a write."""
    await conn.execute(
        load_queries("feed")["append_retractions"], {"tenant": tenant_id, "versions": list(version_ids)}
    )


async def append_promotion(conn: Connection, tenant_id: str) -> None:
    """Tell the feed that another generation is live. The last step of a write."""
    await conn.execute(load_queries("feed")["append_promotion"], {"tenant": tenant_id})


async def _page(conn: Connection, tenant_id: str, query: FeedQuery) -> list[Row]:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(
        load_queries("feed")["page"],
        {
            "tenant": tenant_id,
            "after": query.after,
            "limit": query.limit,
            "until": _until(query),
            "ops": sorted(query.ops),
            "excluded": query.exclude_generator,
        },
    )
    return await cursor.fetchall()


def _until(query: FeedQuery) -> int:
    """The last number that a page looks at."""
    return query.after + max(SCANNED_EVENTS, query.limit + 1)


def _read_page(rows: list[Row], query: FeedQuery, visibility: Visibility) -> FeedPage:
    newest = rows[0]["newest"] if rows else 0
    if query.after > newest:
        raise InvalidCursorError
    if not rows:
        return FeedPage(entries=(), next_cursor=None, has_more=False, position=query.after)
    wanted = [row for row in rows if row["seq"] is not None]
    raw = wanted[: query.limit]
    if len(wanted) > query.limit:
        position, has_more = raw[-1]["seq"], True
    else:
        # Nothing that was asked for is left in what was looked at.
        position = min(_until(query), newest)
        has_more = position < newest
    last = raw[-1]["seq"] if raw else None
    return FeedPage(
        entries=tuple(_entry(row, visibility) for row in raw if _visible(row, visibility)),
        next_cursor=position if has_more else last,
        has_more=has_more,
        position=position,
    )


def _visible(row: Row, visibility: Visibility) -> bool:
    if row["op"] == FeedOp.PROMOTE:
        return True
    if row["op"] == FeedOp.RETRACT and visibility.principal_id in (row["peers"] or ()):
        return True
    return visibility.admits_version(
        active=row["status"] != VersionStatus.SUPERSEDED,
        written=row["version_tags"] or (),
        owner=row["owner"],
        tags=row["tags"],
        document_id=row["document_id"],
    )


def _entry(row: Row, visibility: Visibility) -> FeedEntry:
    op = FeedOp(row["op"])
    return FeedEntry(
        seq=row["seq"],
        op=op,
        at=row["at"],
        version_id=row["version_id"],
        document_id=row["document_id"],
        version=_version(row, visibility) if op is FeedOp.UPSERT else None,
    )


def _version(row: Row, visibility: Visibility) -> FeedVersion:
    tags: Sequence[str] = row["tags"]
    if row["status"] == VersionStatus.SUPERSEDED:
        tags = [tag for tag in tags if tag in row["version_tags"]]
    return FeedVersion(
        kind=row["kind"],
        title=row["title"],
        status=VersionStatus(row["status"]),
        created_by_kind=CreatedByKind(row["created_by_kind"]),
        generator_agent_id=row["generator_agent_id"],
        provenance=row["provenance"],
        source_class=LineageClass(row["source_class"]),
        occurred_at=row["occurred_at"],
        created_at=row["ingested_at"],
        access_tags=visibility.tells(owner=row["owner"], tags=tags),
    )


async def _with_texts(conn: Connection, tenant_id: str, page: FeedPage) -> FeedPage:
    """The page with texts; cut before the first that would go beyond the limit, unless that is the first at all."""
    versions = [entry.version_id for entry in page.entries if entry.version is not None]
    if not versions:
        return page
    rows = await conn.execute(
        load_queries("feed")["texts"], {"tenant": tenant_id, "versions": versions, "bytes": FEED_TEXT_BYTES}
    )
    texts: dict[str, tuple[str, bool]] = {row[0]: (row[1], row[2]) async for row in rows}
    kept: list[FeedEntry] = []
    for entry in page.entries:
        if entry.version is None:
            kept.append(entry)
            continue
        text, complete = texts.get(entry.version_id or "", ("", None))
        if complete is None:
            # Retracted since the page was read: its own entry is still to come.
            continue
        if not complete and any(before.version is not None for before in kept):
            return _cut(page, kept, before=entry.seq)
        version = replace(entry.version, text=text, text_truncated=not complete)
        kept.append(replace(entry, version=version))
    return replace(page, entries=tuple(kept))


def _cut(page: FeedPage, kept: list[FeedEntry], *, before: int) -> FeedPage:
    position = before - 1
    return FeedPage(entries=tuple(kept), next_cursor=position, has_more=True, position=position)
