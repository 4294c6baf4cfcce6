"""What writing and deleting items comes to."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from langgraph.store.base import (
    PutOp,
    get_text_at_path,
)

from corbits_memory.adapters.langgraph.names import (
    prefix_of,
    reference_of,
)
from corbits_memory.adapters.langgraph.reading import ADAPTER, KIND, LEVEL, UNINDEXED_KIND, Steps, pages
from corbits_memory.client import routes
from corbits_memory.client.policy import told_error
from corbits_memory.core import limits
from corbits_memory.errors import InvalidInputError, NotFoundError
from corbits_memory.wire.responses import ErrorResponse

BATCH_BYTES = limits.BODY_BYTES * 9 // 10
"""Of the items of one request; what stands around them has room in the rest."""


def put_all(ops: Sequence[PutOp], principal: str, now: datetime) -> Steps[None]:
    last = {reference_of(principal, op.namespace, op.key): op for op in ops}
    bodies = [_body(reference, op, principal, now) for reference, op in last.items() if op.value is not None]
    yield from _delete([reference for reference, op in last.items() if op.value is None], principal)
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


def _delete(references: Sequence[str], principal: str) -> Steps[None]:
    for start in range(0, len(references), limits.LOOKUP_REFS):
        for page in pages(principal, external_refs=references[start : start + limits.LOOKUP_REFS]):
            for document in (yield from page):
                yield from forget(document.document_id)


def forget(document_id: str) -> Steps[None]:
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
