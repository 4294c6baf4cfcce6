"""``markdown.sections``: cut before headings, never inside a code fence that fits, and a heading stays with its text.

Headings are those with ``#``; a fence opens with three or more backticks or tildes and closes with as many of
them. A text without either is cut as ``token.recursive`` cuts it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from corbits_memory.core.chunking import CHARS_PER_TOKEN, ChunkCaps, Span, cut_evenly

STRATEGY = "markdown.sections"

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_TEXT, _CODE = 0, 7
"""Levels of what is no heading; headings have 1 to 6."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Whole lines that belong together. ``level`` above 0 and below 7: it begins with a heading of that level."""

    start: int
    end: int
    level: int


def section_spans(text: str, caps: ChunkCaps) -> list[Span]:
    """Spans in order that add up to the text; a section of at least ``min_tokens`` stands alone.

    Nothing is repeated: sections make sense by themselves. Work is linear in the length of the text.
    """
    most, least = caps.max_tokens * CHARS_PER_TOKEN, caps.min_tokens * CHARS_PER_TOKEN
    spans: list[Span] = []
    for start, end in _sections(list(_blocks(text)), most, least):
        if end - start <= most:
            spans.append((start, end))
        else:
            plain = ChunkCaps(caps.max_tokens, caps.min_tokens, 0)
            spans.extend((start + low, start + high) for low, high in cut_evenly(text[start:end], plain))
    # The piece before may have taken up a remnant of its own already: then one more would be too much.
    if len(spans) > 1 and spans[-1][1] - spans[-1][0] < least and spans[-1][1] - spans[-2][0] <= most + least:
        (_, end), (start, _) = spans.pop(), spans.pop()
        spans.append((start, end))
    return spans


def _sections(blocks: Sequence[_Block], most: int, least: int) -> Iterator[Span]:
    """Sections with what is too small to stand alone; one without a cut inside may be longer than ``most``."""
    if not blocks:
        return
    start = blocks[0].start
    for previous, block in pairwise(blocks):
        size = previous.end - start
        heading = _TEXT < block.level < _CODE
        # A heading is never the last line of a chunk.
        bare = _TEXT < previous.level < _CODE
        if (heading and size >= least and not bare) or (block.end - start > most and not bare and size > 0):
            yield start, previous.end
            start = block.start
    yield start, blocks[-1].end


def _blocks(text: str) -> Iterator[_Block]:
    """Heading lines, code from fence to fence, and paragraphs with the blank lines after them."""
    start = offset = 0
    level = _TEXT
    fence = ""
    blank = False
    for line in text.splitlines(keepends=True):
        after = offset + len(line)
        bare = line.rstrip("\r\n")
        opening = None if fence else _FENCE.match(bare)
        heading = None if fence or opening else _HEADING.match(bare)
        if fence:
            closing = _FENCE.match(bare)
            if closing and closing[1].startswith(fence) and not closing[2].strip():
                fence = ""
                yield _Block(start, after, _CODE)
                start, level = after, _TEXT
        elif opening and not (opening[1][0] == "`" and "`" in opening[2]):
            if offset > start:
                yield _Block(start, offset, level)
            start, level, fence = offset, _CODE, opening[1]
        elif heading:
            if offset > start:
                yield _Block(start, offset, level)
            yield _Block(offset, after, len(heading[1]))
            start, level = after, _TEXT
        elif blank and bare.strip() and offset > start:
            yield _Block(start, offset, level)
            start, level = offset, _TEXT
        blank = not bare.strip()
        offset = after
    if len(text) > start:
        yield _Block(start, len(text), level)
