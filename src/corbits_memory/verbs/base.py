"""What the parts of :class:`~corbits_memory.Memory` share."""

from corbits_memory.parts import Parts
from corbits_memory.ports import Access
from corbits_memory.validation import check_caller, check_identifier


class PlaneVerbs:
    _parts: Parts

    async def _admitted(
        self, tenant_id: str, principal_id: str, field: str, identifier: object
    ) -> Access | None:
        """What the caller's grants say, once a call about one thing has been checked."""
        self._parts.life.check()
        check_caller(tenant_id, principal_id)
        check_identifier(field, identifier)
        return await self._parts.control.access(tenant_id, principal_id)
