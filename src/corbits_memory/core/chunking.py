"""``token.recursive``: split at the largest natural separator that fits, merge greedily, overlap a little.

A token is four characters (code points). Work is linear in the length of the text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

STRATEGY = "token.recursive"
CHARS_PER_TOKEN = 4
SEPARATORS = ("\n\n", "\n", ". ", " ")
"""Tried in this order; a separator stays at the end of the piece before it."""

Span = tuple[int, int]
"""Start and end of a piece in the source text, in characters."""


class InvalidChunkCapsError(ValueError):
    """The caps contradict each other."""


@dataclass(frozen=True, slots=True)
class ChunkCaps:
    """Sizes in tokens. A chunk may exceed ``max_tokens`` by what it repeats of the one before (at most
    ``overlap_tokens``), and the last one by a remnant shorter than ``min_tokens``.
    """

    max_tokens: int = 700
    min_tokens: int = 40
    overlap_tokens: int = 60

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidChunkCapsError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise InvalidChunkCapsError(
                f"min_tokens is {self.min_tokens}; it must be from 0 to max_tokens ({self.max_tokens})"
            )
        if not 0 <= self.overlap_tokens < self.max_tokens:
            raise InvalidChunkCapsError(
                f"overlap_tokens is {self.overlap_tokens}; "
                f"it must be at least 0 and below max_tokens ({self.max_tokens})"
            )


DEFAULT_CAPS = ChunkCaps()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece: ``text == source[start:end]``."""

    ordinal: int
    text: str
    token_count: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What a strategy makes of a document: a text to be stored as a chunk, in a role or none."""

    text: str
    role: str | None
    token_count: int


def token_count(text: str) -> int:
    return max(1, -(-len(text) // CHARS_PER_TOKEN))


def chunk_text(text: str, caps: ChunkCaps = DEFAULT_CAPS) -> list[Chunk]:
    """The chunks of a text in order; together they cover all of it. Empty text has none."""
    return [
        Chunk(ordinal, text[start:end], token_count(text[start:end]), start, end)
        for ordinal, (start, end) in enumerate(cut_evenly(text, caps))
    ]


def cut_evenly(text: str, caps: ChunkCaps) -> list[Span]:
    """The spans of :func:`chunk_text`."""
    if 0 < len(text) <= caps.max_tokens * CHARS_PER_TOKEN:
        return [(0, len(text))]
    return _merge(list(_leaves(text, 0, len(text), 0, caps.max_tokens * CHARS_PER_TOKEN)), caps)


def _leaves(text: str, start: int, end: int, level: int, most: int) -> Iterator[Span]:
    """Spans of at most ``most`` characters that add up to ``text[start:end]``."""
    if end - start <= most:
        if end > start:
            yield start, end
    elif level == len(SEPARATORS):
        for cut in range(start, end, most):
            yield cut, min(cut + most, end)
    else:
        separator = SEPARATORS[level]
        while start < end:
            found = text.find(separator, start, end)
            stop = end if found < 0 else found + len(separator)
            yield from _leaves(text, start, stop, level + 1, most)
            start = stop


def _merge(leaves: list[Span], caps: ChunkCaps) -> list[Span]:
    most = caps.max_tokens * CHARS_PER_TOKEN
    least = caps.min_tokens * CHARS_PER_TOKEN
    overlap = caps.overlap_tokens * CHARS_PER_TOKEN
    groups: list[Span] = []
    first = 0  # index of the open group's first leaf
    for index, (start, end) in enumerate(leaves):
        if first < index and end - leaves[first][0] > most:
            groups.append((leaves[first][0], start))
            while first < index and start - leaves[first][0] > overlap:
                first += 1
    if leaves:
        groups.append((leaves[first][0], leaves[-1][1]))
    if len(groups) > 1 and groups[-1][1] - groups[-1][0] < least:
        (_, last_end), (start, _) = groups.pop(), groups.pop()
        groups.append((start, last_end))
    return groups
