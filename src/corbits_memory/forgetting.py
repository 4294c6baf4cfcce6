"""Forgetting on the plane: a store's erasure and a grant store's clean-up, brought together.

The erasure comes first and holds whatever becomes of the grants: a grant on what is gone reaches nothing.
"""

from collections.abc import Iterable

from corbits_memory.access.control import AccessControl
from corbits_memory.access.tags import document_tag
from corbits_memory.core.enums import RetentionClass
from corbits_memory.errors import NotSupportedError
from corbits_memory.ports import (
    Access,
    DocumentStore,
    ForgetResult,
    PurgeResult,
    RetentionStore,
    RetractionStore,
    VersionState,
)

NO_RETENTION = "this document store can't forget: it has no retention"


def retention_of(store: DocumentStore) -> RetentionStore:
    """The store as one that can forget; raises ``NotSupportedError`` for another."""
    if not isinstance(store, RetentionStore):
        raise NotSupportedError(NO_RETENTION)
    return store


class Forgetting:
    """What ``forget``, ``purge`` and ``set_retention_class`` do."""

    def __init__(self, store: DocumentStore, control: AccessControl) -> None:
        self._store = store
        self._control = control

    async def forget(
        self, *, tenant_id: str, principal_id: str, document_id: str, cascade: bool, access: Access | None
    ) -> ForgetResult:
        """Raises ``NotFoundError``, ``ForbiddenError`` and ``NotSupportedError``."""
        result = await retention_of(self._store).forget(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            cascade=cascade,
            access=access,
        )
        followed = [claim.document_id for claim in result.derived if claim.forgotten]
        await self.drop_grants(tenant_id, [document_id, *followed])
        return result

    async def purge(
        self, *, tenant_id: str, principal_id: str, document_id: str, access: Access | None
    ) -> PurgeResult:
        """Raises ``NotFoundError``, ``ForbiddenError``, ``DurableDocumentError`` and ``NotSupportedError``."""
        result = await retention_of(self._store).purge(
            tenant_id=tenant_id, principal_id=principal_id, document_id=document_id, access=access
        )
        await self.drop_grants(tenant_id, [document_id])
        return result

    async def set_class(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        retention_class: RetentionClass,
        access: Access | None,
    ) -> VersionState:
        """Raises ``NotFoundError``, ``ForbiddenError`` and ``NotSupportedError``."""
        return await retention_of(self._store).set_retention_class(
            tenant_id=tenant_id,
            principal_id=principal_id,
            version_id=version_id,
            retention_class=retention_class,
            access=access,
        )

    async def drop_grants(self, tenant_id: str, document_ids: Iterable[str]) -> None:
        """Drop what was shared, so that it doesn't come back with the documents' names."""
        for document_id in document_ids:
            tag = document_tag(document_id)
            if isinstance(self._store, RetractionStore):
                # Before the grants go: until then the grants themselves let their holders hear of it.
                readers = await self._control.readers_of(tenant_id, tag)
                await self._store.name_readers(
                    tenant_id=tenant_id, document_id=document_id, principals=readers
                )
            await self._control.forget_resource(tenant_id, tag)
