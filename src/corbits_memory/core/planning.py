"""From what a caller sends to what is stored: checks, defaults, chunks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from corbits_memory.core.chunking import DEFAULT_CAPS, ChunkCaps
from corbits_memory.core.enums import CreatedByKind, LineageClass, Provenance, TemporalClass
from corbits_memory.core.limits import CHUNK_CHARS
from corbits_memory.core.strategies import Chunker, Part, cut_recursively

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PART_SEPARATORS = ("\n\n", "\n", ". ", "。", " ")


class InvalidTextError(ValueError):
    """The text holds characters that can't be stored."""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk to be stored; ordinals run on over all parts of the document."""

    ordinal: int
    text: str
    role: str | None
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAttribution:
    """Who says it and of what nature it is, with nothing left open."""

    created_by_kind: CreatedByKind
    provenance: Provenance
    lineage_class: LineageClass
    temporal_class: TemporalClass


def validate_text(text: str, what: str) -> str:
    """The text itself; :class:`InvalidTextError` when it holds NUL or a lone surrogate."""
    found = _UNSTORABLE.search(text)
    if found is None:
        return text
    name = "NUL" if found.group() == "\x00" else "a lone surrogate"
    raise InvalidTextError(f"{what}: {name} at character {found.start()} can't be stored; remove it")


def plan_chunks(
    parts: Sequence[Part], caps: ChunkCaps = DEFAULT_CAPS, chunker: Chunker = cut_recursively
) -> tuple[PlannedChunk, ...]:
    """The chunks of a document's (text, role) parts, as the strategy cuts them."""
    return tuple(
        PlannedChunk(ordinal, piece.text, piece.role, piece.token_count)
        for ordinal, piece in enumerate(chunker(parts, caps))
    )


def split_long_part(text: str, limit: int = CHUNK_CHARS) -> list[str]:
    """Cut a text into parts of at most ``limit`` characters that add up to it.

    Cuts fall after the last blank line of the second half of a part, else after a line, a sentence, a word.
    """
    parts: list[str] = []
    start = 0
    while len(text) - start > limit:
        stop = _natural_cut(text, start, start + limit)
        parts.append(text[start:stop])
        start = stop
    if start < len(text):
        parts.append(text[start:])
    return parts


def _natural_cut(text: str, start: int, end: int) -> int:
    earliest = start + (end - start) // 2
    for separator in _PART_SEPARATORS:
        found = text.rfind(separator, earliest, end)
        if found >= 0:
            return found + len(separator)
    return end


def resolve_attribution(
    *,
    generator_agent_id: str | None = None,
    created_by_kind: CreatedByKind | None = None,
    provenance: Provenance | None = None,
    lineage_class: LineageClass | None = None,
    temporal_class: TemporalClass | None = None,
) -> ResolvedAttribution:
    """Fill what the caller left open.

    With a generator: agent, inferred, derived. Without: human, stated, native. The temporal class is state
    for what is inferred, else event. What the caller gave stays.
    """
    generated = bool(generator_agent_id and generator_agent_id.strip())
    provenance = provenance or (Provenance.INFERRED if generated else Provenance.STATED)
    inferred = provenance is Provenance.INFERRED
    return ResolvedAttribution(
        created_by_kind=created_by_kind or (CreatedByKind.AGENT if generated else CreatedByKind.HUMAN),
        provenance=provenance,
        lineage_class=lineage_class or (LineageClass.DERIVED if generated else LineageClass.NATIVE),
        temporal_class=temporal_class or (TemporalClass.STATE if inferred else TemporalClass.EVENT),
    )
