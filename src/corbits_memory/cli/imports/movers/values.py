"""From the values of foreign JSON to the fields of an add. Whatever stands there, nothing here raises by surprise."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from corbits_memory.cli.imports.files import stable_ref
from corbits_memory.cli.imports.items import Item
from corbits_memory.cli.titles import first_line
from corbits_memory.core.limits import (
    ATTRIBUTE_KEY_CHARS,
    ATTRIBUTE_VALUE_CHARS,
    ATTRIBUTES,
    SAFE_INTEGER,
    TITLE_CHARS,
)

_MILLISECONDS_FROM = 1e11
"""Beyond, a number is no time in seconds: that would be the year 5138."""
_SHORT_ZONE = re.compile(r"(\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?[+-]\d{2})$", re.ASCII)


class BadRecordError(ValueError):
    """A record that can't be a document; the message completes "… is left out since it …"."""


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text(*values: Any) -> str | None:
    """The first of them that is text and not blank."""
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def identifier(*values: Any) -> str | None:
    """The first of them that names something; numbers do, too."""
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value.strip():
            return value
    return None


def required_id(what: str, *values: Any) -> str:
    found = identifier(*values)
    if found is None:
        raise BadRecordError(f"has no {what}")
    return found


def instant(*values: Any) -> str | None:
    """The first that is there, as ISO 8601: text as it is, numbers as seconds (or milliseconds) since 1970."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return _SHORT_ZONE.sub(r"\1:00", value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool) and value:
            return _epoch(float(value))
    return None


def _epoch(seconds: float) -> str:
    try:
        scaled = seconds / 1_000 if abs(seconds) > _MILLISECONDS_FROM else seconds
        return datetime.fromtimestamp(scaled, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise BadRecordError("has a time that is none") from None


def attributes(*several: Mapping[str, Any]) -> dict[str, Any]:
    """Flat, as many as fit; earlier ones go first. Lists and objects become JSON."""
    kept: dict[str, Any] = {}
    for given in several:
        for name, value in given.items():
            fit = _scalar(value)
            usable = name.strip() and len(name) <= ATTRIBUTE_KEY_CHARS
            if fit is not None and usable and name not in kept and len(kept) < ATTRIBUTES:
                kept[name] = fit
    return kept


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        fits = math.isfinite(value) and abs(value) <= SAFE_INTEGER
        return value if fits else str(value)[:ATTRIBUTE_VALUE_CHARS]
    if isinstance(value, str):
        return value if len(value) <= ATTRIBUTE_VALUE_CHARS else None
    if isinstance(value, dict | list) and value:
        told = as_json(value)
        return told if len(told) <= ATTRIBUTE_VALUE_CHARS else None
    return None


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except RecursionError:
        raise BadRecordError("is nested too deeply") from None


def item(
    origin: str,
    defaults: Mapping[str, Any],
    *,
    adapter: str,
    ref: Iterable[str],
    text: str,
    title: str | None,
    **more: Any,
) -> Item:
    """A document; ``ref`` are the ids that name it there, outermost first."""
    own = {name: value for name, value in more.items() if value not in (None, {})}
    body = {
        **defaults,
        "title": (title or first_line(text) or "untitled").strip()[:TITLE_CHARS],
        "text": text,
        "adapter": adapter,
        "external_ref": stable_ref("/".join(ref)),
        "lineage_class": "imported",
        **own,
    }
    return Item(origin, body, len(text.encode("utf-8", "replace")))
