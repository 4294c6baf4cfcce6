"""What forgetting, retention and the audit answer."""

from dataclasses import dataclass
from datetime import datetime

from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget, RetentionClass


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedDocument:
    """A document that was made from another one, and its newest version that says so."""

    document_id: str
    version_id: str
    forgotten: bool = False
    """Forgotten along with its source now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetResult:
    """``versions``: how many were forgotten now. ``derived``: what the caller may see of what was made from
    them, directly or by way of others, and is not forgotten yet or was now; at most 1,000."""

    document_id: str
    versions: int
    derived: tuple[DerivedDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """``versions``: how many rows of versions are gone. ``derived`` as in :class:`ForgetResult`."""

    document_id: str
    versions: int
    derived: tuple[DerivedDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedDocument:
    """A document of somebody's. ``held``: a durable version of it is not forgotten."""

    document_id: str
    versions: int
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalPurge:
    """What a person owned: ``documents`` and their ``versions`` that are gone, or would go in a ``dry_run``;
    ``held``: documents that durable versions keep."""

    principal_id: str
    documents: int
    versions: int
    held: int
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionState:
    """A version after a change of its retention class or status."""

    version_id: str
    document_id: str
    status: str
    retention_class: RetentionClass


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    versions_deprecated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Who did what to which id, when, and what came of it. Holds no content."""

    id: str
    at: datetime
    actor_id: str
    action: AuditAction
    target_type: AuditTarget
    target_id: str
    outcome: AuditOutcome
    amount: int | None = None
    """How many of what it was about, like versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Events, newest first. ``before`` asks for the next page; None: there is none."""

    events: tuple[AuditEvent, ...]
    before: str | None = None
