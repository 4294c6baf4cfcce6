"""Checks of a raw capture's stored payload, before a replay makes anything of it.

It was checked when it came in; since then limits may have changed, and rows can be written by other hands.
"""

import json
from collections.abc import Mapping
from typing import Any

from corbits_memory.core import limits
from corbits_memory.core.enums import (
    CreatedByKind,
    EdgeRel,
    HintEnd,
    LineageClass,
    Provenance,
    RankingSource,
    RetentionClass,
    TemporalClass,
)
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import EdgeHint, EntityHint, NewDocument, TextPart
from corbits_memory.validation.problems import Problems

MAX_ACTORS = 2**31 - 1


def stored_document(raw_text: str | None) -> NewDocument:
    """The document that a payload holds; its ``occurred_at`` is always set.

    Raises :class:`InvalidInputError` that names fields and rules, never a value.
    """
    try:
        payload = json.loads(raw_text or "")
    except ValueError:
        raise InvalidInputError("the stored payload is not JSON") from None
    if not isinstance(payload, Mapping) or not isinstance(payload.get("document"), Mapping):
        raise InvalidInputError("the stored payload is not an object with a document")
    problems = Problems()
    document = _document(problems, payload, payload["document"])
    problems.raise_if_any()
    return document


def _document(problems: Problems, payload: Mapping[str, Any], given: Mapping[str, Any]) -> NewDocument:
    actor = given.get("actor")
    if actor is not None and not isinstance(actor, Mapping):
        problems.add("actor", "must be an object")
    actor = actor if isinstance(actor, Mapping) else {}
    occurred_at = problems.instant("occurredAt", payload.get("occurredAt"))
    if payload.get("occurredAt") is None:
        problems.add("occurredAt", "is required")
    return NewDocument(
        title=problems.required_text("title", given.get("title"), max_chars=limits.TITLE_CHARS),
        kind=problems.required_text("kind", given.get("kind"), max_chars=limits.KIND_CHARS),
        parts=_parts(problems, given.get("chunks")),
        adapter=problems.required_identifier("adapter", payload.get("adapter")),
        external_ref=problems.identifier(
            "externalRef", given.get("externalRef"), max_chars=limits.EXTERNAL_REF_CHARS
        ),
        attributes=problems.scalars("attributes", given.get("attributes")),
        generator_agent_id=problems.identifier("actor.agentId", actor.get("agentId")),
        created_by_kind=problems.choice("actor.kind", actor.get("kind"), CreatedByKind),
        provenance=problems.choice("provenance", given.get("provenance"), Provenance),
        lineage_class=problems.choice("lineageClass", given.get("lineageClass"), LineageClass),
        temporal_class=problems.choice("temporalClass", given.get("temporalClass"), TemporalClass),
        retention_class=problems.choice("retentionClass", given.get("retentionClass"), RetentionClass)
        or RetentionClass.STANDARD,
        derived_from=_references(problems, "derivedFrom", given),
        supports=_references(problems, "supports", given),
        contradicts=_references(problems, "contradicts", given),
        valid_from=problems.instant("validFrom", given.get("validFrom")),
        valid_until=problems.instant("validUntil", given.get("validUntil")),
        occurred_at=occurred_at,
        thread=problems.identifier("thread", given.get("thread")),
        author=problems.identifier("author", given.get("author"), max_chars=limits.AUTHOR_CHARS),
        language=problems.identifier("language", given.get("language")),
        entity_hints=_hints(problems, given.get("entityHints")),
        edges=_edges(problems, given.get("edges")),
        actor_count=problems.integer(
            "actorCount", given.get("actorCount"), low=0, high=MAX_ACTORS, default=1
        ),
        ranking_source=problems.choice("sourceClass", given.get("sourceClass"), RankingSource)
        or RankingSource.NATIVE,
        has_social_signal=problems.flag("hasSocialSignal", given.get("hasSocialSignal")),
    )


def _parts(problems: Problems, value: object) -> tuple[TextPart, ...]:
    parts = []
    for index, item in enumerate(problems.items("chunks", value, max_items=limits.CHUNKS_PER_DOCUMENT)):
        field = f"chunks[{index}]"
        if not isinstance(item, Mapping):
            problems.add(field, "must be an object")
            continue
        text = problems.optional_text(
            f"{field}.text", item.get("text"), max_chars=limits.CHUNK_CHARS, may_be_blank=True
        )
        if item.get("text") is None:
            problems.add(f"{field}.text", "is required")
        parts.append(TextPart(text=text or "", role=problems.identifier(f"{field}.role", item.get("role"))))
    return tuple(parts)


def _references(problems: Problems, field: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    return problems.identifiers(field, given.get(field), max_items=limits.VERSION_REFS)


def _hints(problems: Problems, value: object) -> tuple[EntityHint, ...]:
    hints = []
    for index, item in enumerate(problems.items("entityHints", value, max_items=limits.ENTITY_HINTS)):
        field = f"entityHints[{index}]"
        named = item if isinstance(item, Mapping) else {}
        kind = problems.required_identifier(f"{field}.kind", named.get("kind"))
        identifier = problems.required_identifier(f"{field}.identifier", named.get("identifier"))
        label = problems.optional_text(
            f"{field}.label", named.get("label"), max_chars=limits.TITLE_CHARS, may_be_blank=True
        )
        hints.append(EntityHint(kind=kind, identifier=identifier, label=label))
    return tuple(hints)


def _edges(problems: Problems, value: object) -> tuple[EdgeHint, ...]:
    edges = []
    for index, item in enumerate(problems.items("edges", value, max_items=limits.EDGES)):
        field = f"edges[{index}]"
        named = item if isinstance(item, Mapping) else {}
        to = named.get("to")
        end = to if isinstance(to, Mapping) else {}
        rel = problems.choice(f"{field}.rel", named.get("rel"), EdgeRel)
        kind = problems.choice(f"{field}.to.type", end.get("type"), HintEnd)
        ref = problems.required_identifier(f"{field}.to.ref", end.get("ref"))
        if rel is None or kind is None:
            problems.add(field, "must have rel and to.type")
            continue
        edges.append(EdgeHint(rel=rel, type=kind, ref=ref))
    return tuple(edges)
