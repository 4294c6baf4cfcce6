"""How far an answer can be trusted: strong, weak, or none."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from corbits_memory.core.corroboration import effective_authority
from corbits_memory.core.enums import CreatedByKind, EvidenceLevel, MinEvidence, Provenance
from corbits_memory.core.scale import clamp01

STRONG_TS_RANK = 0.05
STRONG_AUTHORITY = 0.3
STRONG_RERANK = 0.6
STRONG_SUPPORTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """What the compat rule reads of a hit or a lexical row."""

    authority: float
    """As of capture, before corroboration."""
    supports: float = 0
    provenance: Provenance | None = None
    created_by_kind: CreatedByKind | None = None
    ts_rank: float = 0.0
    """Raw ts_rank; read of lexical rows only."""
    rerank_score: float | None = None
    """Raw score of the reranker; read of the first hit only."""


def compat_evidence(*, hits: Sequence[EvidenceRow], lexical: Sequence[EvidenceRow]) -> EvidenceLevel:
    """The original's table over the final hits in order and all lexical rows in order."""
    if not hits:
        return EvidenceLevel.NONE
    first = hits[0]
    if first.rerank_score is not None and first.rerank_score >= STRONG_RERANK and _trusted(first):
        return EvidenceLevel.STRONG
    if not lexical:
        return EvidenceLevel.WEAK
    best = max(lexical, key=lambda row: row.ts_rank)
    strong = best.ts_rank >= STRONG_TS_RANK and _trusted(best)
    return EvidenceLevel.STRONG if strong else EvidenceLevel.WEAK


def _trusted(row: EvidenceRow) -> bool:
    if row.authority < STRONG_AUTHORITY:
        return False
    said = row.provenance is Provenance.STATED and row.created_by_kind is CreatedByKind.HUMAN
    return said or int(row.supports) >= STRONG_SUPPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFloors:
    """The published constants of the default profile, calibrated by the retrieval benchmark."""

    lexical: float = 0.12
    """From this share of the query's idf a row says something, whatever its confidence."""
    confidence: float = 0.3
    """From this confidence a row says something."""
    strong_lexical: float = 0.6
    """From here the words alone make a hit strong."""
    strong_dense: float = 0.8
    """From this :func:`dense_level` the meaning alone makes a hit strong."""
    strong_confidence: float = 0.65
    """From here words and meaning together make a hit strong."""
    dense_share: float = 0.6
    """What a full dense level adds to confidence."""
    authority: float = 0.3
    """A strong hit's authority after corroboration is at least this."""


DEFAULT_FLOORS = EvidenceFloors()

_DENSE_Z_NOISE, _DENSE_Z_SURE = 1.0, 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEvidence:
    """What the default rule reads of one hit."""

    lexical: float | None = None
    """``lexical'`` of :mod:`~corbits_memory.core.ranking`, 0 to 1; None when no lexical channel answered."""
    dense: float | None = None
    """:func:`dense_level`, 0 to 1; None without a vector or sample."""
    authority: float = 1.0
    supports: int = 0
    contradicts: int = 0


def dense_level(cosine: float | None, *, mean: float, sd: float) -> float | None:
    """A cosine against the query's cosines to a fixed sample: 0 at one deviation above the mean, 1 at six.

    Unlike a score relative to the batch's best, it doesn't call the best of a bad batch good.
    """
    if cosine is None:
        return None
    z = (cosine - mean) / max(sd, 1e-6)
    return clamp01((z - _DENSE_Z_NOISE) / (_DENSE_Z_SURE - _DENSE_Z_NOISE))


def confidence(item: ItemEvidence, floors: EvidenceFloors = DEFAULT_FLOORS) -> float:
    """How much of the question a hit seems to answer; comparable between queries, 0 to 1.6.

    The highest confidence among the hits tells answerable questions from questions about something else.
    """
    return (item.lexical or 0.0) + floors.dense_share * (item.dense or 0.0)


def default_item_evidence(item: ItemEvidence, floors: EvidenceFloors = DEFAULT_FLOORS) -> EvidenceLevel:
    """Evidence of one hit from its own scores; contradictions and low authority keep it from strong."""
    lexical, dense = item.lexical or 0.0, item.dense or 0.0
    total = confidence(item, floors)
    if lexical < floors.lexical and total < floors.confidence:
        return EvidenceLevel.NONE
    relevant = (
        lexical >= floors.strong_lexical or dense >= floors.strong_dense or total >= floors.strong_confidence
    )
    trusted = effective_authority(item.authority, item.supports, item.contradicts) >= floors.authority
    return EvidenceLevel.STRONG if relevant and trusted else EvidenceLevel.WEAK


def best_evidence(levels: Collection[EvidenceLevel]) -> EvidenceLevel:
    """Evidence of an answer: its best item's; none for an empty one."""
    for level in (EvidenceLevel.STRONG, EvidenceLevel.WEAK):
        if level in levels:
            return level
    return EvidenceLevel.NONE


def reaches(level: EvidenceLevel, least: MinEvidence | None) -> bool:
    """Whether evidence is enough; None asks for none."""
    if least is None or level is EvidenceLevel.STRONG:
        return True
    return level is EvidenceLevel.WEAK and least is MinEvidence.WEAK
