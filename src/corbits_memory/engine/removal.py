"""Forget and purge, and what a principal owns. Each removal leaves an audit event.

A refusal is kept in the audit too: so it is raised after its transaction was committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg.rows import class_row

from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget, VersionStatus
from corbits_memory.core.limits import DERIVED_LISTED
from corbits_memory.engine import audit
from corbits_memory.engine.access import resolve_visibility, visibility_among
from corbits_memory.engine.erasure import Erasable, Eraser, Row, derived_documents, lock_erasable
from corbits_memory.engine.pool import Connection, Database, run_again
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import DurableDocumentError, ForbiddenError, MemoryError, NotFoundError
from corbits_memory.ports import Access, DerivedDocument, ForgetResult, OwnedDocument, PurgeResult


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


class RemovalService:
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


def _purged(outcome: _Outcome, document_id: str) -> Purged:
    if outcome.refusal is not None:
        raise outcome.refusal
    derived = tuple(_derived(row) for row in outcome.derived)
    result = PurgeResult(document_id=document_id, versions=outcome.versions, derived=derived)
    return Purged(result=result, waiting=outcome.waiting)


def _derived(row: Row) -> DerivedDocument:
    return DerivedDocument(document_id=row["document_id"], version_id=row["version_id"])
