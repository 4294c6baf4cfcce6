"""LangGraph: items of a store, as its search answers them or as rows of its Postgres table ``store``."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from corbits_memory.cli.imports.items import Found
from corbits_memory.cli.imports.movers.records import Record
from corbits_memory.cli.imports.movers.values import (
    BadRecordError,
    as_json,
    attributes,
    instant,
    item,
    mapping,
    required_id,
    text,
)

ADAPTER = "langgraph"
ARRAYS = frozenset({"items", "results", "store"})
_TEXTS = ("text", "content", "memory", "data")
_SCALARS = (str, int, float, bool, type(None))


def read(record: Record, defaults: Mapping[str, Any]) -> Iterator[Found]:
    """A value with a text and nothing but scalars beside it is that text; any other is kept whole, as JSON."""
    given = mapping(record.value)
    namespace = _namespace(given)
    key = required_id("key", given.get("key"))
    value = _value(given.get("value"))
    said, rest = _text_of(value)
    yield item(
        record.origin,
        defaults,
        adapter=ADAPTER,
        ref=[".".join(map(_label, namespace)), key],
        text=said,
        title=text(rest.get("title"), rest.get("name")) or (key if said.startswith("{") else None),
        kind="memory",
        occurred_at=instant(given.get("created_at"), given.get("createdAt"), given.get("updated_at")),
        valid_until=instant(given.get("expires_at")),
        attributes=attributes(
            {"namespace": ".".join(namespace), "key": key, "updated_at": given.get("updated_at")}, rest
        ),
    )


def _namespace(given: Mapping[str, Any]) -> list[str]:
    labels = given.get("namespace", given.get("prefix"))
    if isinstance(labels, str):
        labels = labels.split(".")
    if (
        not isinstance(labels, list)
        or not labels
        or not all(isinstance(label, str) and label for label in labels)
    ):
        raise BadRecordError("has no namespace")
    return labels


def _label(label: str) -> str:
    """Labels have no dots; their slashes are escaped, so that the key's may stay."""
    return label.replace("%", "%25").replace("/", "%2F")


def _value(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):  # a column of JSON that was exported as text
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = {"text": value}
    if not isinstance(value, dict) or not value:
        raise BadRecordError("has no value")
    return value


def _text_of(value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The text, and what stands beside it."""
    for name in _TEXTS:
        # langmem puts a memory's fields under its content: {"kind": "Memory", "content": {"content": "…"}}
        inner = value.get(name)
        if isinstance(inner, dict) and set(inner) == {name}:
            inner = inner[name]
        said, rest = text(inner), {key: given for key, given in value.items() if key != name}
        if said is not None and all(isinstance(given, _SCALARS) for given in rest.values()):
            return said, rest
    only = text(*value.values()) if len(value) == 1 else None
    return (only, {}) if only is not None else (as_json(value), {})
