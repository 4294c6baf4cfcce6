"""Contexts on the plane: hits as one cited block of text."""

from corbits_memory.core.chunking import token_count
from corbits_memory.core.context import Passage, heading, pack
from corbits_memory.core.text import words
from corbits_memory.ports import ContextItem, ContextResult, SearchItem, SearchResult


def context_of(found: SearchResult, *, query: str, max_tokens: int) -> ContextResult:
    """The block of what was found; a hit of a live source is told by its snippet."""
    packed = pack([_passage(item) for item in found.items], max_tokens=max_tokens, terms=words(query))
    return ContextResult(
        text=packed.text,
        tokens=packed.tokens,
        max_tokens=max_tokens,
        items=tuple(
            ContextItem(
                item=found.items[place.index],
                marker=place.marker,
                tokens=token_count(place.text),
                truncated=place.cut,
            )
            for place in packed.placed
        ),
        omitted=tuple(found.items[index] for index in packed.omitted),
        evidence=found.evidence,
        degraded=found.degraded,
    )


def _passage(item: SearchItem) -> Passage:
    said = item.attribution
    return Passage(
        heading(
            item.title,
            author=said.author if said else None,
            at=said.occurred_at if said else item.updated_at,
            provenance=said.provenance if said else None,
        ),
        item.text or item.snippet,
    )
