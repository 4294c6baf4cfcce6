"""Sharing on the plane: a store's tags and a grant store's grants, brought together.

Tags are the store's and are written with the document; a grant for a person follows after. A grant that can't
be written loses no document: the receipt says what is missing, unless the caller asked to be refused.
"""

from collections.abc import Sequence
from dataclasses import replace

from corbits_memory.access.control import NO_GRANT_STORE, AccessControl
from corbits_memory.access.sharing import ShareGrants
from corbits_memory.access.tags import document_tag, resolve_access_tags, shared_peers, tenant_tag
from corbits_memory.errors import MemoryError, NotFoundError, NotSupportedError
from corbits_memory.ports import (
    Access,
    AddResult,
    AppendingStore,
    DocumentStore,
    DocumentTags,
    NewDocument,
    ReadableStore,
    Share,
    SharedDocument,
    ShareReceipt,
    TaggedStore,
)

GONE = "the document has been forgotten meanwhile"
NO_TAGS = "this document store can't change the tags of a document"


class Sharing:
    """What ``add``, ``share`` and ``unshare`` do about other readers."""

    def __init__(self, store: DocumentStore, control: AccessControl) -> None:
        self._store = store
        self._control = control

    def refusal(self, document: NewDocument) -> MemoryError | None:
        """Why a document that insists on being shared can't be, known before anything is stored."""
        share = document.share
        if share is None or not share.required or not share.principals or self._control.writable:
            return None
        return NotSupportedError(f"the document can't be shared with principals: {NO_GRANT_STORE}")

    async def after_add(
        self,
        result: AddResult,
        document: NewDocument,
        *,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
    ) -> AddResult:
        """The answer with its receipt; grants are written for the peers."""
        share = document.share
        if share is None:
            return result
        receipt = result.share
        stamped = receipt is not None
        if receipt is None:
            tags = resolve_access_tags(principal_id, tenant_id, document.access_tags, share)
            receipt = ShareReceipt(tags=tags, principals=shared_peers(principal_id, share))
        if not receipt.principals or receipt.grants_materialized:
            return replace(result, share=receipt)
        if not self._control.writable:
            return replace(result, share=replace(receipt, reason=NO_GRANT_STORE))
        if not stamped:
            receipt = await self._stamp(receipt, result.document_id, tenant_id, principal_id, access)
        if receipt.reason is None:
            receipt = await self._granted(
                receipt, tenant_id, principal_id, result.document_id, result.version_id
            )
        return replace(result, share=receipt)

    async def share(
        self, *, tenant_id: str, principal_id: str, document_id: str, share: Share, access: Access | None
    ) -> SharedDocument:
        """Raises ``NotFoundError``, ``ForbiddenError`` and ``NotSupportedError``."""
        store = self._tagged()
        if share.principals and share.required and not self._control.writable:
            raise NotSupportedError(f"the document can't be shared with principals: {NO_GRANT_STORE}")
        system = [tenant_tag(tenant_id)] if share.tenant else []
        if share.principals:
            system.append(document_tag(document_id))
        changed = await store.change_access_tags(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            add=share.tags,
            add_system=system,
            access=access,
        )
        receipt = _receipt(changed, share, document_id)
        if receipt.principals:
            receipt = await self._granted(receipt, tenant_id, principal_id, document_id, changed.version_id)
            if receipt.reason == GONE:
                raise NotFoundError("document not found")
        return SharedDocument(document_id=document_id, version_id=changed.version_id, share=receipt)

    async def unshare(
        self, *, tenant_id: str, principal_id: str, document_id: str, share: Share, access: Access | None
    ) -> SharedDocument:
        """Raises ``NotFoundError``, ``ForbiddenError``, and ``NotSupportedError`` before anything has changed."""
        store = self._tagged()
        if share.principals and not self._control.revocable:
            raise NotSupportedError("the mounted grant store can't take grants back")
        remove = [*share.tags, *([tenant_tag(tenant_id)] if share.tenant else [])]
        # First the tags, since this also proves the owner.
        changed: DocumentTags = await store.change_access_tags(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            remove=remove,
            access=access,
        )
        await self._control.revoke_share(tenant_id, document_id, share.principals)
        return SharedDocument(
            document_id=document_id,
            version_id=changed.version_id,
            share=ShareReceipt(tags=changed.tags, principals=share.principals),
        )

    def _tagged(self) -> TaggedStore:
        if not isinstance(self._store, TaggedStore):
            raise NotSupportedError(NO_TAGS)
        return self._store

    async def _stamp(
        self,
        receipt: ShareReceipt,
        document_id: str,
        tenant_id: str,
        principal_id: str,
        access: Access | None,
    ) -> ShareReceipt:
        """The document's own tag, on stores that did not write it with the document."""
        tag = document_tag(document_id)
        if not isinstance(self._store, TaggedStore):
            if not isinstance(self._store, AppendingStore):
                return replace(receipt, reason=NO_TAGS)
            await self._store.append_access_tags(tenant_id=tenant_id, document_id=document_id, tags=[tag])
            return replace(receipt, tags=tuple(dict.fromkeys((*receipt.tags, tag))))
        changed = await self._store.change_access_tags(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            add_system=[tag],
            access=access,
        )
        return replace(receipt, tags=changed.tags)

    async def _granted(
        self, receipt: ShareReceipt, tenant_id: str, principal_id: str, document_id: str, version_id: str
    ) -> ShareReceipt:
        principals: Sequence[str] = receipt.principals
        reason = await self._control.grant_share(
            ShareGrants(
                tenant_id=tenant_id,
                document_id=document_id,
                source_version_id=version_id,
                shared_by=principal_id,
                principals=principals,
            )
        )
        if reason is None and not await self._stands(tenant_id, principal_id, version_id):
            # Erased since it was tagged: grants that came after would hold for what takes its name next.
            await self._control.revoke_share(tenant_id, document_id, principals)
            reason = GONE
        return replace(receipt, grants_materialized=reason is None, reason=reason)

    async def _stands(self, tenant_id: str, principal_id: str, version_id: str) -> bool:
        if not isinstance(self._store, ReadableStore):
            return True
        try:
            await self._store.version(
                tenant_id=tenant_id, principal_id=principal_id, version_id=version_id, limit=1
            )
        except NotFoundError:
            return False
        return True


def _receipt(changed: DocumentTags, share: Share, document_id: str) -> ShareReceipt:
    """Peers reach a document by its own tag: where that is withheld, so are they."""
    own = document_tag(document_id)
    withheld = [tag for tag in changed.withheld if tag != own]
    if own in changed.withheld:
        return ShareReceipt(tags=changed.tags, withheld=(*withheld, *share.principals))
    return ShareReceipt(tags=changed.tags, principals=share.principals, withheld=tuple(withheld))
