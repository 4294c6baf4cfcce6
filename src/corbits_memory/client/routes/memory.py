"""Adding, finding and reading."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corbits_memory.client.calls import Call, Upload
from corbits_memory.client.routes.values import (
    Instant,
    Scalar,
    body_of,
    document_path,
    given_parameters,
    idempotency_headers,
    path_part,
    plain,
    search_body,
)
from corbits_memory.wire import context as contexts
from corbits_memory.wire import documents, requests, responses


def add(
    *,
    title: str,
    text: str,
    kind: str | None = None,
    access_tags: Sequence[str] | None = None,
    share: requests.ShareSugar | Mapping[str, Any] | None = None,
    generator_agent_id: str | None = None,
    provenance: str | None = None,
    lineage_class: str | None = None,
    temporal_class: str | None = None,
    retention_class: str | None = None,
    derived_from: Sequence[str] | None = None,
    supports: Sequence[str] | None = None,
    contradicts: Sequence[str] | None = None,
    valid_from: Instant | None = None,
    valid_until: Instant | None = None,
    occurred_at: Instant | None = None,
    external_ref: str | None = None,
    adapter: str | None = None,
    thread: str | None = None,
    author: str | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    language: str | None = None,
    idempotency_key: str | None = None,
) -> Call[responses.AddResponse]:
    """Remember one document. When this returns, its text is durable and found by its words.

    A retry after a lost answer writes nothing twice: each call has an ``idempotency_key`` of its own, unless you give
    one, as you should where your own code may call again (a job that is retried).
    """
    body = {name: value for name, value in locals().items() if name != "idempotency_key"}
    return Call(
        method="POST",
        path="/add",
        answer=responses.AddResponse,
        body=body_of(body),
        headers=idempotency_headers(idempotency_key),
        own_key=idempotency_key is None,
    )


def add_file(
    data: bytes,
    *,
    filename: str,
    mime_type: str | None = None,
    title: str | None = None,
    kind: str | None = None,
    access_tags: Sequence[str] | None = None,
    share: requests.ShareSugar | Mapping[str, Any] | None = None,
    generator_agent_id: str | None = None,
    provenance: str | None = None,
    lineage_class: str | None = None,
    temporal_class: str | None = None,
    retention_class: str | None = None,
    derived_from: Sequence[str] | None = None,
    supports: Sequence[str] | None = None,
    contradicts: Sequence[str] | None = None,
    valid_from: Instant | None = None,
    valid_until: Instant | None = None,
    occurred_at: Instant | None = None,
    external_ref: str | None = None,
    adapter: str | None = None,
    thread: str | None = None,
    author: str | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    language: str | None = None,
    idempotency_key: str | None = None,
) -> Call[responses.AddResponse]:
    """Remember one file (PDF, DOCX, HTML, Markdown, plain text), at most ten megabytes with its fields.

    ``filename`` tells what it is where ``mime_type`` doesn't, and is its title where neither ``title`` nor the file
    itself has one. Retries are as in :func:`add`.
    """
    apart = {"data", "filename", "mime_type", "idempotency_key"}
    body = {name: value for name, value in locals().items() if name not in {*apart, "apart"}}
    return Call(
        method="POST",
        path="/add/file",
        answer=responses.AddResponse,
        body=body_of(body),
        file=Upload(data=data, filename=filename, mime_type=mime_type),
        headers=idempotency_headers(idempotency_key),
        own_key=idempotency_key is None,
    )


def add_batch(
    items: Iterable[requests.AddRequest | Mapping[str, Any]], *, idempotency_key: str | None = None
) -> Call[responses.AddBatchResponse]:
    """Remember up to 1,000 documents; ``results`` has an answer or an error for each, in order.

    A retry answers what was kept before and judges anew what was refused.
    """
    return Call(
        method="POST",
        path="/add/batch",
        answer=responses.AddBatchResponse,
        body={"items": [plain(item) for item in items]},
        headers=idempotency_headers(idempotency_key),
        own_key=idempotency_key is None,
    )


def search(
    query: str,
    *,
    limit: int | None = None,
    kinds: Sequence[str] | None = None,
    entity_ids: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    include_evidence: bool | None = None,
    include_deprecated: bool | None = None,
    profile: str | None = None,
    explain: bool | None = None,
    generation: str | None = None,
    occurred_after: Instant | None = None,
    occurred_before: Instant | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    max_per_document: int | None = None,
    valid_at: Instant | None = None,
    as_of: Instant | None = None,
    sample: bool | None = None,
    min_evidence: str | None = None,
    cursor: str | None = None,
) -> Call[responses.SearchResponse]:
    """Find what answers a question, best first, among what the caller may see.

    ``evidence`` none or weak means that the hits hardly answer, not that nothing is known.
    ``min_evidence``, strong or weak, leaves out hits that are less. ``cursor``, the ``next_cursor`` of an answer, asks
    the same question for the hits after those.
    """
    return Call(method="POST", path="/search", answer=responses.SearchResponse, body=search_body(locals()))


def context(
    query: str,
    *,
    max_tokens: int | None = None,
    limit: int | None = None,
    kinds: Sequence[str] | None = None,
    entity_ids: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    include_evidence: bool | None = None,
    include_deprecated: bool | None = None,
    profile: str | None = None,
    explain: bool | None = None,
    generation: str | None = None,
    occurred_after: Instant | None = None,
    occurred_before: Instant | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    max_per_document: int | None = None,
    valid_at: Instant | None = None,
    as_of: Instant | None = None,
    sample: bool | None = None,
    min_evidence: str | None = None,
) -> Call[contexts.ContextResponse]:
    """What answers a question as one text of at most ``max_tokens`` (100 to 32,000), its passages cited as ``[1]``.

    ``items`` says what each marker stands for, ``omitted`` which hits had no room.
    """
    return Call(method="POST", path="/context", answer=contexts.ContextResponse, body=search_body(locals()))


def list_documents(
    *,
    limit: int | None = None,
    kinds: Iterable[str] = (),
    cursor: str | None = None,
    occurred_after: Instant | None = None,
    occurred_before: Instant | None = None,
    as_of: Instant | None = None,
) -> Call[responses.ListResponse]:
    """The newest documents that the caller may see, 1 to 100 (default 20); ``next_cursor`` asks for the next page."""
    instants = {"occurred_after": occurred_after, "occurred_before": occurred_before, "as_of": as_of}
    parameters = [
        *given_parameters(limit=limit, cursor=cursor, **body_of(instants)),
        *(("kinds", kind) for kind in kinds),
    ]
    return Call(method="GET", path="/list", answer=responses.ListResponse, parameters=parameters)


def document(document_id: str) -> Call[documents.DocumentResponse]:
    """A document and its current version. Raises ``NotFoundError``, also for what the caller can't see."""
    return Call(method="GET", path=document_path(document_id), answer=documents.DocumentResponse)


