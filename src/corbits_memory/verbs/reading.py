"""Documents and versions by their ids and names. Part of :class:`~corbits_memory.Memory`."""

from collections.abc import Sequence

from corbits_memory.core import limits
from corbits_memory.ports import DocumentDetail, HistoryPage, LookupPage, VersionDetail
from corbits_memory.validation import check_caller, check_page, lookup_query
from corbits_memory.verbs.base import PlaneVerbs


class ReadingVerbs(PlaneVerbs):
    """Unknown and invisible are one ``NotFoundError``."""

    async def document(self, *, tenant_id: str, principal_id: str, document_id: str) -> DocumentDetail:
        """A document and its current version. Unknown and invisible are one ``NotFoundError``."""
        access = await self._admitted(tenant_id, principal_id, "document_id", document_id)
        return await self._parts.readable.document(
            tenant_id=tenant_id, principal_id=principal_id, document_id=document_id, access=access
        )

    async def lookup(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        adapter: str,
        external_refs: Sequence[str] | None = None,
        prefix: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        include_text: bool = False,
    ) -> LookupPage:
        """Documents by the names that their source gave them, in byte order of these, at most ``limit`` (1 to 100).

        ``external_refs`` (≤ 100) names them, ``prefix`` how their references begin; with neither it is all of the
        ``adapter``'s. ``after`` is ``next_after`` of the page before. ``include_text`` adds each text as it was
        added; a page ends before the one that would make it more than 1 MiB, unless that is its first. Documents
        without an active version, and those that the principal can't see, are left out.
        Raises ``InvalidInputError``, ``NotSupportedError``, and ``UnavailableError`` unless open.
        """
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        query = lookup_query(
            adapter=adapter,
            external_refs=external_refs,
            prefix=prefix,
            after=after,
            limit=limit,
            include_text=include_text,
        )
        return await self._parts.findable.lookup(
            tenant_id=tenant_id,
            principal_id=principal_id,
            query=query,
            access=await self._parts.control.access(tenant_id, principal_id),
        )

    async def history(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        document_id: str,
        limit: int | None = None,
        before: int | None = None,
    ) -> HistoryPage:
        """A document's versions, newest first, and which fields each changed.

        ``limit`` is 1 to 100, default 20; ``before`` a version number, exclusive. Raises ``NotFoundError``.
        """
        access = await self._admitted(tenant_id, principal_id, "document_id", document_id)
        page = check_page(
            limit,
            before,
            default=limits.HISTORY_LIMIT_DEFAULT,
            high=limits.HISTORY_LIMIT_MAX,
            cursor="before",
        )
        return await self._parts.readable.history(
            tenant_id=tenant_id,
            principal_id=principal_id,
            document_id=document_id,
            limit=page.limit,
            before=page.cursor,
            access=access,
        )

    async def version(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        version_id: str,
        limit: int | None = None,
        after: int | None = None,
    ) -> VersionDetail:
        """One version with a page of its text.

        ``limit`` is 1 to 500 chunks, default 100; ``after`` an ordinal, exclusive. Raises ``NotFoundError``.
        """
        access = await self._admitted(tenant_id, principal_id, "version_id", version_id)
        page = check_page(
            limit, after, default=limits.CHUNK_PAGE_DEFAULT, high=limits.CHUNK_PAGE_MAX, cursor="after"
        )
        return await self._parts.readable.version(
            tenant_id=tenant_id,
            principal_id=principal_id,
            version_id=version_id,
            limit=page.limit,
            after=page.cursor,
            access=access,
        )
