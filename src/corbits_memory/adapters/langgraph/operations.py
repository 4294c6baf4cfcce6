"""What operations of a store come to: requests, one after the other. No I/O, so that one description serves both
colours: a generator yields a call and is sent its answer."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)

from corbits_memory.adapters.langgraph.filters import check_filter, common_prefix, matches, passes
from corbits_memory.adapters.langgraph.names import (
    Namespace,
    behind_items,
    prefix_of,
    read_reference,
    reference_of,
)
from corbits_memory.client import Call, routes
from corbits_memory.client.policy import told_error
from corbits_memory.core import limits
from corbits_memory.errors import InvalidInputError, NotFoundError
from corbits_memory.wire.documents import DocumentResponse, LookupResponse
from corbits_memory.wire.responses import ErrorResponse

ADAPTER = "langgraph"
KIND, UNINDEXED_KIND = "langgraph.item", "langgraph.unindexed"
LEVEL = "langgraph.{}"
"""The attribute that holds how references of a namespace's level begin; the level's number stands in it."""

BATCH_BYTES = limits.BODY_BYTES * 9 // 10
"""Of the items of one request; what stands around them has room in the rest."""

T = TypeVar("T")
Steps = Generator[Call[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Found:
    """An item as it is stored, and the document that holds it."""

    item: Item
    document_id: str
    reference: str


class Operations:
    """The operations of one principal; who that is, is asked once."""

    def __init__(self) -> None:
        self._principal: str | None = None

    def batch(self, ops: Iterable[Op], *, now: datetime) -> Steps[list[Result]]:
        """All reads first, and then the writes, as LangGraph's own stores do; of several writes of an item the last.

        Everything is checked before anything is sent.
        """
        asked = list(ops)
        for op in asked:
            _check(op)
        principal = yield from self._who()
        results: list[Result] = [None] * len(asked)
        yield from _get_all(asked, results, principal, now)
        for place, op in enumerate(asked):
            if isinstance(op, SearchOp):
                results[place] = yield from _search(op, principal, now)
            elif isinstance(op, ListNamespacesOp):
                results[place] = yield from _namespaces(op, principal, now)
        yield from _put_all([op for op in asked if isinstance(op, PutOp)], principal, now)
        return results

    def sweep(self, *, now: datetime) -> Steps[int]:
        """Forget what has expired; how many items."""
        principal = yield from self._who()
        expired = []
        for page in _pages(prefix=prefix_of(principal, ())):
            documents = yield from page
            expired += [one.document_id for one in documents if _has_expired(one, now)]
        for document_id in expired:
            yield from _forget(document_id)
        return len(expired)

    def _who(self) -> Steps[str]:
        if self._principal is None:
            told = yield routes.capabilities()
            self._principal = told.principal_id
        return self._principal


def _check(op: Op) -> None:
    """Raises ``InvalidNamespaceError`` and ``InvalidInputError``, the same for every kind of operation."""
    if not isinstance(op, (GetOp, PutOp, SearchOp, ListNamespacesOp)):
        raise InvalidInputError(f"unknown operation: {type(op).__name__}")
    validate_op_namespace(op)
    if isinstance(op, SearchOp):
        check_filter(op.filter)
    elif isinstance(op, PutOp) and op.value is not None:
        if not isinstance(op.value, Mapping):
            raise InvalidInputError("a value must be a mapping")
        if op.ttl is not None and not 0 < op.ttl < timedelta.max.total_seconds() / 60 / 1_000:
            raise InvalidInputError("ttl must be minutes above 0")


# --- reading ---


def _get_all(asked: Sequence[Op], results: list[Result], principal: str, now: datetime) -> Steps[None]:
    wanted = {
        place: reference_of(principal, op.namespace, op.key)
        for place, op in enumerate(asked)
        if isinstance(op, GetOp)
    }
    found = yield from _by_reference(list(dict.fromkeys(wanted.values())), now)
    for place, reference in wanted.items():
        one = found.get(reference)
        results[place] = None if one is None else one.item


def _by_reference(references: Sequence[str], now: datetime) -> Steps[dict[str, Found]]:
    found: dict[str, Found] = {}
    for start in range(0, len(references), limits.LOOKUP_REFS):
        for page in _pages(external_refs=references[start : start + limits.LOOKUP_REFS], with_text=True):
            found |= {one.reference: one for one in _items((yield from page), now)}
    return found


def _search(op: SearchOp, principal: str, now: datetime) -> Steps[list[SearchItem]]:
    """Ranked hits, and behind them, without a score, what else is there: a filter never makes an answer short."""
    first, most = max(op.offset, 0), max(op.limit, 0)
    prefix = prefix_of(principal, tuple(op.namespace_prefix))
    kept: list[SearchItem] = []
    ranked: set[str] = set()
    if most and op.query and op.query.strip():
        hits = yield from _ranked(op.query, prefix, len(op.namespace_prefix), now)
        found = yield from _by_reference(list(hits), now)
        ranked = set(found)
        kept = [
            _search_item(found[reference].item, score)
            for reference, score in hits.items()
            if reference in found and passes(found[reference].item.value, op.filter)
        ]
    if len(kept) < first + most:
        for page in _pages(prefix=prefix, with_text=True, limit=min(first + most, limits.LOOKUP_LIMIT_MAX)):
            rest = _items((yield from page), now)
            kept += [
                _search_item(one.item, None)
                for one in rest
                if one.reference not in ranked and passes(one.item.value, op.filter)
            ]
            if len(kept) >= first + most:
                break
    return kept[first : first + most]


def _ranked(query: str, prefix: str, level: int, now: datetime) -> Steps[dict[str, float]]:
    """The best hits of the memory in a namespace: scores by reference, best first."""
    answer = yield routes.search(
        query[: limits.QUERY_CHARS],
        limit=limits.SEARCH_LIMIT_MAX,
        kinds=[KIND],
        sources=["local"],
        attributes={LEVEL.format(level): prefix},
    )
    return {item.external_ref: item.score for item in answer.items}


def _namespaces(op: ListNamespacesOp, principal: str, now: datetime) -> Steps[list[Namespace]]:
    conditions = list(op.match_conditions or ())
    prefix = prefix_of(principal, common_prefix(conditions))
    found: set[Namespace] = set()
    after: str | None = ""
    while after is not None:
        page = yield routes.lookup(ADAPTER, prefix=prefix, after=after or None, limit=limits.LOOKUP_LIMIT_MAX)
        live = [one.external_ref for one in page.documents if not _has_expired(one, now)]
        found |= {read_reference(reference)[0] for reference in live}
        after = page.next_after
        if after is not None and live and live[-1] == after:
            # More items of a namespace that is known by now tell nothing.
            after = behind_items(after)
    shown = {namespace[: op.max_depth] for namespace in found if matches(namespace, conditions)}
    first = max(op.offset, 0)
    return sorted(shown)[first : first + max(op.limit, 0)]


def _pages(
    *,
    external_refs: Sequence[str] | None = None,
    prefix: str | None = None,
    with_text: bool = False,
    limit: int = limits.LOOKUP_LIMIT_MAX,
) -> Iterator[Steps[list[DocumentResponse]]]:
    """Pages of documents, each to be asked for with ``yield from``."""
    after: list[str | None] = [None]

    def page() -> Steps[list[DocumentResponse]]:
        answer: LookupResponse = yield routes.lookup(
            ADAPTER,
            external_refs=external_refs,
            prefix=prefix,
            after=after[0],
            limit=limit,
            include_text=with_text or None,
        )
        after[0] = answer.next_after
        return answer.documents

    yield page()
    while after[0] is not None:
        yield page()


def _items(documents: Iterable[DocumentResponse], now: datetime) -> list[Found]:
    return [_found(one) for one in documents if one.text is not None and not _has_expired(one, now)]


def _found(document: DocumentResponse) -> Found:
    namespace, key = read_reference(document.external_ref)
    item = Item(
        value=json.loads(document.text or "{}"),
        key=key,
        namespace=namespace,
        created_at=_instant(document.created_at),
        updated_at=_instant(document.current.ingested_at),
    )
    return Found(item, document.document_id, document.external_ref)


def _search_item(item: Item, score: float | None) -> SearchItem:
    return SearchItem(
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=score,
    )


def _has_expired(document: DocumentResponse, now: datetime) -> bool:
    until = document.current.valid_until
    return until is not None and _instant(until) <= now


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- writing ---


def _put_all(ops: Sequence[PutOp], principal: str, now: datetime) -> Steps[None]:
    last = {reference_of(principal, op.namespace, op.key): op for op in ops}
    bodies = [_body(reference, op, principal, now) for reference, op in last.items() if op.value is not None]
    yield from _delete([reference for reference, op in last.items() if op.value is None])
    for batch in _batches(bodies):
        answer = yield routes.add_batch(batch)
        for result in answer.results:
            if isinstance(result, ErrorResponse):
                # The others of the batch are kept. Putting all again is safe.
                raise told_error(result.error.code, result.error.message, details=result.error.details)


def _batches(bodies: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As many as one request takes; one that is too large by itself is left to the server to refuse."""
    batch: list[dict[str, Any]] = []
    room = BATCH_BYTES
    for body in bodies:
        size = len(json.dumps(body))
        if batch and (size > room or len(batch) == limits.BATCH_ITEMS):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(body)
        room -= size
    if batch:
        yield batch


