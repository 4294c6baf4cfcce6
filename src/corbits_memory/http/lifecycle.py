"""Routes of forgetting, retention and the audit."""

from corbits_memory.admin import MemoryAdmin
from corbits_memory.core import limits
from corbits_memory.core.enums import Capability
from corbits_memory.http.calls import Call, Operation, document_of
from corbits_memory.http.query import number, once
from corbits_memory.validation import Problems
from corbits_memory.wire import lifecycle, responses


async def forget(call: Call) -> responses.Response:
    result = await call.memory.forget(**document_of(call), cascade=call.body.get("cascade"))  # type: ignore[arg-type]
    return lifecycle.forget_response(result)


async def purge(call: Call) -> responses.Response:
    return lifecycle.purge_response(await call.memory.purge(**document_of(call)))


async def set_retention_class(call: Call) -> responses.Response:
    state = await call.memory.set_retention_class(
        tenant_id=call.caller.tenant_id,
        principal_id=call.caller.principal_id,
        version_id=call.request.path_params["version_id"],
        # Absent is told by the validation.
        retention_class=call.body.get("retention_class"),  # type: ignore[arg-type]
    )
    return lifecycle.retention_class_response(state)


async def audit(call: Call) -> responses.Response:
    problems = Problems()
    limit = number(call, problems, "limit", low=1, high=limits.AUDIT_LIMIT_MAX)
    before = once(call, problems, "before")
    target = once(call, problems, "target_id")
    problems.raise_if_any()
    page = await MemoryAdmin(call.memory).audit(
        tenant_id=call.caller.tenant_id,
        actor=call.caller.principal_id,
        limit=limits.AUDIT_LIMIT_DEFAULT if limit is None else limit,
        before=before,
        target_id=target,
    )
    return lifecycle.audit_response(page)


_ID = {"type": "string", "maxLength": limits.ID_CHARS, "pattern": r"^[\x21-\x7e]*$"}

LIFECYCLE_OPERATIONS = (
    Operation(
        id="memory_forget",
        method="POST",
        path="/documents/{document_id}/forget",
        capability=Capability.FORGET,
        summary="Erase the content of a document of yours",
        handle=forget,
        request=lifecycle.ForgetRequest,
        response=lifecycle.ForgetResponse,
    ),
    Operation(
        id="memory_purge",
        method="POST",
        path="/documents/{document_id}/purge",
        capability=Capability.PURGE,
        summary="Remove a document of yours with all that hangs on it",
        handle=purge,
        response=lifecycle.PurgeResponse,
    ),
    Operation(
        id="memory_retention_class",
        method="POST",
        path="/versions/{version_id}/retention-class",
        capability=Capability.FORGET,
        summary="Say how long a version is kept",
        handle=set_retention_class,
        request=lifecycle.RetentionClassRequest,
        response=lifecycle.RetentionClassResponse,
    ),
    Operation(
        id="memory_audit",
        method="GET",
        path="/audit",
        capability=Capability.ADMIN,
        summary="Who did what, newest first",
        handle=audit,
        response=lifecycle.AuditResponse,
        query=(
            {
                "name": "limit",
                "in": "query",
                "description": f"Decimal digits. Default {limits.AUDIT_LIMIT_DEFAULT}.",
                "schema": {"type": "integer", "minimum": 1, "maximum": limits.AUDIT_LIMIT_MAX},
            },
            {
                "name": "before",
                "in": "query",
                "description": "The `before` of the page that came before.",
                "schema": _ID,
            },
            {
                "name": "target_id",
                "in": "query",
                "description": "Only what was done to the thing with this id.",
                "schema": _ID,
            },
        ),
    ),
)
