"""Bodies and answers of forgetting, retention and the audit."""

from pydantic import Field

from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget, RetentionClass
from corbits_memory.core.instants import iso_instant
from corbits_memory.ports import AuditPage, DerivedDocument, ForgetResult, PurgeResult, VersionState
from corbits_memory.wire.requests import Request
from corbits_memory.wire.responses import Response


class ForgetRequest(Request):
    """May be left out. A reason is not kept: it would be content."""

    cascade: bool | None = Field(
        None, description="Forget the caller's documents that were derived from it too. Default false."
    )


class RetentionClassRequest(Request):
    """How long a version is kept."""

    retention_class: RetentionClass


class DerivedResponse(Response):
    document_id: str
    version_id: str
    forgotten: bool


class ForgetResponse(Response):
    document_id: str
    versions: int = Field(description="How many were forgotten now; 0 when all had been before.")
    derived: list[DerivedResponse] = Field(
        description="What the caller may see of the documents that were derived from it; at most 1,000."
    )


class PurgeResponse(Response):
    document_id: str
    deleted: bool
    versions: int
    derived: list[DerivedResponse]


class RetentionClassResponse(Response):
    version_id: str
    document_id: str
    status: str
    retention_class: RetentionClass


class AuditEventResponse(Response):
    id: str
    at: str
    actor_id: str
    action: AuditAction
    target_type: AuditTarget
    target_id: str
    outcome: AuditOutcome
    amount: int | None = None


class AuditResponse(Response):
    events: list[AuditEventResponse]
    before: str | None = Field(None, description="Asks for the next page; absent on the last.")


def forget_response(result: ForgetResult) -> ForgetResponse:
    return ForgetResponse(
        document_id=result.document_id, versions=result.versions, derived=_derived(result.derived)
    )


def purge_response(result: PurgeResult) -> PurgeResponse:
    return PurgeResponse(
        document_id=result.document_id,
        deleted=True,
        versions=result.versions,
        derived=_derived(result.derived),
    )


def retention_class_response(state: VersionState) -> RetentionClassResponse:
    return RetentionClassResponse(
        version_id=state.version_id,
        document_id=state.document_id,
        status=state.status,
        retention_class=state.retention_class,
    )


def audit_response(page: AuditPage) -> AuditResponse:
    events = [
        AuditEventResponse(
            id=event.id,
            at=iso_instant(event.at),
            actor_id=event.actor_id,
            action=event.action,
            target_type=event.target_type,
            target_id=event.target_id,
            outcome=event.outcome,
            **({} if event.amount is None else {"amount": event.amount}),
        )
        for event in page.events
    ]
    return AuditResponse(events=events, **({} if page.before is None else {"before": page.before}))


def _derived(documents: tuple[DerivedDocument, ...]) -> list[DerivedResponse]:
    return [
        DerivedResponse(
            document_id=document.document_id, version_id=document.version_id, forgotten=document.forgotten
        )
        for document in documents
    ]
