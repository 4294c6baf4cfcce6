"""Retention classes, deprecation, the sweep. Each leaves an audit event.

A refusal is kept in the audit too: so it is raised after its transaction was committed.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from psycopg.rows import dict_row

from corbits_memory.core.enums import (
    AuditAction,
    AuditOutcome,
    AuditTarget,
    DeprecatedReason,
    RetentionClass,
    VersionStatus,
)
from corbits_memory.core.erasure import EPHEMERAL_AGE, SOURCE_ONLY_AGE
from corbits_memory.engine import audit
from corbits_memory.engine.access import visibility_among
from corbits_memory.engine.erasure import Row, told_by_feed
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import registered_spaces
from corbits_memory.errors import ConflictError, ForbiddenError, MemoryError, NotFoundError
from corbits_memory.ports import Access, SweepResult, VersionState

logger = logging.getLogger("corbits_memory.retention")

SWEEP_VERSIONS = 1_000
"""Versions that one transaction of the sweep deprecates at most."""


class RetentionService:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("retention")

    async def set_class(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        retention_class: RetentionClass,
        access: Access | None,
    ) -> VersionState:
        """Raises ``NotFoundError``, and ``ForbiddenError`` unless the caller owns the version's document."""
        changed = await run_again(
            lambda: self._set_class(tenant_id, principal_id, version_id, retention_class, access)
        )
        if isinstance(changed, MemoryError):
            raise changed
        return changed

    async def deprecate(
        self, *, tenant_id: str, actor_id: str, version_id: str, reason: DeprecatedReason
    ) -> VersionState:
        """Take a version out of use. Raises ``NotFoundError`` and ``ConflictError``."""
        return await run_again(lambda: self._deprecate_one(tenant_id, actor_id, version_id, reason))

    async def sweep(self, *, tenant_id: str, actor_id: str, now: datetime) -> SweepResult:
        """Deprecate what has expired at ``now``, a thousand versions a transaction.

        What another transaction holds just then is left to the next sweep.
        """
        total = 0
        ages = {
            RetentionClass.EPHEMERAL: EPHEMERAL_AGE,
            RetentionClass.SOURCE_ONLY: SOURCE_ONLY_AGE,
        }
        for retention_class, age in ages.items():
            after: str | None = ""
            while after is not None:
                parameters = {
                    "class": retention_class,
                    "now": now,
                    "before": _earlier(now, age),
                    "after": after,
                    "limit": SWEEP_VERSIONS,
                }
                swept = await run_again(partial(self._sweep_batch, tenant_id, actor_id, parameters))
                total += len(swept)
                after = swept[-1] if len(swept) == SWEEP_VERSIONS else None
        if not total:
            async with self._database.tenant(tenant_id) as conn:
                await _record_sweep(conn, tenant_id, actor_id, 0)
        logger.info("a sweep deprecated %d versions", total)
        return SweepResult(versions_deprecated=total)

    # --- one transaction each ---

    async def _set_class(
        self,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        retention_class: RetentionClass,
        access: Access | None,
    ) -> VersionState | MemoryError:
        async with self._database.tenant(tenant_id) as conn:
            version = await self._version(conn, tenant_id, version_id)

            async def note(outcome: AuditOutcome) -> None:
                await audit.record(
                    conn,
                    tenant_id,
                    actor_id=principal_id,
                    action=AuditAction.RETENTION_CLASS,
                    target_type=AuditTarget.VERSION,
                    target_id=version_id,
                    outcome=outcome,
                )

            if version["owner_principal_id"] != principal_id:
                visibility = await visibility_among(version["tags"], principal_id, access)
                if not visibility.admits_version(
                    active=version["status"] == VersionStatus.ACTIVE,
                    written=version["access_tags"],
                    owner=version["owner_principal_id"],
                    tags=version["tags"],
                    document_id=version["document_id"],
                ):
                    raise NotFoundError("version not found")
                await note(AuditOutcome.FORBIDDEN)
                return ForbiddenError("only the version's creator may change its retention class")
            parameters = {
                "tenant": tenant_id,
                "version": version_id,
                "document": version["document_id"],
                "generation": version["generation"],
                "capture": version["raw_capture_id"],
                "class": retention_class,
            }
            await conn.execute(self._queries["set_class"], parameters)
            same = version["retention_class"] == retention_class
            await note(AuditOutcome.UNCHANGED if same else AuditOutcome.DONE)
        return _state(version, version["status"], retention_class)

    async def _deprecate_one(
        self, tenant_id: str, actor_id: str, version_id: str, reason: DeprecatedReason
    ) -> VersionState:
        async with self._database.tenant(tenant_id) as conn:
            live = await _live_generation(conn, tenant_id)
            named = {"tenant": tenant_id, "version": version_id}
            await conn.execute(self._queries["lock_document_of"], named)
            version = await self._version(conn, tenant_id, version_id)
            if version["status"] not in (VersionStatus.ACTIVE, VersionStatus.SUPERSEDED):
                raise ConflictError(
                    f"the version is {version['status']}; only an active or superseded one can be deprecated"
                )
            await self._deprecate(conn, tenant_id, live, [version], [reason])
            await audit.record(
                conn,
                tenant_id,
                actor_id=actor_id,
                action=AuditAction.DEPRECATE,
                target_type=AuditTarget.VERSION,
                target_id=version_id,
            )
            await _retract(conn, tenant_id, live, [version])
        return _state(version, VersionStatus.DEPRECATED, RetentionClass(version["retention_class"]))

    async def _sweep_batch(self, tenant_id: str, actor_id: str, parameters: dict[str, Any]) -> list[str]:
        async with self._database.tenant(tenant_id) as conn:
            live = await _live_generation(conn, tenant_id)
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(self._queries["expired"], {"tenant": tenant_id, **parameters})
            expired = [{**row, "status": VersionStatus.ACTIVE} for row in await cursor.fetchall()]
            if not expired:
                return []
            ephemeral = parameters["class"] == RetentionClass.EPHEMERAL
            reason = DeprecatedReason.EPHEMERAL_TTL if ephemeral else DeprecatedReason.SOURCE_UNSEEN
            await self._deprecate(conn, tenant_id, live, expired, [reason] * len(expired))
            await _record_sweep(conn, tenant_id, actor_id, len(expired))
            await _retract(conn, tenant_id, live, expired)
        return [row["id"] for row in expired]

    async def _version(self, conn: Connection, tenant_id: str, version_id: str) -> Row:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries["find_version"], {"tenant": tenant_id, "version": version_id})
        version = await cursor.fetchone()
        if version is None:
            raise NotFoundError("version not found")
        return version

    async def _deprecate(
        self,
        conn: Connection,
        tenant_id: str,
        live: str,
        versions: Sequence[Row],
        reasons: Sequence[DeprecatedReason],
    ) -> None:
        named = [row["id"] for row in versions]
        await conn.execute(
            self._queries["deprecate"], {"tenant": tenant_id, "versions": named, "reasons": list(reasons)}
        )
        await deprecate_rows(conn, tenant_id, sorted({row["document_id"] for row in versions}), named)


