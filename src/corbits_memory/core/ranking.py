"""The default profile's one score: what both channels say about a row, in the context of its thread.

Candidates come with exact scores of both channels. A row's own relevance ``x`` is a convex sum of them; its
neighbours, its thread, its author and the question before it add to that; priors multiply.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.temporal import HALF_LIFE_MS

_NEUTRAL_AUTHORITY = 0.5

PART_NAMES = (
    "x",
    "neighbours",
    "thread",
    "participant",
    "answer",
    "question",
    "length",
    "authority",
    "corroboration",
    "temporal",
)
"""Parts of a score in the order of :attr:`Scored.contributions`: seven that add up, three that multiply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingConstants:
    """Every constant of the default profile. One set for all corpora and languages."""

    dense_weight: float = 0.48
    lexical_weight: float = 0.52
    coverage: float = 1.6
    """A row whose BM25 is this many times the query's idf covers it in full."""
    neighbour_weights: tuple[float, float, float] = (0.1, 0.1, 0.05)
    """Share of a neighbour's x at distance 1, 2, 3, on either side."""
    thread_weight: float = 1.0
    """Share of the best x of the row's thread."""
    participant_bonus: float = 0.06
    """For a row whose author the query names, where candidates have several authors."""
    answer_weight: float = 0.2
    """Share of the previous turn's x, when that turn ends with a question."""
    question_penalty: float = 0.1
    """Off a turn that itself ends with a question."""
    length_weight: float = 0.03
    length_cap: float = 4.0
    """ln(1 + words) counts up to here: about 54 words."""
    sample_sd: float = 3.0
    """Deviations below the sample's mean where dense relevance starts."""
    sample_min: int = 64
    """Vectors of a full sample; with fewer, the model's default is blended in."""
    authority_weight: float = 0.3
    corroboration_weight: float = 0.5
    temporal_weight: float = 0.3
    """How much of a prior's distance from 1 counts, 0 to 1."""
    half_life_ms: float = HALF_LIFE_MS
    rerank_weight: float = 0.5
    """Share of a reranker's score in x, where a row has one."""
    mmr_lambda: float = 0.9
    """Relevance against diversity; 1 is relevance alone."""
    near_identical: float = 0.9
    """Share of common word shingles from which two texts say the same."""


DEFAULT_CONSTANTS = RankingConstants()


class Candidate(NamedTuple):
    """One visible row with its exact scores in both channels."""

    chunk_id: str
    document_id: str
    occurred_at: datetime
    thread: str | None = None
    author: str | None = None
    ends_with_question: bool = False
    words: int = 0
    """Words of the text; counting beyond the length cap changes nothing."""
    bm25: float = 0.0
    cosine: float | None = None
    """None when the row has no vector yet."""
    authority: float = _NEUTRAL_AUTHORITY
    supports: int = 0
    contradicts: int = 0
    temporal_class: TemporalClass = TemporalClass.EVENT
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """What scores are relative to."""

    now: datetime
    idf_total: float
    """Σ idf over all lexemes of the query, unknown ones with the highest idf; 0 when it has none."""
    query_words: frozenset[str] = frozenset()
    """:func:`corbits_memory.core.text.words` of the query: whom it names."""
    cosine_lo: float | None = None
    """Where dense relevance starts (:func:`cosine_floor`); None means ``default_lo``."""
    default_lo: float = 0.0
    """The model's own cosine of unrelated texts."""


class Scored(NamedTuple):
    """A candidate with its score and where it came from."""

    candidate: Candidate
    score: float
    x: float
    """Own relevance, 0 to 1."""
    lexical: float
    """``lexical'``: how much of the query the row's words cover, 0 to 1."""
    dense: float | None
    """``dense'``, 0 at the floor and 1 for the best candidate; None without a vector."""
    contributions: tuple[float, ...]

    @property
    def parts(self) -> Mapping[str, float]:
        """Each part of the score by name, to explain it."""
        return dict(zip(PART_NAMES, self.contributions, strict=True))


Neighbours = Mapping[str, tuple[tuple[int, str], ...]]
"""For a chunk id, (offset, chunk id) of true neighbours: rows −3…+3 beside it in its thread, or the chunks
beside it in its document. Ids that are no candidates count nothing."""


def cosine_floor(
    sample_cosines: Sequence[float], default_lo: float, constants: RankingConstants = DEFAULT_CONSTANTS
) -> float:
    """Mean − 3·sd of the query's cosines to a sample of the tenant's vectors; ``default_lo`` fills up a
    sample below 64.
    """
    count = len(sample_cosines)
    if not count:
        return default_lo
    mean, sd = sample_statistics(sample_cosines)
    share = min(1.0, count / constants.sample_min)
    return share * (mean - constants.sample_sd * sd) + (1.0 - share) * default_lo


def sample_statistics(sample_cosines: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation; (0, 0) of nothing."""
    count = len(sample_cosines)
    if not count:
        return 0.0, 0.0
    mean = math.fsum(sample_cosines) / count
    return mean, math.sqrt(math.fsum((cosine - mean) ** 2 for cosine in sample_cosines) / count)


def score_candidates(
    candidates: Sequence[Candidate],
    query: QueryContext,
    constants: RankingConstants = DEFAULT_CONSTANTS,
    *,
    neighbours: Neighbours | None = None,
    rerank: Mapping[str, float] | None = None,
) -> list[Scored]:
    """Score and sort, best first; ties by chunk id. The order of the input never matters.

    Chunk ids are distinct. ``rerank`` holds calibrated scores (:func:`calibrate_rerank`) of the rows that a
    reranker has read: they are mixed with x, not put in its place.

    A row without a vector is judged by its words alone even where others have vectors, and the reverse holds
    for a query without lexemes. A row without a thread is a thread of its own.
    """
    # Imported here: it brings numpy, which only scoring needs.
    from corbits_memory.core.scoring import CandidateColumns, score_columns

    if not candidates:
        return []
    columns = CandidateColumns.of(candidates, neighbours or {})
    claims = {
        row.chunk_id: (row.supports, row.contradicts) for row in candidates if row.supports or row.contradicts
    }
    return list(score_columns(columns, query, constants, claims=claims, rerank=rerank).rows())


def calibrate_rerank(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores of a cross-encoder on 0..1: kept where all lie there, else read as logits. NaN and infinities
    are left out.
    """
    finite = {key: score for key, score in scores.items() if math.isfinite(score)}
    if all(0.0 <= score <= 1.0 for score in finite.values()):
        return finite
    return {key: 0.5 + 0.5 * math.tanh(score / 2.0) for key, score in finite.items()}
