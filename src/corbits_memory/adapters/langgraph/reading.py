"""What reading items comes to: requests, and what their answers say."""

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    Result,
    SearchItem,
    SearchOp,
)

from corbits_memory.adapters.langgraph.filters import common_prefix, matches, passes
from corbits_memory.adapters.langgraph.names import (
    Namespace,
    behind_items,
    prefix_of,
    read_reference,
    reference_of,
)
from corbits_memory.client import Call, routes
from corbits_memory.core import limits
from corbits_memory.wire.documents import DocumentResponse, LookupResponse

ADAPTER = "langgraph"
KIND, UNINDEXED_KIND = "langgraph.item", "langgraph.unindexed"
LEVEL = "langgraph.{}"
"""The attribute that holds how references of a namespace's level begin; the level's number stands in it."""

T = TypeVar("T")
Steps = Generator[Call[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Found:
    """An item as it is stored, and the document that holds it."""

    item: Item
    document_id: str
    reference: str


def get_all(asked: Sequence[Op], results: list[Result], principal: str, now: datetime) -> Steps[None]:
    wanted = {
        place: reference_of(principal, op.namespace, op.key)
        for place, op in enumerate(asked)
        if isinstance(op, GetOp)
    }
    found = yield from _by_reference(list(dict.fromkeys(wanted.values())), principal, now)
    for place, reference in wanted.items():
        one = found.get(reference)
        results[place] = None if one is None else one.item


def _by_reference(references: Sequence[str], principal: str, now: datetime) -> Steps[dict[str, Found]]:
    found: dict[str, Found] = {}
    for start in range(0, len(references), limits.LOOKUP_REFS):
        for page in pages(
            principal, external_refs=references[start : start + limits.LOOKUP_REFS], with_text=True
        ):
            found |= {one.reference: one for one in _items((yield from page), now)}
    return found


def search(op: SearchOp, principal: str, now: datetime) -> Steps[list[SearchItem]]:
    """Ranked hits, and behind them, without a score, what else is there: a filter never makes an answer short."""
    first, most = max(op.offset, 0), max(op.limit, 0)
    prefix = prefix_of(principal, tuple(op.namespace_prefix))
    kept: list[SearchItem] = []
    ranked: set[str] = set()
    if most and op.query and op.query.strip():
        hits = yield from _ranked(op.query, prefix, len(op.namespace_prefix), now)
        found = yield from _by_reference(list(hits), principal, now)
        ranked = set(found)
        kept = [
            _search_item(found[reference].item, score)
            for reference, score in hits.items()
            if reference in found and passes(found[reference].item.value, op.filter)
        ]
    if len(kept) < first + most:
        for page in pages(
            principal, prefix=prefix, with_text=True, limit=min(first + most, limits.LOOKUP_LIMIT_MAX)
        ):
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


def namespaces(op: ListNamespacesOp, principal: str, now: datetime) -> Steps[list[Namespace]]:
    conditions = list(op.match_conditions or ())
    prefix = prefix_of(principal, common_prefix(conditions))
    found: set[Namespace] = set()
    after: str | None = ""
    while after is not None:
        page = yield routes.lookup(ADAPTER, prefix=prefix, after=after or None, limit=limits.LOOKUP_LIMIT_MAX)
        live = [
            one.external_ref for one in page.documents if one.owner == principal and not has_expired(one, now)
        ]
        found |= {read_reference(reference)[0] for reference in live}
        after = page.next_after
        if after is not None and live and live[-1] == after:
            # More items of a namespace that is known by now tell nothing.
            after = behind_items(after)
    shown = {namespace[: op.max_depth] for namespace in found if matches(namespace, conditions)}
    first = max(op.offset, 0)
    return sorted(shown)[first : first + max(op.limit, 0)]


def pages(
    principal: str,
    *,
    external_refs: Sequence[str] | None = None,
    prefix: str | None = None,
    with_text: bool = False,
    limit: int = limits.LOOKUP_LIMIT_MAX,
) -> Iterator[Steps[list[DocumentResponse]]]:
    """Pages of the principal's own documents, each to be asked for with ``yield from``.

    Others can share documents with it that have the names of its items.
    """
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
        return [one for one in answer.documents if one.owner == principal]

    yield page()
    while after[0] is not None:
        yield page()


def _items(documents: Iterable[DocumentResponse], now: datetime) -> list[Found]:
    return [_found(one) for one in documents if one.text is not None and not has_expired(one, now)]


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


def has_expired(document: DocumentResponse, now: datetime) -> bool:
    until = document.current.valid_until
    return until is not None and _instant(until) <= now


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
