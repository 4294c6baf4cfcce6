"""From Python values to what a request is made of."""

import uuid
from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from corbits_memory.client.calls import Call
from corbits_memory.errors import InvalidInputError
from corbits_memory.wire import requests

Scalar = str | int | float | bool | None
Instant = date | str
"""A datetime (or a day), or ISO 8601 text; UTC where no zone is given."""


def change(path: str, answer: type[Any], body: Mapping[str, Any]) -> Call[Any]:
    return Call(method="POST", path=path, answer=answer, body=body)


def idempotency_headers(given: str | None) -> Mapping[str, str]:
    return {requests.IDEMPOTENCY_KEY_HEADER: uuid.uuid4().hex if given is None else given}


def path_part(identifier: str) -> str:
    """An id as one part of a path. What would lead elsewhere is no id of anything."""
    if not (identifier or "").strip() or identifier in {".", ".."}:
        raise InvalidInputError("an id must be non-blank text")
    return quote(identifier, safe="", errors="surrogatepass")


def document_path(document_id: str, end: str = "") -> str:
    return f"/documents/{path_part(document_id)}{end}"


def subscription_path(subscription_id: str, end: str = "") -> str:
    return f"/subscriptions/{path_part(subscription_id)}{end}"


def given_parameters(**values: Any) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items() if value is not None]


def body_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given."""
    return {name: plain(value) for name, value in values.items() if value is not None}


def search_body(values: Mapping[str, Any]) -> dict[str, Any]:
    fields = requests.SearchRequest.model_fields
    return {
        (fields[name].alias or name) if name in fields else name: value
        for name, value in body_of(values).items()
    }


def plain(value: Any) -> Any:
    """In the types of JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value