def _delete(references: Sequence[str]) -> Steps[None]:
    for start in range(0, len(references), limits.LOOKUP_REFS):
        for page in _pages(external_refs=references[start : start + limits.LOOKUP_REFS]):
            for document in (yield from page):
                yield from _forget(document.document_id)


def _forget(document_id: str) -> Steps[None]:
    try:
        yield routes.forget(document_id)
    except NotFoundError:
        # Somebody else was faster.
        return


def _body(reference: str, op: PutOp, principal: str, now: datetime) -> dict[str, Any]:
    namespace = tuple(op.namespace)
    levels = {
        LEVEL.format(level): prefix_of(principal, namespace[:level]) for level in range(len(namespace) + 1)
    }
    body: dict[str, Any] = {
        "title": _title(op),
        "text": _text(op.value),
        "kind": UNINDEXED_KIND if op.index is False else KIND,
        "adapter": ADAPTER,
        "external_ref": reference,
        "attributes": levels,
    }
    if op.ttl is not None:
        body["valid_until"] = (now + timedelta(minutes=op.ttl)).isoformat()
    return body


def _title(op: PutOp) -> str:
    """What an item is found by first: the fields that it is to be indexed by, else its key."""
    named = op.index if isinstance(op.index, list) else []
    texts = [text for path in named for text in get_text_at_path(op.value, path)]
    title = " ".join(" · ".join(texts).split())[: limits.TITLE_CHARS].strip()
    # A key of blanks alone is no title.
    return title or op.key[: limits.TITLE_CHARS].strip() or "item"


def _text(value: Any) -> str:
    """The value as JSON. Raises ``InvalidInputError`` for one that JSON can't hold."""
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError("a value must be of JSON: " + type(error).__name__) from None
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half characters live on as escapes.
        return json.dumps(dict(value))
    return text
