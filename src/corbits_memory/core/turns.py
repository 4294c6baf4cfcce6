"""``turns.window``: a conversation that came as one document, cut between turns.

Each part of the document is a turn, and so is each line of a transcript that begins with a speaker and a colon,
with the lines below it. Turns that follow each other share a chunk while they fit; a turn that is too long for one
is cut as ``token.recursive`` cuts it.
"""

import re
from collections.abc import Sequence
from itertools import chain, pairwise

from corbits_memory.core.chunking import CHARS_PER_TOKEN, ChunkCaps, Piece, chunk_text, token_count

STRATEGY = "turns.window"
BETWEEN = "\n"

_SPEAKER = re.compile(r"^(?:\[[^\]\n]{1,40}\][ \t]*)?[^\s:\[][^:\n]{0,59}:(?=[ \t\n])", re.MULTILINE)
"""A line's beginning like ``Ann:`` or ``[10:42] Ann:``."""

Turn = tuple[str, str | None]
"""What was said, and in which role."""


def turn_pieces(turns: Sequence[Turn], caps: ChunkCaps) -> list[Piece]:
    """Windows of whole turns in order, none longer than ``max_tokens``; the next begins with the last turns of
    the one before, as far as ``overlap_tokens`` reach.

    A turn begins with its role and a colon where the document tells roles. A window of one role has that role,
    one of several has none.
    """
    most, overlap = caps.max_tokens * CHARS_PER_TOKEN, caps.overlap_tokens * CHARS_PER_TOKEN
    pieces: list[Piece] = []
    window: list[Turn] = []
    fresh = size = 0
    for text, role in chain.from_iterable(map(_spoken, turns)):
        if not text:
            continue
        said = text if role is None else f"{role}: {text}"
        if window and size + len(BETWEEN) + len(said) > most:
            if fresh:
                pieces.append(_piece(window))
            window, size = _kept(window, min(overlap, most - len(BETWEEN) - len(said)))
            fresh = 0
        if len(said) > most:
            if fresh:
                pieces.append(_piece(window))
            pieces.extend(Piece(chunk.text, role, chunk.token_count) for chunk in chunk_text(said, caps))
            window, size, fresh = [], 0, 0
            continue
        size += len(said) + (len(BETWEEN) if window else 0)
        window.append((said, role))
        fresh += 1
    if fresh:
        pieces.append(_piece(window))
    return pieces


def _spoken(part: Turn) -> Sequence[Turn]:
    """The turns of a part: of one without a role, those of its speakers. Put together with a line's end between
    them they are its text."""
    text, role = part
    starts = [] if role is not None else [found.start() for found in _SPEAKER.finditer(text)]
    if len(starts) < 2:
        return [part]
    cuts = [0, *starts[starts[0] == 0 :], len(text) + len(BETWEEN)]
    return [(text[start : end - len(BETWEEN)], None) for start, end in pairwise(cuts)]


def _kept(window: Sequence[Turn], most: int) -> tuple[list[Turn], int]:
    """The last turns that fit into ``most`` characters, and how many characters they have."""
    size = 0
    for place in range(len(window) - 1, -1, -1):
        longer = size + len(window[place][0]) + (len(BETWEEN) if size else 0)
        if longer > most or place == 0:
            return list(window[place + 1 :]), size
        size = longer
    return [], 0


def _piece(window: Sequence[Turn]) -> Piece:
    text = BETWEEN.join(said for said, _ in window)
    roles = {role for _, role in window}
    return Piece(text, roles.pop() if len(roles) == 1 else None, token_count(text))
