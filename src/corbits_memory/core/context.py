"""Passages into one block of text that fits a budget: in rank order, each with a marker to cite it by.

A block reads::

    [1] Deploys (Maria, 2026-05-07)
    Fridays are frozen.

    [2] …

A token is what :mod:`corbits_memory.core.chunking` takes for one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from corbits_memory.core.chunking import CHARS_PER_TOKEN, token_count
from corbits_memory.core.enums import Provenance
from corbits_memory.core.snippets import ELLIPSIS, snippet

TITLE_CHARS, AUTHOR_CHARS = 80, 40
"""Longer ones are cut in headings: whoever needs them whole has the items."""
CUT_CHARS = 160
"""The shortest part of a passage that is worth a place."""
_BETWEEN = "\n\n"
_LIKE_A_MARKER = re.compile(r"^(?=\s*\[\d+\])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Passage:
    """A text and the line above it; the marker is put in front."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A passage in the block. ``index``: its place among those handed in; ``marker`` counts from 1."""

    index: int
    marker: int
    text: str
    cut: bool
    """Whether the text is a part of the passage's."""


@dataclass(frozen=True, slots=True)
class Packed:
    text: str
    tokens: int
    placed: tuple[Placed, ...]
    omitted: tuple[int, ...]
    """The places of those that are not in the block."""


def heading(title: str, *, author: str | None, at: datetime | None, provenance: str | None) -> str:
    """What a passage is from, on one line. What an agent concluded is said to be inferred."""
    about = [
        _clipped(author, AUTHOR_CHARS) if author else "",
        at.date().isoformat() if at else "",
        "inferred" if provenance == Provenance.INFERRED else "",
    ]
    known = ", ".join(part for part in about if part)
    return _clipped(title, TITLE_CHARS) + (f" ({known})" if known else "")


def pack(passages: Sequence[Passage], *, max_tokens: int, terms: Sequence[str] = ()) -> Packed:
    """The block, of at most ``max_tokens``.

    Passages come in as they are ranked. The first one that doesn't fit is cut to where most of the query's ``terms``
    meet, if there is room for a part worth reading; it and what comes after it ends the block, so that nothing
    stands in the place of something better.
    """
    room = max_tokens * CHARS_PER_TOKEN
    blocks: list[str] = []
    placed: list[Placed] = []
    for index, passage in enumerate(passages):
        marker = index + 1
        head = f"{_BETWEEN if blocks else ''}[{marker}] {passage.heading}\n"
        text = _unmarked(passage.text.strip())
        cut = len(head) + len(text) > room
        if cut:
            chars = room - len(head) - 2 * len(ELLIPSIS)
            if chars < CUT_CHARS:
                break
            text = snippet(text, terms, chars)
        blocks.append(head + text)
        placed.append(Placed(index, marker, text, cut))
        room -= len(blocks[-1])
        if cut:
            break
    whole = "".join(blocks)
    return Packed(
        text=whole,
        tokens=token_count(whole) if whole else 0,
        placed=tuple(placed),
        omitted=tuple(range(len(placed), len(passages))),
    )


def _unmarked(text: str) -> str:
    """A line of a text that looks like a marker is quoted: no text may pass itself off as another's."""
    return _LIKE_A_MARKER.sub("> ", text)


def _clipped(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else line[: chars - 1].rstrip() + ELLIPSIS
