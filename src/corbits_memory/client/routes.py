"""Every route as a function from its arguments to a :class:`Call`. docs/http.md says what the fields mean.

Values are not judged here: the server does that, and tells of every problem at once. Times are datetimes or ISO 8601.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from corbits_memory.client.calls import Call
from corbits_memory.errors import InvalidInputError
from corbits_memory.wire import context as contexts
from corbits_memory.wire import documents, feed, lifecycle, push, requests, responses

Scalar = str | int | float | bool | None
Instant = date | str
"""A datetime (or a day), or ISO 8601 text; UTC where no zone is given."""


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
        body=_body(body),
        headers=_key(idempotency_key),
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
        body={"items": [_plain(item) for item in items]},
        headers=_key(idempotency_key),
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
    as_of: Instant | None = None,
) -> Call[responses.SearchResponse]:
    """Find what answers a question, best first, among what the caller may see.

    ``evidence`` none or weak means that the hits hardly answer, not that nothing is known.
    """
    return Call(method="POST", path="/search", answer=responses.SearchResponse, body=_search_body(locals()))


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
    as_of: Instant | None = None,
) -> Call[contexts.ContextResponse]:
    """What answers a question as one text of at most ``max_tokens`` (100 to 32,000), its passages cited as ``[1]``.

    ``items`` says what each marker stands for, ``omitted`` which hits had no room.
    """
    return Call(method="POST", path="/context", answer=contexts.ContextResponse, body=_search_body(locals()))


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
        *_given(limit=limit, cursor=cursor, **_body(instants)),
        *(("kinds", kind) for kind in kinds),
    ]
    return Call(method="GET", path="/list", answer=responses.ListResponse, parameters=parameters)


def document(document_id: str) -> Call[documents.DocumentResponse]:
    """A document and its current version. Raises ``NotFoundError``, also for what the caller can't see."""
    return Call(method="GET", path=_document(document_id), answer=documents.DocumentResponse)


def history(
    document_id: str, *, limit: int | None = None, before: int | None = None
) -> Call[documents.HistoryResponse]:
    """A document's versions, newest first, and what each changed; ``next_before`` asks for the next page."""
    return Call(
        method="GET",
        path=_document(document_id, "/history"),
        answer=documents.HistoryResponse,
        parameters=_given(limit=limit, before=before),
    )


def version(
    version_id: str, *, limit: int | None = None, after: int | None = None
) -> Call[documents.VersionResponse]:
    """A version with its text, a page of chunks at a time; ``next_after`` asks for the next page."""
    return Call(
        method="GET",
        path=f"/versions/{_part(version_id)}",
        answer=documents.VersionResponse,
        parameters=_given(limit=limit, after=after),
    )


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
    return _change(_document(document_id, "/share"), responses.ShareResponse, _body(body))


def unshare(
    document_id: str,
    *,
    tenant: bool | None = None,
    principals: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
) -> Call[responses.ShareResponse]:
    """Take back what a share gave."""
    body = {"tenant": tenant, "principals": principals, "tags": tags}
    return _change(_document(document_id, "/unshare"), responses.ShareResponse, _body(body))


def forget(document_id: str, *, cascade: bool = False) -> Call[lifecycle.ForgetResponse]:
    """Erase the content of a document of the caller's, all versions. No way back."""
    return _change(_document(document_id, "/forget"), lifecycle.ForgetResponse, {"cascade": cascade})


def purge(document_id: str) -> Call[lifecycle.PurgeResponse]:
    """Remove a document with all that hangs on it. No way back. Raises ``DurableDocumentError``.

    Never sent twice by itself: once it is done, a second one is told that there is no such document.
    """
    path = _document(document_id, "/purge")
    return Call(method="POST", path=path, answer=lifecycle.PurgeResponse, repeatable=False)


def set_retention_class(version_id: str, retention_class: str) -> Call[lifecycle.RetentionClassResponse]:
    """Say how long a version is kept: ``durable``, ``standard``, ``ephemeral``, ``source_only``."""
    path = f"/versions/{_part(version_id)}/retention-class"
    return _change(path, lifecycle.RetentionClassResponse, {"retention_class": str(retention_class)})


def audit(
    *, limit: int | None = None, before: str | None = None, target_id: str | None = None
) -> Call[lifecycle.AuditResponse]:
    """Who did what, newest first; for administrators."""
    return Call(
        method="GET",
        path="/audit",
        answer=lifecycle.AuditResponse,
        parameters=_given(limit=limit, before=before, target_id=target_id),
    )


