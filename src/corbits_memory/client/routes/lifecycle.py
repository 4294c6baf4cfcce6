"""Sharing, forgetting, retention and the audit."""

from collections.abc import Sequence

from corbits_memory.client.calls import Call
from corbits_memory.client.routes.values import body_of, change, document_path, given_parameters, path_part
from corbits_memory.wire import lifecycle, responses


def share(
    document_id: str,
    *,
    tenant: bool | None = None,
    principals: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    required: bool | None = None,
) -> Call[responses.ShareResponse]:
    """Let others read a document of the caller's; ``share`` says what came of it."""
    body = {"tenant": tenant, "principals": principals, "tags": tags, "required": required}
    return change(document_path(document_id, "/share"), responses.ShareResponse, body_of(body))


def unshare(
    document_id: str,
    *,
    tenant: bool | None = None,
    principals: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
) -> Call[responses.ShareResponse]:
    """Take back what a share gave."""
    body = {"tenant": tenant, "principals": principals, "tags": tags}
    return change(document_path(document_id, "/unshare"), responses.ShareResponse, body_of(body))


def forget(document_id: str, *, cascade: bool = False) -> Call[lifecycle.ForgetResponse]:
    """Erase the content of a document of the caller's, all versions. No way back."""
    return change(document_path(document_id, "/forget"), lifecycle.ForgetResponse, {"cascade": cascade})


def purge(document_id: str) -> Call[lifecycle.PurgeResponse]:
    """Remove a document with all that hangs on it. No way back. Raises ``DurableDocumentError``.

    Never sent twice by itself: once it is done, a second one is told that there is no such document.
    """
    path = document_path(document_id, "/purge")
    return Call(method="POST", path=path, answer=lifecycle.PurgeResponse, repeatable=False)


def set_retention_class(version_id: str, retention_class: str) -> Call[lifecycle.RetentionClassResponse]:
    """Say how long a version is kept: ``durable``, ``standard``, ``ephemeral``, ``source_only``."""
    path = f"/versions/{path_part(version_id)}/retention-class"
    return change(path, lifecycle.RetentionClassResponse, {"retention_class": str(retention_class)})


def audit(
    *, limit: int | None = None, before: str | None = None, target_id: str | None = None
) -> Call[lifecycle.AuditResponse]:
    """Who did what, newest first; for administrators."""
    return Call(
        method="GET",
        path="/audit",
        answer=lifecycle.AuditResponse,
        parameters=given_parameters(limit=limit, before=before, target_id=target_id),
    )
