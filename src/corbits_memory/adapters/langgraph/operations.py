"""What operations of a store come to: requests, one after the other. No I/O, so that one description serves both
colours: a generator yields a call and is sent its answer."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from langgraph.store.base import (
    GetOp,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchOp,
    validate_op_namespace,
)

from corbits_memory.adapters.langgraph.filters import check_filter
from corbits_memory.adapters.langgraph.names import (
    prefix_of,
)
from corbits_memory.adapters.langgraph.reading import Steps, get_all, has_expired, namespaces, pages, search
from corbits_memory.adapters.langgraph.writing import forget, put_all
from corbits_memory.client import routes
from corbits_memory.errors import InvalidInputError


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
        yield from get_all(asked, results, principal, now)
        for place, op in enumerate(asked):
            if isinstance(op, SearchOp):
                results[place] = yield from search(op, principal, now)
            elif isinstance(op, ListNamespacesOp):
                results[place] = yield from namespaces(op, principal, now)
        yield from put_all([op for op in asked if isinstance(op, PutOp)], principal, now)
        return results

    def sweep(self, *, now: datetime) -> Steps[int]:
        """Forget what has expired; how many items."""
        principal = yield from self._who()
        expired: list[str] = []
        for page in pages(principal, prefix=prefix_of(principal, ())):
            documents = yield from page
            expired += [one.external_ref for one in documents if has_expired(one, now)]
        swept = 0
        for reference in expired:
            # Once more: it may have been written anew since.
            for page in pages(principal, external_refs=[reference]):
                for document in (yield from page):
                    if has_expired(document, now):
                        yield from forget(document.document_id)
                        swept += 1
        return swept

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
