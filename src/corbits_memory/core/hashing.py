"""Canonical JSON and the hashes that decide what is the same."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import rfc8785

from corbits_memory.core.limits import SAFE_INTEGER

MODEL_KEY_CHARS = 16


class CanonicalJsonError(ValueError):
    """The value has no canonical JSON; the message names the path."""


def canonical_json(value: Any) -> str:
    """RFC 8785 text of a JSON value (str, int, float, bool, None, mappings with text keys, sequences).

    Raises :class:`CanonicalJsonError` for what JSON can't hold exactly: integers beyond ±(2**53 - 1), NaN,
    infinities, lone surrogates, and other types.
    """
    if _is_simple(value):
        # Simple values are written as RFC 8785 has it, many times faster than by the library. Lone surrogates are the
        # one thing left that JSON can't hold; below they are found and named.
        with suppress(orjson.JSONEncodeError):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return rfc8785.dumps(_plain(value, "$")).decode("utf-8")


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def compat_content_hash(
    *, title: str, kind: str, external_ref: str, attributes: Mapping[str, Any] | None, chunks: Iterable[str]
) -> str:
    """The original's content hash: five fields joined with one space, texts with nothing.

    Known to collide (``"a b", "c"`` and ``"a", "b c"``); :func:`noop_key` decides what is unchanged.
    """
    fields = (title, kind, external_ref, canonical_json(dict(attributes or {})), "".join(chunks))
    return sha256_hex(" ".join(fields))


def source_hash(*, adapter: str, occurred_at: str, document: Mapping[str, Any]) -> str:
    """The key of a raw capture: adapter, its ISO instant and the document as received."""
    return sha256_hex(
        canonical_json({"adapter": adapter, "occurredAt": occurred_at, "document": dict(document)})
    )


def model_key(base_url: str, model: str) -> str:
    """16 hex characters that name a vector space by its endpoint and model."""
    return sha256_hex(f"{base_url}|{model}")[:MODEL_KEY_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFields:
    """What makes a repeat the same content. Access tags are not part of it: they change without a version.

    ``occurred_at`` is None unless the caller gave it. References, hints and edges are sets: their order and
    doubles don't count.
    """

    title: str
    kind: str
    external_ref: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[tuple[str, str | None]] = ()
    """(text, role) in order."""
    thread: str | None = None
    author: str | None = None
    provenance: str | None = None
    lineage_class: str | None = None
    temporal_class: str | None = None
    retention_class: str | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    derived_from: Sequence[str] = ()
    supports: Sequence[str] = ()
    contradicts: Sequence[str] = ()
    entity_hints: Sequence[tuple[str, str, str | None]] = ()
    """(kind, identifier, label)."""
    edges: Sequence[tuple[str, str, str]] = ()
    """(rel, end type, ref)."""
    generator_agent_id: str | None = None
    language: str | None = None
    occurred_at: datetime | None = None


def noop_key(fields: ContentFields) -> str:
    """SHA-256 of the canonical JSON of the fields; equal keys mean that a repeat writes nothing."""
    return sha256_hex(
        canonical_json(
            {
                "title": fields.title,
                "kind": fields.kind,
                "externalRef": fields.external_ref,
                "attributes": dict(fields.attributes),
                "parts": [[text, role] for text, role in fields.parts],
                "thread": fields.thread,
                "author": fields.author,
                "provenance": fields.provenance,
                "lineageClass": fields.lineage_class,
                "temporalClass": fields.temporal_class,
                "retentionClass": fields.retention_class,
                "validFrom": _instant(fields.valid_from),
                "validUntil": _instant(fields.valid_until),
                "derivedFrom": sorted(set(fields.derived_from)),
                "supports": sorted(set(fields.supports)),
                "contradicts": sorted(set(fields.contradicts)),
                "entityHints": [list(hint) for hint in sorted(set(fields.entity_hints), key=_hint_order)],
                "edges": [list(edge) for edge in sorted(set(fields.edges))],
                "generatorAgentId": fields.generator_agent_id,
                "language": fields.language,
                "occurredAt": _instant(fields.occurred_at),
            }
        )
    )


def _hint_order(hint: tuple[str, str, str | None]) -> tuple[str, str, bool, str]:
    kind, identifier, label = hint
    return kind, identifier, label is not None, label or ""


def _instant(value: datetime | None) -> str | None:
    """One spelling an instant, whatever zone it was given in. Postgres keeps microseconds, so do we."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise CanonicalJsonError("an instant without a time zone has no canonical form; make it aware")
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def _are_plain(keys: Iterable[Any]) -> bool:
    try:
        return "".join(keys).isascii()
    except TypeError:
        return False


def _is_simple(value: Any) -> bool:
    """True for built-in types without floats, small integers and keys whose order no encoding changes."""
    kind = type(value)
    if kind is dict:
        if not _are_plain(value):
            return False
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    elif kind is int:
        return bool(-SAFE_INTEGER <= value <= SAFE_INTEGER)
    else:
        return value is None or kind is bool or isinstance(value, str)
    # Most are text: asked here, they cost no call.
    return all(type(item) is str or item is None or _is_simple(item) for item in items)


def _plain(value: Any, path: str) -> Any:
    """The value in built-in types, every number and string checked."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(value, path)
    if isinstance(value, int):
        if abs(value) > SAFE_INTEGER:
            raise CanonicalJsonError(f"{path}: integers beyond ±{SAFE_INTEGER} are not exact; send text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CanonicalJsonError(f"{path}: NaN and infinities are not JSON; send null or text")
        return float(value)
    if isinstance(value, Mapping):
        return _plain_object(value, path)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise CanonicalJsonError(f"{path}: {type(value).__name__} is not a JSON type")


def _plain_object(value: Mapping[Any, Any], path: str) -> dict[str, Any]:
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise CanonicalJsonError(f"{path}: object keys are text, not {type(key).__name__}")
        plain[_plain_text(key, path)] = _plain(item, f"{path}.{key}")
    return plain


def _plain_text(value: str, path: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CanonicalJsonError(f"{path}: lone surrogate at character {error.start}") from None
    return str(value)