def feed_page(
    *,
    after: int = 0,
    limit: int | None = None,
    ops: Iterable[str] = (),
    exclude_generator: str | None = None,
    include_text: bool = False,
) -> Call[feed.FeedResponse]:
    """What was written after the entry numbered ``after``, in order. Ask again with ``next_cursor``.

    None there means that there is nothing new; a page may be empty and not the last (``has_more``).
    """
    parameters = [
        *_given(after=after, limit=limit),
        *feed_filters(ops, exclude_generator=exclude_generator, include_text=include_text),
    ]
    return Call(method="GET", path="/feed", answer=feed.FeedResponse, parameters=parameters)


def feed_filters(
    ops: Iterable[str], *, exclude_generator: str | None, include_text: bool
) -> list[tuple[str, str]]:
    """What of the feed is asked for, as parameters of a query."""
    return [
        *(("ops", str(op)) for op in ops),
        *_given(exclude_generator=exclude_generator, include="text" if include_text else None),
    ]


def subscribe(
    url: str,
    *,
    principal: str | None = None,
    ops: Sequence[str] | None = None,
    exclude_generator: str | None = None,
    include_text: bool | None = None,
    after: int | None = None,
) -> Call[push.SubscribeResponse]:
    """Have the feed sent to a URL; for administrators. The answer's ``secret`` is told only now.

    Never sent twice by itself: that would be two webhooks.
    """
    body = _body(locals())
    return Call(
        method="POST", path="/subscriptions", answer=push.SubscribeResponse, body=body, repeatable=False
    )


def subscriptions() -> Call[push.SubscriptionsResponse]:
    """The webhooks, and how they fare."""
    return Call(method="GET", path="/subscriptions", answer=push.SubscriptionsResponse)


def unsubscribe(subscription_id: str) -> Call[push.UnsubscribeResponse]:
    """Remove a webhook and its dead letters. Never sent twice by itself, as :func:`purge`."""
    path = _subscription(subscription_id)
    return Call(method="DELETE", path=path, answer=push.UnsubscribeResponse, repeatable=False)


def dead_letters(
    subscription_id: str, *, after: int | None = None, limit: int | None = None
) -> Call[push.DeadLettersResponse]:
    """What could not be delivered."""
    return Call(
        method="GET",
        path=_subscription(subscription_id, "/dead"),
        answer=push.DeadLettersResponse,
        parameters=_given(after=after, limit=limit),
    )


def replay(subscription_id: str, *, seqs: Sequence[int] | None = None) -> Call[push.ReplayResponse]:
    """Have dead letters sent again, all or those with these numbers."""
    return Call(
        method="POST",
        path=_subscription(subscription_id, "/replay"),
        answer=push.ReplayResponse,
        body=_body({"seqs": seqs}),
        repeatable=False,
    )


def capabilities() -> Call[responses.CapabilitiesResponse]:
    """What this memory can do, and how many of the caller's chunks have no vector yet."""
    return Call(method="GET", path="/capabilities", answer=responses.CapabilitiesResponse)


def _change(path: str, answer: type[Any], body: Mapping[str, Any]) -> Call[Any]:
    return Call(method="POST", path=path, answer=answer, body=body)


def _key(given: str | None) -> Mapping[str, str]:
    return {requests.IDEMPOTENCY_KEY_HEADER: uuid.uuid4().hex if given is None else given}


def _part(identifier: str) -> str:
    """An id as one part of a path. What would lead elsewhere is no id of anything."""
    if not (identifier or "").strip() or identifier in {".", ".."}:
        raise InvalidInputError("an id must be non-blank text")
    return quote(identifier, safe="", errors="surrogatepass")


def _document(document_id: str, end: str = "") -> str:
    return f"/documents/{_part(document_id)}{end}"


def _subscription(subscription_id: str, end: str = "") -> str:
    return f"/subscriptions/{_part(subscription_id)}{end}"


def _given(**values: Any) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items() if value is not None]


def _body(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given."""
    return {name: _plain(value) for name, value in values.items() if value is not None}


def _search_body(values: Mapping[str, Any]) -> dict[str, Any]:
    fields = requests.SearchRequest.model_fields
    return {
        (fields[name].alias or name) if name in fields else name: value
        for name, value in _body(values).items()
    }


def _plain(value: Any) -> Any:
    """In the types of JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value
