"""How far a replica must have come before it may answer for a tenant."""

from collections import OrderedDict

TENANTS_REMEMBERED = 10_000
"""Tenants whose last write is remembered each; of older ones, the newest write counts for everybody."""


class Watermarks:
    """Places in the write-ahead log: after each write of this process, the tenant's; never taken back.

    A place is the log's number in bytes, as ``lsn - '0/0'`` gives it.
    """

    def __init__(self, *, tenants: int = TENANTS_REMEMBERED) -> None:
        self._most = tenants
        self._everybody = 0
        self._of_tenant: OrderedDict[str, int] = OrderedDict()

    def note(self, place: int, tenant_id: str | None = None) -> None:
        """A write was committed before this place: the tenant's own, or one that concerns everybody."""
        if tenant_id is None:
            self._everybody = max(self._everybody, place)
            return
        self._of_tenant[tenant_id] = max(self._of_tenant.pop(tenant_id, 0), place)
        if len(self._of_tenant) > self._most:
            _, oldest = self._of_tenant.popitem(last=False)
            self._everybody = max(self._everybody, oldest)

    def needed(self, tenant_id: str | None) -> int:
        """What a replica must have replayed for this tenant's readers to see all that was written here."""
        return max(self._everybody, 0 if tenant_id is None else self._of_tenant.get(tenant_id, 0))
