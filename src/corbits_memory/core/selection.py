"""From scored candidates to the page: few chunks a document, nothing twice, different things first."""

from collections.abc import Mapping, Sequence

from corbits_memory.core.diversity import MmrItem, Signature, mmr
from corbits_memory.core.ranking import DEFAULT_CONSTANTS, RankingConstants, Scored

_POOL_MIN = 20
_MMR_POOL_MAX = 40
"""Diversity matters at the top of a page, and its cost grows with the square."""


def select(
    scored: Sequence[Scored],
    k: int,
    max_per_document: int = 1,
    constants: RankingConstants = DEFAULT_CONSTANTS,
    *,
    texts: Mapping[str, str] | None = None,
    vectors: Mapping[str, Sequence[float]] | None = None,
    cosine_floor: float = 0.0,
) -> list[Scored]:
    """At most ``k`` of the scored rows (best first), at most ``max_per_document`` of one document.

    ``texts`` by chunk id let restatements collapse into the best of them; ``vectors`` by chunk id (or the
    texts' words, where a row has none) let different things come first. Without both it is the given order.
    The scores stay, so they need not fall from one row to the next.
    """
    pool, signatures = _distinct(
        _limit_per_document(scored, max_per_document), max(_POOL_MIN, 2 * k), texts or {}, constants
    )
    if constants.mmr_lambda >= 1.0 or not (texts or vectors):
        return pool[:k]
    by_id = {row.candidate.chunk_id: row for row in pool}
    items = [_mmr_item(row, signatures, vectors or {}) for row in pool[:_MMR_POOL_MAX]]
    picked = mmr(items, k=k, lam=constants.mmr_lambda, cosine_floor=cosine_floor)
    return [by_id[item.key] for item in picked] + pool[_MMR_POOL_MAX:k]


def _limit_per_document(scored: Sequence[Scored], most: int) -> list[Scored]:
    counts: dict[str, int] = {}
    kept = []
    for row in scored:
        count = counts.get(row.candidate.document_id, 0)
        if count < most:
            counts[row.candidate.document_id] = count + 1
            kept.append(row)
    return kept


def _distinct(
    rows: Sequence[Scored], most: int, texts: Mapping[str, str], constants: RankingConstants
) -> tuple[list[Scored], dict[str, Signature]]:
    """The first ``most`` rows that don't say what a better one said, and their signatures."""
    kept: list[Scored] = []
    signatures: dict[str, Signature] = {}
    for row in rows:
        if len(kept) == most:
            break
        text = texts.get(row.candidate.chunk_id)
        if text is not None:
            signature = Signature.of(text)
            if any(signature.says_the_same(other, constants.near_identical) for other in signatures.values()):
                continue
            signatures[row.candidate.chunk_id] = signature
        kept.append(row)
    return kept, signatures


def _mmr_item(
    row: Scored, signatures: Mapping[str, Signature], vectors: Mapping[str, Sequence[float]]
) -> MmrItem:
    chunk_id = row.candidate.chunk_id
    signature = signatures.get(chunk_id)
    return MmrItem(
        key=chunk_id,
        score=row.score,
        vector=vectors.get(chunk_id),
        tokens=signature.tokens if signature else frozenset(),
    )
