"""The verbs of retention: forget, purge, retention classes, deprecation, the sweep. Each leaves an audit event.

A refusal is kept in the audit too: so it is raised after its transaction was committed.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from psycopg.rows import class_row, dict_row

from corbits_memory.core.enums import (
    AuditAction,
    AuditOutcome,
    AuditTarget,
    DeprecatedReason,
    RetentionClass,
    VersionStatus,
)
from corbits_memory.core.erasure import EPHEMERAL_AGE, SOURCE_ONLY_AGE
from corbits_memory.core.limits import DERIVED_LISTED
from corbits_memory.engine import audit
from corbits_memory.engine.access import resolve_visibility, visibility_among
from corbits_memory.engine.erasure import (
    Erasable,
    Eraser,
    Row,
    derived_documents,
    lock_erasable,
    told_by_feed,
)
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.vectors import registered_spaces
from corbits_memory.errors import (
    ConflictError,
    DurableDocumentError,
    ForbiddenError,
    MemoryError,
    NotFoundError,
)
from corbits_memory.ports import (
    Access,
    DerivedDocument,
    ForgetResult,
    OwnedDocument,
    PurgeResult,
    SweepResult,
    VersionState,
)

logger = logging.getLogger("corbits_memory.retention")

SWEEP_VERSIONS = 1_000
"""Versions that one transaction of the sweep deprecates at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a transaction of forget or purge came to."""

    versions: int = 0
    derived: tuple[Row, ...] = ()
    waiting: bool = False
    refusal: MemoryError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """``waiting``: vectors of other documents have to be made anew."""

    result: ForgetResult
    waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    result: PurgeResult
    waiting: bool


class RetentionService:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("retention")

    async def forget(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        cascade: bool,
        access: Access | None,
    ) -> Forgotten:
        """Erase a document's content; with ``cascade`` that of the caller's documents derived from it, each in
        a transaction of its own, so that one that is interrupted is ended by calling again."""

        async def forget_one(target: str) -> _Outcome:
            return await run_again(lambda: self._forget(tenant_id, principal_id, target, access))

        outcome = await forget_one(document_id)
        if outcome.refusal is not None:
            raise outcome.refusal
        derived = [_derived(row) for row in outcome.derived]
        waiting = outcome.waiting
        own = {row["document_id"] for row in outcome.derived if row["owner"] == principal_id}
        if cascade:
            for position, claim in enumerate(derived):
                if claim.document_id not in own:
                    continue
                followed = await forget_one(claim.document_id)
                waiting = waiting or followed.waiting
                derived[position] = replace(claim, forgotten=followed.refusal is None)
        result = ForgetResult(document_id=document_id, versions=outcome.versions, derived=tuple(derived))
        return Forgotten(result=result, waiting=waiting)

    async def purge(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None
    ) -> Purged:
        """Remove a document; ``DurableDocumentError`` while a durable version is not forgotten."""
        outcome = await run_again(lambda: self._purge(tenant_id, principal_id, document_id, access))
        return _purged(outcome, document_id)

    async def purge_on_demand(
        self, *, tenant_id: str, actor_id: str, document_id: str, even_durable: bool
    ) -> Purged:
        """Remove a document whoever owns it."""
        outcome = await run_again(
            lambda: self._purge_on_demand(tenant_id, actor_id, document_id, even_durable=even_durable)
        )
        return _purged(outcome, document_id)

    async def owned(
        self, *, tenant_id: str, principal_id: str, after: str, limit: int
    ) -> list[OwnedDocument]:
        """The next documents of a principal, by id."""
        parameters = {"tenant": tenant_id, "principal": principal_id, "after": after, "limit": limit}
        async with self._database.tenant(tenant_id) as conn:
            cursor = conn.cursor(row_factory=class_row(OwnedDocument))
            await cursor.execute(self._queries["owned"], parameters)
            return await cursor.fetchall()

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

    async def _forget(
        self, tenant_id: str, principal_id: str, document_id: str, access: Access | None
    ) -> _Outcome:
        async with self._database.tenant(tenant_id) as conn:
            document = await _owned(
                conn, tenant_id, principal_id, document_id, access, action=AuditAction.FORGET
            )
            if isinstance(document, MemoryError):
                return _Outcome(refusal=document)
            visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            derived = await derived_documents(conn, document, visibility, limit=DERIVED_LISTED)
            eraser = Eraser(conn, document, by=principal_id)
            versions = await eraser.forget()
            await audit.record(
                conn,
                tenant_id,
                actor_id=principal_id,
                action=AuditAction.FORGET,
                target_type=AuditTarget.DOCUMENT,
                target_id=document_id,
                outcome=AuditOutcome.DONE if versions else AuditOutcome.UNCHANGED,
                amount=versions,
            )
        return _Outcome(versions=versions, derived=tuple(derived), waiting=eraser.waiting)

    async def _purge(
        self, tenant_id: str, principal_id: str, document_id: str, access: Access | None
    ) -> _Outcome:
        async with self._database.tenant(tenant_id) as conn:
            document = await _owned(
                conn, tenant_id, principal_id, document_id, access, action=AuditAction.PURGE
            )
            if isinstance(document, MemoryError):
                return _Outcome(refusal=document)
            visibility = await resolve_visibility(conn, tenant_id, principal_id, access)
            derived = await derived_documents(conn, document, visibility, limit=DERIVED_LISTED)
            return await _remove(conn, document, derived, by=principal_id, action=AuditAction.PURGE)

    async def _purge_on_demand(
        self, tenant_id: str, actor_id: str, document_id: str, *, even_durable: bool
    ) -> _Outcome:
        async with self._database.tenant(tenant_id) as conn:
            document = await lock_erasable(conn, tenant_id, document_id)
            if document is None:
                return _Outcome(refusal=NotFoundError("document not found"))
            derived = await derived_documents(conn, document, None, limit=DERIVED_LISTED)
            return await _remove(
                conn,
                document,
                derived,
                by=actor_id,
                action=AuditAction.PURGE_ON_DEMAND,
                even_durable=even_durable,
            )

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


async def _owned(
    conn: Connection,
    tenant_id: str,
    principal_id: str,
    document_id: str,
    access: Access | None,
    *,
    action: AuditAction,
) -> Erasable | MemoryError:
    """The caller's own document, locked; or why not, which is in the audit where the document may be seen."""
    document = await lock_erasable(conn, tenant_id, document_id)
    if document is None:
        return NotFoundError("document not found")
    if document.owner == principal_id:
        return document
    newest = document.newest
    visibility = await visibility_among(document.tags, principal_id, access)
    if newest is None or not visibility.admits_version(
        active=newest["status"] == VersionStatus.ACTIVE,
        written=newest["access_tags"],
        owner=document.owner,
        tags=document.tags,
        document_id=document_id,
    ):
        return NotFoundError("document not found")
    await audit.record(
        conn,
        tenant_id,
        actor_id=principal_id,
        action=action,
        target_type=AuditTarget.DOCUMENT,
        target_id=document_id,
        outcome=AuditOutcome.FORBIDDEN,
    )
    return ForbiddenError(f"only the document's creator may {action} it")


async def _remove(
    conn: Connection,
    document: Erasable,
    derived: Sequence[Row],
    *,
    by: str,
    action: AuditAction,
    even_durable: bool = False,
) -> _Outcome:
    held = document.held and not even_durable
    eraser = Eraser(conn, document, by=by)
    versions = 0 if held else await eraser.purge()
    await audit.record(
        conn,
        document.tenant_id,
        actor_id=by,
        action=action,
        target_type=AuditTarget.DOCUMENT,
        target_id=document.document_id,
        outcome=AuditOutcome.HELD if held else AuditOutcome.DONE,
        amount=None if held else versions,
    )
    if held:
        return _Outcome(refusal=DurableDocumentError())
    return _Outcome(versions=versions, derived=tuple(derived), waiting=eraser.waiting)


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


def _purged(outcome: _Outcome, document_id: str) -> Purged:
    if outcome.refusal is not None:
        raise outcome.refusal
    derived = tuple(_derived(row) for row in outcome.derived)
    result = PurgeResult(document_id=document_id, versions=outcome.versions, derived=derived)
    return Purged(result=result, waiting=outcome.waiting)


def _derived(row: Row) -> DerivedDocument:
    return DerivedDocument(document_id=row["document_id"], version_id=row["version_id"])


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
