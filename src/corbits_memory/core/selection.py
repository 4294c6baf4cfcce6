"""From scored candidates to the page: few chunks a document, nothing twice, different things first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corbits_memory.core.diversity import MmrItem, mmr
from corbits_memory.core.ranking import DEFAULT_CONSTANTS, RankingConstants, Scored
from corbits_memory.core.restatements import Said, Signature
from corbits_memory.core.shown import NOTHING_SHOWN, Shown

_POOL_MIN = 20
_MMR_POOL_MAX = 40
"""Diversity matters at the top of a page, and its cost grows with the square."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A page, and whether the rows hold more that it could have shown."""

    rows: list[Scored]
    more: bool = False


def select(
    scored: Sequence[Scored],
    k: int,
    max_per_document: int = 1,
    constants: RankingConstants = DEFAULT_CONSTANTS,
    *,
    texts: Mapping[str, str] | None = None,
    vectors: Mapping[str, Sequence[float]] | None = None,
    cosine_floor: float = 0.0,
    shown: Shown = NOTHING_SHOWN,
) -> Selection:
    """At most ``k`` of the scored rows (best first), at most ``max_per_document`` of one document.

    ``texts`` by chunk id let restatements collapse into the best of them; ``vectors`` by chunk id (or the
    texts' words, where a row has none) let different things come first. Without both it is the given order.
    The scores stay, so they need not fall from one row to the next.

    ``shown`` is what pages before this one showed: among the scored rows it counts for its document, for
    restatements and for diversity, as it would on a longer page, and doesn't come again.
    """
    kept = list(limit_per_document(scored, max_per_document, shown))
    past = {row.candidate.chunk_id for row in kept if shown.has(row.candidate.chunk_id)}
    length = len(past) + k
    most = max(_POOL_MIN, min(2 * length, _MMR_POOL_MAX), length + 1)
    pool, signatures = _distinct(kept, most, texts or {}, constants, shown, past)
    new = [row for row in pool if row.candidate.chunk_id not in past]
    more = len(new) > k
    if constants.mmr_lambda >= 1.0 or not (texts or vectors):
        return Selection(new[:k], more)
    by_id = {row.candidate.chunk_id: row for row in pool}
    top = [_mmr_item(row, signatures, vectors or {}) for row in pool[:_MMR_POOL_MAX]]
    picked = mmr(
        [item for item in top if item.key not in past],
        k=k,
        lam=constants.mmr_lambda,
        cosine_floor=cosine_floor,
        cap=max((item.score for item in top), default=None),
        before=[item for item in top if item.key in past],
    )
    rest = [row for row in pool[_MMR_POOL_MAX:] if row.candidate.chunk_id not in past]
    return Selection([*(by_id[item.key] for item in picked), *rest][:k], more)


def limit_per_document(scored: Iterable[Scored], most: int, shown: Shown) -> Iterator[Scored]:
    """The rows that were shown, and of each document so many more that with them they are ``most``."""
    counts: dict[str, int] = {}
    for row in scored:
        if shown.has(row.candidate.chunk_id):
            yield row
            continue
        document_id = row.candidate.document_id
        count = counts.get(document_id)
        if count is None:
            count = shown.of_document(document_id)
        if count < most:
            counts[document_id] = count + 1
            yield row


def _distinct(
    rows: Sequence[Scored],
    most: int,
    texts: Mapping[str, str],
    constants: RankingConstants,
    shown: Shown,
    past: set[str],
) -> tuple[list[Scored], dict[str, Signature]]:
    """The first ``most`` rows that don't say what a better one said, or one of ``past``, and their signatures."""
    kept: list[Scored] = []
    signatures = {chunk_id: Signature.of(texts[chunk_id]) for chunk_id in past if chunk_id in texts}
    said = Said(constants.near_identical)
    for signature in signatures.values():
        said.add(signature)
    for row in rows:
        if len(kept) == most:
            break
        chunk_id = row.candidate.chunk_id
        text = texts.get(chunk_id)
        if text is not None and chunk_id not in past:
            if shown.says(text):
                continue
            signature = Signature.of(text)
            if said.has(signature):
                continue
            said.add(signature)
            signatures[chunk_id] = signature
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
