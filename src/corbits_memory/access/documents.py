"""Whether a principal may see a document, asked one at a time: for stores that can't put access into a query."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from corbits_memory.access.authorize import Authorizer
from corbits_memory.access.collect import collect
from corbits_memory.access.visibility import GrantedAccess
from corbits_memory.ports import ConditionRegistry, GrantRule, GrantStore, TaggedDocument

SEARCH = "search"
D = TypeVar("D", bound=TaggedDocument)


async def can_access_document(
    grants: GrantStore | Sequence[GrantRule] | None,
    *,
    tenant_id: str,
    principal_id: str,
    created_by_principal_id: str | None,
    access_tags: Sequence[str],
    now: datetime,
    condition_registry: ConditionRegistry | None = None,
) -> bool:
    """The creator always; anyone else when a grant allows ``search`` on a tag and none vetoes one.

    Without grants the creator alone. The rule is that of :class:`corbits_memory.ports.Visibility`.
    """
    if created_by_principal_id and created_by_principal_id == principal_id:
        return True
    access = await _access(grants, tenant_id, principal_id, now, condition_registry)
    return access is not None and await access.reaches(SEARCH, access_tags)


async def filter_accessible_documents(
    grants: GrantStore | Sequence[GrantRule] | None,
    documents: Sequence[D],
    *,
    tenant_id: str,
    principal_id: str,
    now: datetime,
    condition_registry: ConditionRegistry | None = None,
) -> list[D]:
    """Those that the principal may see, in their order; grants are collected once."""
    access = await _access(grants, tenant_id, principal_id, now, condition_registry)
    return [
        document
        for document in documents
        if (document.created_by_principal_id and document.created_by_principal_id == principal_id)
        or (access is not None and await access.reaches(SEARCH, document.access_tags))
    ]


async def _access(
    grants: GrantStore | Sequence[GrantRule] | None,
    tenant_id: str,
    principal_id: str,
    now: datetime,
    conditions: ConditionRegistry | None,
) -> GrantedAccess | None:
    if grants is None:
        return None
    rules = (
        await collect(grants, principal_id, tenant_id, now=now) if isinstance(grants, GrantStore) else grants
    )
    authorizer = Authorizer(
        rules, principal_id=principal_id, tenant_id=tenant_id, now=now, conditions=conditions
    )
    return GrantedAccess(principal_id=principal_id, authorizer=authorizer)
