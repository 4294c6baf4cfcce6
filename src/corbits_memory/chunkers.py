"""Strategies to cut texts by: those of the core, and those that installed packages bring along.

A package brings one by an entry point of the group ``corbits_memory.chunkers``, whose name is the strategy's:

    [project.entry-points."corbits_memory.chunkers"]
    "acme.clauses" = "acme_memory:cut_clauses"

It is a function of the document's parts and of sizes (:data:`Chunker`), and must be pure: a replay on another day
and machine has to give the same chunks. What it returns is checked before it is stored.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from corbits_memory.core.chunking import ChunkCaps, Piece, token_count
from corbits_memory.core.limits import CHUNK_CHARS, CHUNKS_PER_VERSION
from corbits_memory.core.strategies import BUILT_IN, Chunker, Part
from corbits_memory.errors import ChunkerError

__all__ = ["GROUP", "ChunkCaps", "Chunker", "Part", "Piece", "chunker", "strategies"]

GROUP = "corbits_memory.chunkers"


def strategies() -> tuple[str, ...]:
    """The names of all that are installed; imports none of them."""
    return (*BUILT_IN, *(name for name in sorted(_installed()) if name not in BUILT_IN))


def chunker(strategy: str) -> Chunker:
    """What cuts by that name. Raises :class:`ChunkerError` when no installed package has it; the function of a
    plug-in raises it when that fails, or returns what can't be stored."""
    built_in = BUILT_IN.get(strategy)
    if built_in is not None:
        return built_in
    function = _load(strategy)

    def cut(parts: Sequence[Part], caps: ChunkCaps) -> list[Piece]:
        try:
            pieces = list(function(parts, caps))
        except Exception as error:
            # Its message may hold the text.
            raise ChunkerError(f"The chunk strategy {strategy} failed ({type(error).__name__}).") from error
        if not pieces and any(text.strip() for text, _ in parts):
            raise ChunkerError(f"The chunk strategy {strategy} made no chunk of a text.")
        if len(pieces) > CHUNKS_PER_VERSION:
            raise ChunkerError(f"The chunk strategy {strategy} made more than {CHUNKS_PER_VERSION:,} chunks.")
        return [_checked(strategy, piece) for piece in pieces]

    return cut


def _checked(strategy: str, piece: object) -> Piece:
    text, role = getattr(piece, "text", None), getattr(piece, "role", None)
    if not isinstance(text, str) or not isinstance(role, str | None) or not 0 < len(text) <= CHUNK_CHARS:
        raise ChunkerError(
            f"The chunk strategy {strategy} returned something that is no Piece of 1 to {CHUNK_CHARS:,} characters."
        )
    return Piece(text, role, token_count(text))


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


@cache
def _load(strategy: str) -> Chunker:
    point = _installed().get(strategy)
    if point is None:
        raise ChunkerError(
            f"No chunk strategy {strategy!r} is installed here; there are: {', '.join(strategies())}. "
            "Install the package that brings it, on every node and worker."
        )
    try:
        loaded = point.load()
    except Exception as error:
        raise ChunkerError(
            f"The package of the chunk strategy {strategy} can't be imported ({type(error).__name__})."
        ) from error
    if not callable(loaded):
        raise ChunkerError(f"The entry point of the chunk strategy {strategy} is not a function.")
    function: Chunker = loaded
    return function
