"""What operators do, apart from the plane that users are given.

>>> admin = MemoryAdmin(memory)
>>> await admin.sweep_ephemeral(tenant_id="acme", actor="ops:sara")

Nobody is asked whose documents these are; each call names the ``actor`` for the audit. Who may hold this
object is the host's to decide.
"""

from datetime import datetime

from corbits_memory.core import limits
from corbits_memory.errors import NotSupportedError
from corbits_memory.forgetting import Forgetting, retention_of
from corbits_memory.plane import Memory
from corbits_memory.ports import AuditPage, AuditStore, PurgeResult, SweepResult, VersionState
from corbits_memory.validation import Problems

NO_AUDIT = "this document store keeps no audit"


class MemoryAdmin:
    """The operator's verbs over an open memory, which stays open and closes as before."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # The other face of the same plane: what it holds is not for its users.
        self._store = memory._store  # noqa: SLF001
        self._forgetting: Forgetting = memory._forgetting  # noqa: SLF001

    async def purge(
        self, *, tenant_id: str, actor: str, document_id: str, even_durable: bool = False
    ) -> PurgeResult:
        """Remove a document whoever owns it, as the law may demand; ``even_durable`` lifts a hold.

        The result's ``derived`` lists every document that was made from it. Raises ``InvalidInputError``,
        ``NotFoundError``, ``DurableDocumentError``, ``NotSupportedError``, and ``UnavailableError`` unless
        open.
        """
        problems = self._begin(tenant_id, actor)
        problems.required_identifier("document_id", document_id)
        even_durable = problems.flag("even_durable", even_durable)
        problems.raise_if_any()
        result = await retention_of(self._store).purge_on_demand(
            tenant_id=tenant_id, actor_id=actor, document_id=document_id, even_durable=even_durable
        )
        await self._forgetting.drop_grants(tenant_id, [document_id])
        return result

    async def deprecate_version(self, *, tenant_id: str, actor: str, version_id: str) -> VersionState:
        """Take a version out of use: found on request (``include_deprecated``) only.

        Raises ``InvalidInputError``, ``NotFoundError``, ``ConflictError`` unless it is active or superseded,
        ``NotSupportedError``, and ``UnavailableError`` unless open.
        """
        problems = self._begin(tenant_id, actor)
        problems.required_identifier("version_id", version_id)
        problems.raise_if_any()
        return await retention_of(self._store).deprecate_version(
            tenant_id=tenant_id, actor_id=actor, version_id=version_id
        )

    async def sweep_ephemeral(
        self, *, tenant_id: str, actor: str, now: datetime | str | None = None
    ) -> SweepResult:
        """Deprecate what has expired at ``now`` (default: the store's clock; UTC where no zone is given).

        That are active versions past their ``valid_until``, or without one: ephemeral ones seven days after
        they came in, source_only ones thirty days after their source was last seen. Nothing is deleted; call
        it as often as you like, also while others add. Raises ``InvalidInputError``, ``NotSupportedError``,
        and ``UnavailableError`` unless open.
        """
        problems = self._begin(tenant_id, actor)
        instant = problems.instant("now", now)
        problems.raise_if_any()
        return await retention_of(self._store).sweep_ephemeral(
            tenant_id=tenant_id, actor_id=actor, now=instant
        )

    async def audit(
        self,
        *,
        tenant_id: str,
        actor: str,
        limit: int | None = None,
        before: str | None = None,
        target_id: str | None = None,
    ) -> AuditPage:
        """Who did what, newest first; ``limit`` 1 to 500 (default 50), ``before`` from the page before,
        ``target_id`` for what happened to one thing.

        Raises ``InvalidInputError``, ``NotSupportedError``, and ``UnavailableError`` unless open.
        """
        problems = self._begin(tenant_id, actor)
        size = problems.integer(
            "limit", limit, low=1, high=limits.AUDIT_LIMIT_MAX, default=limits.AUDIT_LIMIT_DEFAULT
        )
        problems.identifier("before", before)
        problems.identifier("target_id", target_id)
        problems.raise_if_any()
        if not isinstance(self._store, AuditStore):
            raise NotSupportedError(NO_AUDIT)
        return await self._store.audit_events(
            tenant_id=tenant_id, limit=size, before=before, target_id=target_id
        )

    def _begin(self, tenant_id: object, actor: object) -> Problems:
        self._memory._check_open()  # noqa: SLF001
        problems = Problems()
        problems.required_identifier("tenant_id", tenant_id)
        problems.required_identifier("actor", actor)
        return problems