def lookup(
    adapter: str,
    *,
    external_refs: Sequence[str] | None = None,
    prefix: str | None = None,
    after: str | None = None,
    limit: int | None = None,
    include_text: bool | None = None,
) -> Call[documents.LookupResponse]:
    """Documents by the names that their source gave them, 1 to 100 a page; ``next_after`` asks for the next one."""
    return Call(method="POST", path="/lookup", answer=documents.LookupResponse, body=body_of(locals()))


def history(
    document_id: str, *, limit: int | None = None, before: int | None = None
) -> Call[documents.HistoryResponse]:
    """A document's versions, newest first, and what each changed; ``next_before`` asks for the next page."""
    return Call(
        method="GET",
        path=document_path(document_id, "/history"),
        answer=documents.HistoryResponse,
        parameters=given_parameters(limit=limit, before=before),
    )


def version(
    version_id: str, *, limit: int | None = None, after: int | None = None
) -> Call[documents.VersionResponse]:
    """A version with its text, a page of chunks at a time; ``next_after`` asks for the next page."""
    return Call(
        method="GET",
        path=f"/versions/{path_part(version_id)}",
        answer=documents.VersionResponse,
        parameters=given_parameters(limit=limit, after=after),
    )


def capabilities() -> Call[responses.CapabilitiesResponse]:
    """What this memory can do, and how many of the caller's chunks have no vector yet."""
    return Call(method="GET", path="/capabilities", answer=responses.CapabilitiesResponse)
