"""Who asks, what grants say, and what follows for what a caller may see."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from corbits_memory.core.enums import Capability, Effect, GrantOrigin


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. Comes from the host's authentication, never from a request body.

    ``capabilities`` None: the memory's grant store decides (a grant of the action on ``memory``); without a
    grant store a caller may do everything that is not an administrator's.
    """

    tenant_id: str
    principal_id: str
    capabilities: frozenset[Capability] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRule:
    """One grant: who (``principal_id`` or ``role_id``) may or may not do what to which resources.

    ``resource`` and ``action`` are patterns in which ``*`` stands for any characters. ``conditions`` name
    evaluators of the host's registry, all of which must be met. ``tenant_id`` None: as the store keeps it.
    """

    id: str
    resource: str
    action: str
    effect: Effect
    origin: GrantOrigin = GrantOrigin.SYSTEM
    conditions: Mapping[str, Any] | None = None
    expires_at: datetime | None = None
    role_id: str | None = None
    principal_id: str | None = None
    tenant_id: str | None = None
    created_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionContext:
    """What a condition may look at. ``consumer`` is the tool that asks, or empty."""

    now: datetime
    resource: str
    action: str
    principal_id: str
    tenant_id: str
    consumer: str = ""


ConditionEvaluator = Callable[[Any, ConditionContext], bool | Awaitable[bool]]
"""``(the grant's value, context) -> met``, sync or async."""
ConditionRegistry = Mapping[str, ConditionEvaluator]


@runtime_checkable
class GrantStore(Protocol):
    """Where a host keeps its grants. Methods may be sync or async."""

    def collect_grants(
        self, principal_id: str, tenant_id: str
    ) -> Sequence[GrantRule] | Awaitable[Sequence[GrantRule]]:
        """The principal's own rules and those of every role that it holds, in this tenant."""
        ...


@runtime_checkable
class WritableGrantStore(GrantStore, Protocol):
    """A grant store that sharing can write to."""

    def put_grant(self, rule: GrantRule) -> Awaitable[None] | None:
        """Insert, or replace by tenant and id."""
        ...


@runtime_checkable
class RevocableGrantStore(WritableGrantStore, Protocol):
    """A grant store that unsharing can take from."""

    def delete_grant(self, tenant_id: str, grant_id: str) -> bool | Awaitable[bool]:
        """Whether there was such a grant."""
        ...


@runtime_checkable
class ResourceGrantStore(GrantStore, Protocol):
    """A grant store that can drop all grants on one resource, when the thing itself is gone."""

    def delete_resource_grants(self, tenant_id: str, resource: str) -> Any:
        """Every grant whose resource is exactly this one. Sync or async; what it answers is not looked at."""
        ...


@runtime_checkable
class ReaderGrantStore(GrantStore, Protocol):
    """A grant store that knows whom a resource's own grants reach, so that they hear when it is gone."""

    def readers_of(
        self, tenant_id: str, resource: str, limit: int
    ) -> Sequence[str] | Awaitable[Sequence[str]]:
        """At most so many principals, by name or by a role, whom a grant on exactly this resource allows
        ``search``. Which other grants they have is not looked at."""
        ...


@runtime_checkable
class VersionedGrantStore(GrantStore, Protocol):
    """A grant store that says when its grants changed, so that what was collected may be kept until then."""

    def grants_version(self, tenant_id: str) -> str | int | Awaitable[str | int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What one caller may see now: its own documents, and those that its grants reach by their tags.

    ``allowed``: the tags that a grant allows. ``everything``: all tags are allowed but the ``refused`` ones,
    and ``allowed`` says nothing. ``vetoed``: tags on which a deny without wildcard decides.
    """

    principal_id: str
    allowed: frozenset[str] = frozenset()
    vetoed: frozenset[str] = frozenset()
    everything: bool = False
    refused: frozenset[str] = frozenset()

    def admits(self, *, owner: str | None, tags: Collection[str], document_id: str) -> bool:
        """Whether a document is visible: the last line after every query.

        ``owner = principal_id OR (some tag is allowed AND no tag is vetoed)``. A deny that names the document
        (``memory.doc:<id>``) vetoes it whether it carries that tag or not.
        """
        if owner is not None and owner == self.principal_id:
            return True
        if self.everything:
            reached = any(tag not in self.refused for tag in tags)
        else:
            reached = any(tag in self.allowed for tag in tags)
        vetoed = self.vetoed
        return reached and f"memory.doc:{document_id}" not in vetoed and not any(t in vetoed for t in tags)

    def tells(self, *, owner: str | None, tags: Sequence[str]) -> tuple[str, ...]:
        """Which of a document's tags the caller is shown: all of its own; of another's those that let it in,
        since the rest would tell with whom else it is shared."""
        if owner is not None and owner == self.principal_id:
            return tuple(tags)
        return tuple(
            tag for tag in tags if (tag not in self.refused if self.everything else tag in self.allowed)
        )

    def admits_version(
        self,
        *,
        active: bool,
        written: Collection[str],
        owner: str | None,
        tags: Collection[str],
        document_id: str,
    ) -> bool:
        """Whether a version is visible, ``tags`` being its document's and ``written`` those it was written with.

        An active version is seen with its document. An earlier one takes a tag that it has had since then: what
        the document has got later does not open what was there before.
        """
        if not self.admits(owner=owner, tags=tags, document_id=document_id):
            return False
        kept = [tag for tag in tags if tag in written]
        return active or self.admits(owner=owner, tags=kept, document_id=document_id)


class TaggedDocument(Protocol):
    """What decides whether a document may be seen: who created it, and its tags."""

    @property
    def created_by_principal_id(self) -> str | None: ...

    @property
    def access_tags(self) -> Sequence[str]: ...


KnownTags = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""From patterns to the tags in use in the tenant that match one of them: what a store can look up."""


@runtime_checkable
class Access(Protocol):
    """What one caller's grants say, for the time of one request. A store enforces it on its own rows."""

    @property
    def principal_id(self) -> str: ...

    async def visibility(self, known_tags: KnownTags) -> Visibility:
        """What the caller may see. ``known_tags`` is asked only when a grant with a wildcard decides."""
        ...

    async def reaches(self, action: str, tags: Collection[str]) -> bool:
        """Whether a grant allows the action on one of these tags, and none vetoes it."""
        ...
