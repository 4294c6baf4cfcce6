"""The default profile's one score: what both channels say about a row, in the context of its thread.

Candidates come with exact scores of both channels. A row's own relevance ``x`` is a convex sum of them; its
neighbours, its thread, its author and the question before it add to that; priors multiply.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from corbits_memory.core.boosts import authority_multiplier
from corbits_memory.core.corroboration import corroboration_factor, effective_authority
from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.scale import clamp01, weighted
from corbits_memory.core.temporal import HALF_LIFE_MS, temporal_prior
from corbits_memory.core.text import words

_Relevance = dict[str, tuple[float, float, float | None]]
_EPSILON = 1e-9
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
    neighbour_weights: tuple[float, ...] = (0.1, 0.1, 0.05)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One visible row with its exact scores in both channels."""

    chunk_id: str
    document_id: str
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
    occurred_at: datetime
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


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate with its score and where it came from."""

    candidate: Candidate
    score: float
    x: float
    """Own relevance, 0 to 1."""
    lexical: float
    """``lexical'``: how much of the query the row's words cover, 0 to 1."""
    dense: float | None
    """``dense'``, 0 at the floor and 1 for the best candidate; None without a vector."""
    contributions: tuple[float, ...] = field(repr=False)

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
    relevance = _relevance(candidates, query, constants)
    if rerank:
        relevance = _mixed(relevance, rerank, constants.rerank_weight)
    by_id = {row.chunk_id: row for row in candidates}
    xs = {chunk_id: own[0] for chunk_id, own in relevance.items()}
    best_of_thread = _best_of_threads(candidates, xs)
    named = _named_authors(candidates, query.query_words)
    beside = neighbours or {}
    scored = []
    for row in candidates:
        x, lexical, dense = relevance[row.chunk_id]
        around, answer = _from_neighbours(row, beside.get(row.chunk_id, ()), by_id, xs, constants)
        in_thread = row.thread is not None
        additive = (
            x,
            around,
            constants.thread_weight * (best_of_thread[row.thread] if row.thread is not None else x),
            constants.participant_bonus if in_thread and row.author in named else 0.0,
            answer,
            -constants.question_penalty if in_thread and row.ends_with_question else 0.0,
            constants.length_weight * min(math.log1p(row.words), constants.length_cap),
        )
        priors = _priors(row, query.now, constants)
        score = max(0.0, sum(additive)) * priors[0] * priors[1] * priors[2]
        scored.append(Scored(row, score, x, lexical, dense, additive + priors))
    scored.sort(key=lambda item: (-item.score, item.candidate.chunk_id))
    return scored


def _relevance(
    candidates: Sequence[Candidate], query: QueryContext, constants: RankingConstants
) -> _Relevance:
    """(x, lexical', dense') of each row by chunk id."""
    low = query.default_lo if query.cosine_lo is None else query.cosine_lo
    high = max((row.cosine for row in candidates if row.cosine is not None), default=low)
    spread = max(high - low, _EPSILON)
    has_words = query.idf_total > 0
    full_cover = max(constants.coverage * query.idf_total, _EPSILON)
    relevance: _Relevance = {}
    for row in candidates:
        lexical = clamp01(row.bm25 / full_cover) if has_words else 0.0
        if row.cosine is None:
            relevance[row.chunk_id] = lexical, lexical, None
            continue
        dense = clamp01((row.cosine - low) / spread)
        x = constants.dense_weight * dense + constants.lexical_weight * lexical if has_words else dense
        relevance[row.chunk_id] = clamp01(x), lexical, dense
    return relevance


def calibrate_rerank(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores of a cross-encoder on 0..1: kept where all lie there, else read as logits. NaN and infinities
    are left out.
    """
    finite = {key: score for key, score in scores.items() if math.isfinite(score)}
    if all(0.0 <= score <= 1.0 for score in finite.values()):
        return finite
    return {key: 0.5 + 0.5 * math.tanh(score / 2.0) for key, score in finite.items()}


def _mixed(relevance: _Relevance, rerank: Mapping[str, float], weight: float) -> _Relevance:
    mixed = dict(relevance)
    for chunk_id, score in rerank.items():
        if chunk_id in mixed:
            x, lexical, dense = mixed[chunk_id]
            mixed[chunk_id] = clamp01((1.0 - weight) * x + weight * score), lexical, dense
    return mixed


def _best_of_threads(candidates: Iterable[Candidate], xs: Mapping[str, float]) -> dict[str | None, float]:
    best: dict[str | None, float] = {}
    for row in candidates:
        x = xs[row.chunk_id]
        if x > best.get(row.thread, -1.0):
            best[row.thread] = x
    return best


def _named_authors(candidates: Iterable[Candidate], query_words: frozenset[str]) -> frozenset[str | None]:
    """Authors that the query names by their whole, first or last name; none when there is one author only."""
    authors = {row.author for row in candidates if row.author and row.thread is not None}
    if len(authors) < 2 or not query_words:
        return frozenset()
    return frozenset(author for author in authors if author and _is_named(author, query_words))


def _is_named(author: str, query_words: frozenset[str]) -> bool:
    names = words(author)
    if not names:
        return False
    if all(name in query_words for name in names):
        return True
    return any(len(name) > 1 and name in query_words for name in (names[0], names[-1]))


def _from_neighbours(
    row: Candidate,
    beside: tuple[tuple[int, str], ...],
    by_id: Mapping[str, Candidate],
    xs: Mapping[str, float],
    constants: RankingConstants,
) -> tuple[float, float]:
    """(what the rows beside it add, what the question before it adds)."""
    around = answer = 0.0
    weights = constants.neighbour_weights
    for offset, chunk_id in beside:
        x = xs.get(chunk_id)
        distance = abs(offset)
        if x is None or not 0 < distance <= len(weights):
            continue
        other = by_id[chunk_id]
        same_document = other.document_id == row.document_id
        if not same_document and (row.thread is None or other.thread != row.thread):
            continue
        around += weights[distance - 1] * x
        if offset == -1 and not same_document and other.ends_with_question:
            answer += constants.answer_weight * x
    return around, answer


def _priors(row: Candidate, now: datetime, constants: RankingConstants) -> tuple[float, float, float]:
    corroboration = 1.0
    authority = row.authority
    if row.supports or row.contradicts:
        corroboration = corroboration_factor(row.supports, row.contradicts)
        authority = effective_authority(authority, row.supports, row.contradicts)
    temporal = temporal_prior(
        row.temporal_class,
        now=now,
        occurred_at=row.occurred_at,
        valid_until=row.valid_until,
        half_life_ms=constants.half_life_ms,
    )
    return (
        weighted(authority_multiplier(authority), constants.authority_weight),
        weighted(corroboration, constants.corroboration_weight),
        weighted(temporal, constants.temporal_weight),
    )
