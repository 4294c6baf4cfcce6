"""What only the owner of a document may: share it, forget it, keep it. Part of :class:`~corbits_memory.Memory`."""

from collections.abc import Mapping, Sequence

from corbits_memory.core.enums import RetentionClass
from corbits_memory.ports import ForgetResult, PurgeResult, SharedDocument, VersionState
from corbits_memory.validation import check_forget, check_retention_class, check_share
from corbits_memory.verbs.base import PlaneVerbs


class OwnerVerbs(PlaneVerbs):
    """Each raises ``ForbiddenError`` for anybody else who can see the document, ``NotFoundError`` for the rest."""

    async def share(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        tenant: bool = False,
        principals: Sequence[str] = (),
        tags: Sequence[str] = (),
        required: bool = False,
    ) -> SharedDocument:
        """Let others read a document: the whole ``tenant`` (where a grant on its tag says so), up to 64
        ``principals``, holders of grants on ``tags``. Only its owner may; in force from the next request on.

        Sharing twice is sharing once. The answer's ``share`` says what came of it; with ``required`` a
        missing grant store is an error instead. Raises ``InvalidInputError``, ``NotFoundError`` for what
        the principal can't see, ``ForbiddenError`` unless it is the owner, and ``NotSupportedError``.
        """
        return await self.share_for(
            {"tenant": tenant, "principals": principals, "tags": tags, "required": required},
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
        )

    async def share_for(
        self, given: Mapping[str, object], *, tenant_id: str, principal_id: str, document_id: str
    ) -> SharedDocument:
        """:meth:`share` with what to share in one mapping, not yet checked."""
        share = check_share(given, principal_id=principal_id, widening=True)
        return await self._parts.sharing.share(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            share=share,
            access=await self._admitted(tenant_id, principal_id, "document_id", document_id),
        )

    async def unshare(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        tenant: bool = False,
        principals: Sequence[str] = (),
        tags: Sequence[str] = (),
    ) -> SharedDocument:
        """Take back what :meth:`share` gave; what was not given is let pass. In force from the next request on.

        Raises as :meth:`share` does.
        """
        return await self.unshare_for(
            {"tenant": tenant, "principals": principals, "tags": tags},
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
        )

    async def unshare_for(
        self, given: Mapping[str, object], *, tenant_id: str, principal_id: str, document_id: str
    ) -> SharedDocument:
        """:meth:`unshare` with what to take back in one mapping, not yet checked."""
        share = check_share(given, principal_id=principal_id, widening=False)
        return await self._parts.sharing.unshare(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            share=share,
            access=await self._admitted(tenant_id, principal_id, "document_id", document_id),
        )

    async def forget(
        self, *, tenant_id: str, principal_id: str, document_id: str, cascade: bool = False
    ) -> ForgetResult:
        """Erase the content of a document, all its versions; its id, owner and numbers stay. No way back.

        Only its owner may. ``derived`` in the result lists what the principal may see of the documents that
        were made from it; ``cascade`` forgets those of them that are its own too. Forgetting twice is
        forgetting once (``versions`` 0); adding under the same name later makes the next version. When this
        returns no query reaches the content; docs/erasure.md says what takes longer.

        Raises ``InvalidInputError``, ``NotFoundError`` for what the principal can't see, ``ForbiddenError``
        unless it is the owner, ``NotSupportedError``, and ``UnavailableError`` unless open.
        """
        return await self._parts.forgetting.forget(
            cascade=check_forget(cascade),
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            access=await self._admitted(tenant_id, principal_id, "document_id", document_id),
        )

    async def purge(self, *, tenant_id: str, principal_id: str, document_id: str) -> PurgeResult:
        """Remove a document with everything that hangs on it, its id and raw captures included. No way back.

        Only its owner may, and not while a version of it that is not forgotten is ``durable``
        (``DurableDocumentError``). Otherwise raises as :meth:`forget` does.
        """
        return await self._parts.forgetting.purge(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            access=await self._admitted(tenant_id, principal_id, "document_id", document_id),
        )

    async def set_retention_class(
        self, *, tenant_id: str, principal_id: str, version_id: str, retention_class: RetentionClass | str
    ) -> VersionState:
        """Say how long a version is kept: ``durable`` (not purged), ``standard``, ``ephemeral`` and
        ``source_only`` (swept when they expire). Only the owner of its document may.

        Raises as :meth:`forget` does.
        """
        return await self._parts.forgetting.set_class(
            retention_class=check_retention_class(retention_class),
            tenant_id=tenant_id,
            principal_id=principal_id,
            version_id=version_id,
            access=await self._admitted(tenant_id, principal_id, "version_id", version_id),
        )

    tombstone_document = forget
    hard_delete_document = purge
