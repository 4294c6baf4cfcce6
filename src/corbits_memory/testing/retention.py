"""The fake store's retention and audit."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count

from corbits_memory.access.tags import resolve_access_tags
from corbits_memory.core.enums import (
    AuditAction,
    AuditOutcome,
    AuditTarget,
    DeprecatedReason,
    RetentionClass,
    VersionStatus,
)
from corbits_memory.core.erasure import ERASED_KIND
from corbits_memory.errors import ConflictError, DurableDocumentError, ForbiddenError, NotFoundError
from corbits_memory.ports import (
    Access,
    AuditEvent,
    AuditPage,
    DerivedDocument,
    ForgetResult,
    NewDocument,
    OwnedDocument,
    PurgeResult,
    SweepResult,
    VersionState,
)


@dataclass(slots=True, kw_only=True)
class StoredDocument:
    """One document as the fake keeps it: its newest version."""

    tenant_id: str
    owner: str
    document_id: str
    version_id: str
    version: int
    content: NewDocument
    at: datetime
    status: VersionStatus = VersionStatus.ACTIVE
    deprecated_reason: DeprecatedReason | None = None
    shared_tags: list[str] = field(default_factory=list)
    """Tags that were added or taken away after the fact."""
    unshared_tags: list[str] = field(default_factory=list)

    @property
    def tags(self) -> tuple[str, ...]:
        content = self.content
        written = resolve_access_tags(self.owner, self.tenant_id, content.access_tags, content.share)
        kept = (tag for tag in written if tag not in self.unshared_tags)
        return tuple(dict.fromkeys((*kept, *self.shared_tags)))


class FakeRetention:
    """Forgets as the real store does, over a list of documents; each act is in the audit."""

    def __init__(self) -> None:
        self.documents: list[StoredDocument] = []
        """What is kept, oldest first."""
        self.audit: list[tuple[str, AuditEvent]] = []
        """``(tenant, event)``, oldest first."""
        self._event_numbers = count(1)

    async def _visible(
        self, tenant_id: str, principal_id: str, access: Access | None
    ) -> Sequence[StoredDocument]:
        raise NotImplementedError

    async def forget(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        cascade: bool = False,
        access: Access | None = None,
    ) -> ForgetResult:
        document = await self._owned(tenant_id, principal_id, document_id, access, AuditAction.FORGET)
        visible = await self._visible(tenant_id, principal_id, access)
        derived = [
            DerivedDocument(
                document_id=claim.document_id,
                version_id=claim.version_id,
                forgotten=cascade and claim.owner == principal_id,
            )
            for claim in _derived(document, visible)
        ]
        versions = self._erase(document, principal_id)
        for claim in visible:
            if any(known.forgotten and known.document_id == claim.document_id for known in derived):
                self._erase(claim, principal_id)
        return ForgetResult(document_id=document_id, versions=versions, derived=tuple(derived))

    async def purge(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None = None
    ) -> PurgeResult:
        document = await self._owned(tenant_id, principal_id, document_id, access, AuditAction.PURGE)
        visible = await self._visible(tenant_id, principal_id, access)
        return self._remove(document, principal_id, AuditAction.PURGE, visible, even_durable=False)

    async def purge_on_demand(
        self, *, tenant_id: str, actor_id: str, document_id: str, even_durable: bool = False
    ) -> PurgeResult:
        document = self._known(tenant_id, document_id)
        visible = [known for known in self.documents if known.tenant_id == tenant_id]
        return self._remove(
            document, actor_id, AuditAction.PURGE_ON_DEMAND, visible, even_durable=even_durable
        )

    async def owned_documents(
        self, *, tenant_id: str, principal_id: str, after: str, limit: int
    ) -> list[OwnedDocument]:
        owned = [
            OwnedDocument(
                document_id=known.document_id,
                versions=known.version,
                held=known.content.retention_class is RetentionClass.DURABLE
                and known.status is not VersionStatus.TOMBSTONED,
            )
            for known in self.documents
            if (known.tenant_id, known.owner) == (tenant_id, principal_id) and known.document_id > after
        ]
        return sorted(owned, key=lambda document: document.document_id)[:limit]

    async def set_retention_class(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        retention_class: RetentionClass,
        access: Access | None = None,
    ) -> VersionState:
        document = self._version(tenant_id, version_id)
        if document.owner != principal_id:
            if document not in await self._visible(tenant_id, principal_id, access):
                raise NotFoundError("version not found")
            self._record(
                document, principal_id, AuditAction.RETENTION_CLASS, AuditOutcome.FORBIDDEN, version=True
            )
            raise ForbiddenError("only the version's creator may change its retention class")
        document.content = replace(document.content, retention_class=retention_class)
        self._record(document, principal_id, AuditAction.RETENTION_CLASS, AuditOutcome.DONE, version=True)
        return _state(document)

    async def deprecate_version(
        self,
        *,
        tenant_id: str,
        actor_id: str,
        version_id: str,
        reason: DeprecatedReason = DeprecatedReason.DEPRECATED,
    ) -> VersionState:
        document = self._version(tenant_id, version_id)
        if document.status != VersionStatus.ACTIVE:
            raise ConflictError(f"the version is {document.status}")
        document.status, document.deprecated_reason = VersionStatus.DEPRECATED, reason
        self._record(document, actor_id, AuditAction.DEPRECATE, AuditOutcome.DONE, version=True)
        return _state(document)

    async def sweep_ephemeral(
        self, *, tenant_id: str, actor_id: str, now: datetime | None = None
    ) -> SweepResult:
        moment = now or datetime.now(UTC)
        expired = [
            document
            for document in self.documents
            if document.tenant_id == tenant_id
            and document.status == VersionStatus.ACTIVE
            and document.content.retention_class in (RetentionClass.EPHEMERAL, RetentionClass.SOURCE_ONLY)
            and document.content.valid_until is not None
            and document.content.valid_until < moment
        ]
        for document in expired:
            ephemeral = document.content.retention_class is RetentionClass.EPHEMERAL
            document.status = VersionStatus.DEPRECATED
            document.deprecated_reason = (
                DeprecatedReason.EPHEMERAL_TTL if ephemeral else DeprecatedReason.SOURCE_UNSEEN
            )
            self._record(document, actor_id, AuditAction.SWEEP, AuditOutcome.DONE, version=True)
        return SweepResult(versions_deprecated=len(expired))

    async def audit_events(
        self, *, tenant_id: str, limit: int, before: str | None = None, target_id: str | None = None
    ) -> AuditPage:
        found = [
            event
            for tenant, event in reversed(self.audit)
            if tenant == tenant_id
            and (before is None or event.id < before)
            and (target_id is None or event.target_id == target_id)
        ]
        return AuditPage(
            events=tuple(found[:limit]), before=found[limit - 1].id if len(found) > limit else None
        )

    async def _owned(
        self,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        access: Access | None,
        action: AuditAction,
    ) -> StoredDocument:
        document = self._known(tenant_id, document_id)
        if document.owner == principal_id:
            return document
        if document not in await self._visible(tenant_id, principal_id, access):
            raise NotFoundError("document not found")
        self._record(document, principal_id, action, AuditOutcome.FORBIDDEN)
        raise ForbiddenError(f"only the document's creator may {action} it")

    def _known(self, tenant_id: str, document_id: str) -> StoredDocument:
        for document in self.documents:
            if (document.tenant_id, document.document_id) == (tenant_id, document_id):
                return document
        raise NotFoundError("document not found")

    def _version(self, tenant_id: str, version_id: str) -> StoredDocument:
        for document in self.documents:
            if (document.tenant_id, document.version_id) == (tenant_id, version_id):
                return document
        raise NotFoundError("version not found")

    def _erase(self, document: StoredDocument, by: str) -> int:
        kept = document.status != VersionStatus.TOMBSTONED
        versions = document.version if kept else 0
        document.status, document.deprecated_reason = VersionStatus.TOMBSTONED, None
        # The name stays, so that adding again goes on counting.
        document.content = NewDocument(
            title="",
            parts=(),
            kind=ERASED_KIND,
            adapter=document.content.adapter,
            external_ref=document.content.external_ref,
        )
        document.shared_tags, document.unshared_tags = [], []
        outcome = AuditOutcome.DONE if kept else AuditOutcome.UNCHANGED
        self._record(document, by, AuditAction.FORGET, outcome, amount=versions)
        return versions

    def _remove(
        self,
        document: StoredDocument,
        by: str,
        action: AuditAction,
        visible: Sequence[StoredDocument],
        *,
        even_durable: bool,
    ) -> PurgeResult:
        durable = document.content.retention_class is RetentionClass.DURABLE
        if durable and not even_durable:
            self._record(document, by, action, AuditOutcome.HELD)
            raise DurableDocumentError
        self.documents.remove(document)
        self._record(document, by, action, AuditOutcome.DONE, amount=document.version)
        derived = tuple(
            DerivedDocument(document_id=claim.document_id, version_id=claim.version_id)
            for claim in _derived(document, visible)
        )
        return PurgeResult(document_id=document.document_id, versions=document.version, derived=derived)

    def _record(
        self,
        document: StoredDocument,
        actor_id: str,
        action: AuditAction,
        outcome: AuditOutcome,
        *,
        version: bool = False,
        amount: int | None = None,
    ) -> None:
        event = AuditEvent(
            id=f"fake_event_{next(self._event_numbers):09d}",
            at=datetime.now(UTC),
            actor_id=actor_id,
            action=action,
            target_type=AuditTarget.VERSION if version else AuditTarget.DOCUMENT,
            target_id=document.version_id if version else document.document_id,
            outcome=outcome,
            amount=amount,
        )
        self.audit.append((document.tenant_id, event))


def _derived(source: StoredDocument, among: Sequence[StoredDocument]) -> list[StoredDocument]:
    """What says that it was made from the document, directly or by way of others."""
    found: list[StoredDocument] = []
    sources = {source.version_id}
    while True:
        more = [
            known
            for known in among
            if known is not source and known not in found and sources & set(known.content.derived_from)
        ]
        if not more:
            return found
        found += more
        sources |= {known.version_id for known in more}


def _state(document: StoredDocument) -> VersionState:
    return VersionState(
        version_id=document.version_id,
        document_id=document.document_id,
        status=document.status,
        retention_class=document.content.retention_class,
    )