async def deprecate_rows(
    conn: Connection, tenant_id: str, documents: Sequence[str], versions: Sequence[str]
) -> None:
    """Versions that are deprecated, of documents that this transaction has locked, are found on request only."""
    queries = load_queries("retention")
    parameters = {"tenant": tenant_id, "documents": list(documents), "versions": list(versions)}
    rows = await conn.execute(queries["deprecate_rows"], parameters)
    chunks = [row[0] for row in await rows.fetchall()]
    if not chunks:
        return
    for space in await registered_spaces(conn, tenant_id):
        await conn.execute(
            space.compose(queries["deprecate_vectors"]), {"tenant": tenant_id, "chunks": chunks}
        )


async def _live_generation(conn: Connection, tenant_id: str) -> str:
    """The live generation, held; '' for a tenant that has nothing yet."""
    row = await (await conn.execute(load_queries("capture")["lock_tenant"], {"tenant": tenant_id})).fetchone()
    return "" if row is None else str(row[0])


async def _retract(conn: Connection, tenant_id: str, live: str, versions: Sequence[Row]) -> None:
    """The last step: the feed hears of versions that left it."""
    left = [row["id"] for row in versions if told_by_feed(row, live)]
    parameters = {
        "tenant": tenant_id,
        "retracted": left,
        "document": None,
        "owner": None,
        "tags": None,
        "documents": 0,
        "rows": 0,
        "recount": False,
    }
    await conn.execute(load_queries("erasure")["finish"], parameters)


async def _record_sweep(conn: Connection, tenant_id: str, actor_id: str, amount: int) -> None:
    await audit.record(
        conn,
        tenant_id,
        actor_id=actor_id,
        action=AuditAction.SWEEP,
        target_type=AuditTarget.TENANT,
        target_id=tenant_id,
        outcome=AuditOutcome.DONE if amount else AuditOutcome.UNCHANGED,
        amount=amount,
    )


def _state(version: Row, status: str, retention_class: RetentionClass) -> VersionState:
    return VersionState(
        version_id=version["id"],
        document_id=version["document_id"],
        status=status,
        retention_class=retention_class,
    )


def _earlier(now: datetime, age: Any) -> datetime:
    """``now - age``, or the first instant there is."""
    try:
        moment: datetime = now - age
    except OverflowError:
        return datetime.min.replace(tzinfo=now.tzinfo)
    return moment
