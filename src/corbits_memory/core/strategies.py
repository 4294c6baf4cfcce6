"""The ways to cut a document's text, by name. Each takes all of its parts, and loses no text of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from corbits_memory.core import markdown, turns
from corbits_memory.core.chunking import DEFAULT_CAPS, STRATEGY, ChunkCaps, Piece, chunk_text, token_count

Part = tuple[str, str | None]
"""A text and its role."""
Chunker = Callable[[Sequence[Part], ChunkCaps], Sequence[Piece]]
"""Pieces in the order of the text. Pure: the same parts and caps give the same pieces, on any machine and day,
so that a repeat is recognised and a replay can be repeated."""


def cut_recursively(parts: Sequence[Part], caps: ChunkCaps) -> list[Piece]:
    """Each part by itself; a piece inherits its part's role."""
    return [
        Piece(chunk.text, role, chunk.token_count) for text, role in parts for chunk in chunk_text(text, caps)
    ]


def cut_sections(parts: Sequence[Part], caps: ChunkCaps) -> list[Piece]:
    """Each part by itself, before its headings."""
    return [
        Piece(text[start:end], role, token_count(text[start:end]))
        for text, role in parts
        for start, end in markdown.section_spans(text, caps)
    ]


BUILT_IN: Mapping[str, Chunker] = {
    STRATEGY: cut_recursively,
    markdown.STRATEGY: cut_sections,
    turns.STRATEGY: turns.turn_pieces,
}


@dataclass(frozen=True, slots=True)
class Cutting:
    """How a generation's texts are cut: a strategy's name, and sizes."""

    strategy: str = STRATEGY
    caps: ChunkCaps = DEFAULT_CAPS


DEFAULT_CUTTING = Cutting()


def cutting(
    strategy: str = STRATEGY,
    *,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    overlap_tokens: int | None = None,
) -> Cutting:
    """Raises ``InvalidChunkCapsError``. A size that was not given never contradicts one that was."""
    most = DEFAULT_CAPS.max_tokens if max_tokens is None else max_tokens
    least = min(DEFAULT_CAPS.min_tokens, most) if min_tokens is None else min_tokens
    overlap = min(DEFAULT_CAPS.overlap_tokens, most - 1) if overlap_tokens is None else overlap_tokens
    return Cutting(strategy, ChunkCaps(max_tokens=most, min_tokens=least, overlap_tokens=overlap))
