"""What operators do, apart from the plane that users are given.

>>> admin = MemoryAdmin(memory)
>>> await admin.sweep_ephemeral(tenant_id="acme", actor="ops:sara")

Nobody is asked whose documents these are; each call names the ``actor`` for the audit. Who may hold this
object is the host's to decide.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from corbits_memory.core import limits
from corbits_memory.core.enums import DeprecatedReason, FeedOp
from corbits_memory.errors import DurableDocumentError, NotFoundError
from corbits_memory.forgetting import retention_of
from corbits_memory.plane import Memory, parts_of
from corbits_memory.ports import (
    AuditPage,
    CreatedSubscription,
    DeadLetter,
    PrincipalPurge,
    PurgeResult,
    Subscription,
    SweepResult,
    VersionState,
)
from corbits_memory.validation import (
    Problems,
    check_identifier,
    dead_letter_page,
    new_subscription,
    replayed_seqs,
)
from corbits_memory.verbs.transforms import TransformVerbs

OWNED_PAGE = 500


class MemoryAdmin(TransformVerbs):
    """The operator's verbs over an open memory, which stays open and closes as before."""

    def __init__(self, memory: Memory) -> None:
        self._parts = parts_of(memory)

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
        result = await retention_of(self._parts.store).purge_on_demand(
            tenant_id=tenant_id, actor_id=actor, document_id=document_id, even_durable=even_durable
        )
        await self._parts.forgetting.drop_grants(tenant_id, [document_id])
        return result

    async def purge_principal(
        self,
        *,
        tenant_id: str,
        actor: str,
        principal_id: str,
        dry_run: bool = True,
        even_durable: bool = False,
    ) -> PrincipalPurge:
        """Remove all that a principal owns, each document in a transaction of its own; by default only count it.

        One that is interrupted is ended by calling again. Documents that durable versions hold stay, unless
        ``even_durable``. What others own stays, also where it was made from the principal's or names it.
        Raises ``InvalidInputError``, ``NotSupportedError``, and ``UnavailableError`` unless open.
        """
        problems = self._begin(tenant_id, actor)
        problems.required_identifier("principal_id", principal_id)
        dry_run = problems.flag("dry_run", dry_run)
        even_durable = problems.flag("even_durable", even_durable)
        problems.raise_if_any()
        store = retention_of(self._parts.store)
        documents = versions = held = 0
        after = ""
        while True:
            page = await store.owned_documents(
                tenant_id=tenant_id, principal_id=principal_id, after=after, limit=OWNED_PAGE
            )
            for document in page:
                if document.held and not even_durable:
                    held += 1
                    continue
                if not dry_run:
                    try:
                        await self.purge(
                            tenant_id=tenant_id,
                            actor=actor,
                            document_id=document.document_id,
                            even_durable=even_durable,
                        )
                    except NotFoundError:
                        # Its owner was faster.
                        continue
                    except DurableDocumentError:
                        held += 1
                        continue
                documents += 1
                versions += document.versions
            if len(page) < OWNED_PAGE:
                break
            after = page[-1].document_id
        return PrincipalPurge(
            principal_id=principal_id, documents=documents, versions=versions, held=held, dry_run=dry_run
        )

    async def deprecate_version(
        self,
        *,
        tenant_id: str,
        actor: str,
        version_id: str,
        reason: DeprecatedReason | str | None = None,
    ) -> VersionState:
        """Take a version out of use: found on request (``include_deprecated``) only.

        ``reason`` is a code that its history tells, by default ``deprecated``. Raises
        ``InvalidInputError``, ``NotFoundError``, ``ConflictError`` unless it is active or superseded,
        ``NotSupportedError``, and ``UnavailableError`` unless open.
        """
        problems = self._begin(tenant_id, actor)
        problems.required_identifier("version_id", version_id)
        code = problems.choice("reason", reason, DeprecatedReason) or DeprecatedReason.DEPRECATED
        problems.raise_if_any()
        return await retention_of(self._parts.store).deprecate_version(
            tenant_id=tenant_id, actor_id=actor, version_id=version_id, reason=code
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
        return await retention_of(self._parts.store).sweep_ephemeral(
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
        return await self._parts.audited.audit_events(
            tenant_id=tenant_id, limit=size, before=before, target_id=target_id
        )

    # --- webhooks ---

    async def subscribe(
        self,
        *,
        tenant_id: str,
        actor: str,
        url: str,
        principal: str | None = None,
        ops: Collection[FeedOp | str] | None = None,
        exclude_generator: str | None = None,
        include_text: bool = False,
        after: int | None = None,
    ) -> CreatedSubscription:
        """Have the feed sent to ``url``: what ``principal`` (default the actor) may see when it is sent.

        ``after`` is the number to begin after, by default the newest. Each delivery is signed with the
        secret in the answer, which is told only now. Raises ``InvalidInputError`` also for a URL that may
        not be called, ``InvalidCursorError``, ``ConflictError`` when the tenant has 100 already.
        """
        self._begin(tenant_id, actor).raise_if_any()
        given = new_subscription(
            principal_id=actor,
            url=url,
            principal=principal,
            ops=ops,
            exclude_generator=exclude_generator,
            include_text=include_text,
            after=after,
        )
        return await self._parts.pushing.subscribe(
            tenant_id=tenant_id, principal_id=actor, subscription=given
        )

    async def subscriptions(self, *, tenant_id: str) -> Sequence[Subscription]:
        """The tenant's webhooks, oldest first, and how they fare."""
        self._parts.life.check()
        check_identifier("tenant_id", tenant_id)
        return await self._parts.pushing.subscriptions(tenant_id=tenant_id)

    async def unsubscribe(self, *, tenant_id: str, actor: str, subscription_id: str) -> None:
        """Remove a webhook and its dead letters. Raises ``NotFoundError``."""
        self._begin(tenant_id, actor).raise_if_any()
        check_identifier("subscription_id", subscription_id)
        await self._parts.pushing.unsubscribe(
            tenant_id=tenant_id, principal_id=actor, subscription_id=subscription_id
        )

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int = 0, limit: int = limits.DEAD_LIMIT_DEFAULT
    ) -> Sequence[DeadLetter]:
        """What was given up, numbered above ``after``, at most ``limit`` (1 to 100). Raises ``NotFoundError``."""
        self._check_named(tenant_id, subscription_id)
        after, limit = dead_letter_page(after=after, limit=limit)
        return await self._parts.pushing.dead_letters(
            tenant_id=tenant_id, subscription_id=subscription_id, after=after, limit=limit
        )

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None = None) -> int:
        """Have dead letters sent again, all or those numbered so; how many. Raises ``NotFoundError``."""
        self._check_named(tenant_id, subscription_id)
        return await self._parts.pushing.replay(
            tenant_id=tenant_id, subscription_id=subscription_id, seqs=replayed_seqs(seqs)
        )

    def _check_named(self, tenant_id: str, subscription_id: str) -> None:
        self._parts.life.check()
        check_identifier("tenant_id", tenant_id)
        check_identifier("subscription_id", subscription_id)

    def _begin(self, tenant_id: object, actor: object) -> Problems:
        self._parts.life.check()
        problems = Problems()
        problems.required_identifier("tenant_id", tenant_id)
        problems.required_identifier("actor", actor)
        return problems
