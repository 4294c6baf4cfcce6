"""The plane's side of access: what a caller may do, what it may see, and sharing through the grant store."""

import inspect
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from corbits_memory.access.authorize import Authorizer
from corbits_memory.access.collect import GrantCache
from corbits_memory.access.conditions import BUILT_IN_CONDITIONS
from corbits_memory.access.sharing import ShareGrants, build_share_grants, share_grant_id
from corbits_memory.access.visibility import GrantedAccess
from corbits_memory.core.enums import Capability
from corbits_memory.ports import (
    Caller,
    ConditionRegistry,
    GrantStore,
    ReaderGrantStore,
    ResourceGrantStore,
    RevocableGrantStore,
    WritableGrantStore,
)

logger = logging.getLogger("corbits_memory.access")

NO_GRANT_STORE = "no writable grant store is mounted"
READERS_NAMED = 10_000
"""So many principals are told by name that a document which they were shared with is gone."""
GRANTS_FAILED = "the grant store failed; share again"


class AccessControl:
    """Grants, asked once a request. Without a store everyone sees their own documents alone."""

    def __init__(
        self,
        store: GrantStore | None,
        *,
        conditions: ConditionRegistry | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._cache = None if store is None else GrantCache(store)
        self._conditions = {**BUILT_IN_CONDITIONS, **(conditions or {})}
        self._clock = clock

    @property
    def writable(self) -> bool:
        return isinstance(self._store, WritableGrantStore)

    @property
    def revocable(self) -> bool:
        return isinstance(self._store, RevocableGrantStore)

    async def access(self, tenant_id: str, principal_id: str) -> GrantedAccess | None:
        """The caller's grants for one request; None without a grant store."""
        if self._cache is None:
            return None
        now = self._clock()
        rules = await self._cache.rules(tenant_id, principal_id, now=now)
        authorizer = Authorizer(
            rules, principal_id=principal_id, tenant_id=tenant_id, now=now, conditions=self._conditions
        )
        return GrantedAccess(principal_id=principal_id, authorizer=authorizer)

    async def may(self, caller: Caller, capability: Capability) -> bool:
        """Whether the caller has a capability: by its credential, else by a grant of the action on ``memory``.

        With neither a list nor a grant store, all but an administrator's.
        """
        if caller.capabilities is not None:
            return capability in caller.capabilities
        access = await self.access(caller.tenant_id, caller.principal_id)
        if access is None:
            return capability is not Capability.ADMIN
        resource, _, action = capability.partition(":")
        result = await access.authorizer.decide(resource, action)
        return result.allowed

    async def grant_share(self, share: ShareGrants) -> str | None:
        """Write a grant for each peer. None when all are written, else why not; the document stays as it is."""
        if not isinstance(self._store, WritableGrantStore):
            return NO_GRANT_STORE
        try:
            for rule in build_share_grants(share):
                await _awaited(self._store.put_grant(rule))
        except Exception:
            # Whatever a host's store raises: the document exists already, and the receipt says what is missing.
            logger.exception("sharing a document failed")
            return GRANTS_FAILED
        return None

    async def readers_of(self, tenant_id: str, resource: str) -> Sequence[str]:
        """Whom the resource's own grants reach, as far as the store can tell; never fails for it."""
        if not isinstance(self._store, ReaderGrantStore):
            return ()
        try:
            found: Sequence[str] = await _awaited(self._store.readers_of(tenant_id, resource, READERS_NAMED))
        except Exception:
            # Whatever a host's store raises: the thing is gone, whoever hears of it.
            logger.exception("the readers of an erased document could not be found")
            return ()
        return found

    async def forget_resource(self, tenant_id: str, resource: str) -> None:
        """Drop all grants on a resource that is gone, where the store can; never fails for it."""
        if not isinstance(self._store, ResourceGrantStore):
            return
        try:
            await _awaited(self._store.delete_resource_grants(tenant_id, resource))
        except Exception:
            # Whatever a host's store raises: the thing is gone, and grants on it reach nothing.
            logger.exception("the grants on an erased document could not be dropped")

    async def revoke_share(self, tenant_id: str, document_id: str, principals: Sequence[str]) -> None:
        """Take the peers' grants back; raises what the store raises. Only where :attr:`revocable`."""
        if not isinstance(self._store, RevocableGrantStore):
            return
        for peer in principals:
            await _awaited(self._store.delete_grant(tenant_id, share_grant_id(tenant_id, document_id, peer)))


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
