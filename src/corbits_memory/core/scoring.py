"""The arithmetic of :mod:`corbits_memory.core.ranking`, on columns.

A search scores some hundred rows and shows ten, so rows stay columns until somebody looks at one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from corbits_memory.core.boosts import authority_multiplier
from corbits_memory.core.corroboration import corroboration_factor, effective_authority
from corbits_memory.core.enums import TemporalClass
from corbits_memory.core.ranking import Candidate, Neighbours, QueryContext, RankingConstants, Scored
from corbits_memory.core.scale import PRIOR_MAX, PRIOR_MIN, clamp01, weighted
from corbits_memory.core.temporal import prior_at
from corbits_memory.core.text import words

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Claims = Mapping[str, tuple[int, int]]
"""(supports, contradicts) by chunk id, of those that have any."""

_EPSILON = 1e-9
_REACH = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateColumns:
    """Distinct visible rows with exact scores of both channels; all columns run parallel."""

    chunk_ids: Sequence[str]
    document_ids: Sequence[str]
    threads: Sequence[str | None]
    authors: Sequence[str | None]
    asks: Sequence[bool]
    """Whether the text ends with a question."""
    words: Sequence[int]
    bm25: Sequence[float]
    cosines: Sequence[float | None]
    authorities: Sequence[float]
    temporal_classes: Sequence[TemporalClass]
    occurred: Sequence[float]
    """Seconds since 1970."""
    expires: Sequence[float | None]
    """``valid_until``, in seconds since 1970."""
    beside: Places = field(repr=False)
    """Of each row the places of its neighbours at −3…+3 (column 3 is unused); −1 where there is none."""

    @classmethod
    def of(cls, rows: Sequence[Candidate], neighbours: Neighbours) -> "CandidateColumns":
        places = {row.chunk_id: place for place, row in enumerate(rows)}
        beside = np.full((len(rows), 2 * _REACH + 1), -1, dtype=np.intp)
        for chunk_id, others in neighbours.items():
            for offset, other in others:
                if chunk_id in places and other in places and 0 < abs(offset) <= _REACH:
                    beside[places[chunk_id], offset + _REACH] = places[other]
        return cls(
            chunk_ids=[row.chunk_id for row in rows],
            document_ids=[row.document_id for row in rows],
            threads=[row.thread for row in rows],
            authors=[row.author for row in rows],
            asks=[row.ends_with_question for row in rows],
            words=[row.words for row in rows],
            bm25=[row.bm25 for row in rows],
            cosines=[row.cosine for row in rows],
            authorities=[row.authority for row in rows],
            temporal_classes=[row.temporal_class for row in rows],
            occurred=[(row.occurred_at - _EPOCH).total_seconds() for row in rows],
            expires=[
                None if row.valid_until is None else (row.valid_until - _EPOCH).total_seconds()
                for row in rows
            ],
            beside=beside,
        )

    def with_rows(self, rows: Sequence[Candidate]) -> "CandidateColumns":
        """These and more, which stand beside none."""
        if not rows:
            return self
        more = CandidateColumns.of(rows, {})
        lists = {
            name.name: [*getattr(self, name.name), *getattr(more, name.name)]
            for name in fields(self)
            if name.name != "beside"
        }
        return CandidateColumns(**lists, beside=np.concatenate([self.beside, more.beside]))

    def row(self, place: int, claims: Claims) -> Candidate:
        chunk_id, expires = self.chunk_ids[place], self.expires[place]
        supports, contradicts = claims.get(chunk_id, (0, 0))
        return Candidate(
            chunk_id=chunk_id,
            document_id=self.document_ids[place],
            thread=self.threads[place],
            author=self.authors[place],
            ends_with_question=self.asks[place],
            words=self.words[place],
            bm25=self.bm25[place],
            cosine=self.cosines[place],
            authority=self.authorities[place],
            supports=supports,
            contradicts=contradicts,
            temporal_class=self.temporal_classes[place],
            occurred_at=_EPOCH + timedelta(seconds=self.occurred[place]),
            valid_until=None if expires is None else _EPOCH + timedelta(seconds=expires),
        )


def neighbour_places(windows: Iterable[Sequence[str | None]], chunk_ids: Sequence[str]) -> Places:
    """``beside`` of :class:`CandidateColumns` from stretches of rows that follow each other.

    A window has up to seven ids in order, None where nothing stands. Ids that are no candidates count nothing.
    """
    places: dict[str | None, int] = {chunk_id: place for place, chunk_id in enumerate(chunk_ids)}
    width = 2 * _REACH + 1
    # One row more, which takes what belongs to nobody.
    beside = np.full((len(chunk_ids) + 1, width), -1, dtype=np.intp)
    stretches = np.array(
        [[places.get(chunk_id, -1) for chunk_id in window] for window in windows], dtype=np.intp
    )
    if len(stretches):
        for offset in range(1, _REACH + 1):
            left, right = stretches[:, :-offset], stretches[:, offset:]
            both = (left >= 0) & (right >= 0)
            beside[left[both], _REACH + offset] = right[both]
            beside[right[both], _REACH - offset] = left[both]
    return beside[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores of all candidates, and their order."""

    columns: CandidateColumns
    claims: Claims
    order: list[int]
    scores: list[float]
    x: list[float]
    lexical: list[float]
    dense: list[float]
    parts: Floats = field(repr=False)
    """A row of contributions a candidate, in the order of ``PART_NAMES``."""

    def rows(self) -> Iterator[Scored]:
        """Best first, made as they are asked for."""
        for place in self.order:
            dense = self.dense[place]
            yield Scored(
                self.columns.row(place, self.claims),
                self.scores[place],
                self.x[place],
                self.lexical[place],
                None if math.isnan(dense) else dense,
                tuple(self.parts[place].tolist()),
            )


def score_columns(
    columns: CandidateColumns,
    query: QueryContext,
    constants: RankingConstants,
    *,
    claims: Claims | None = None,
    rerank: Mapping[str, float] | None = None,
) -> Ranking:
    """:func:`~corbits_memory.core.ranking.score_candidates` of columns, of which there is at least one row."""
    claims = claims or {}
    x, lexical, dense = _relevance(columns, query, constants)
    if rerank:
        _mix(x, columns.chunk_ids, rerank, constants.rerank_weight)
    threads = _codes(columns.threads)
    threaded = threads > 0
    asks = np.array(columns.asks, dtype=bool)
    around, answer = _from_neighbours(columns, threads, asks, x, constants)
    additive = (
        x,
        around,
        constants.thread_weight * np.where(threaded, _best_of_threads(threads, x), x),
        constants.participant_bonus * (threaded & _named(columns, query.query_words)),
        answer,
        -constants.question_penalty * (threaded & asks),
        constants.length_weight * np.minimum([math.log1p(n) for n in columns.words], constants.length_cap),
    )
    priors = _priors(columns, query.now, claims, constants)
    total = np.maximum(sum(additive), 0.0) * priors[0] * priors[1] * priors[2]
    scores: list[float] = total.tolist()
    ids = columns.chunk_ids
    return Ranking(
        columns,
        claims,
        [place for _, _, place in sorted(zip((-total).tolist(), ids, range(len(ids)), strict=True))],
        scores,
        x.tolist(),
        lexical.tolist(),
        dense.tolist(),
        np.stack((*additive, *priors), axis=1),
    )


def _relevance(
    columns: CandidateColumns, query: QueryContext, constants: RankingConstants
) -> tuple[Floats, Floats, Floats]:
    """x, lexical' and dense' of each row; dense' is NaN without a vector."""
    cosines = np.array(columns.cosines, dtype=np.float64)  # None becomes NaN
    without = np.isnan(cosines)
    low = query.default_lo if query.cosine_lo is None else query.cosine_lo
    high = low if without.all() else float(np.nanmax(cosines))
    dense = np.clip((cosines - low) / max(high - low, _EPSILON), 0.0, 1.0)
    if query.idf_total <= 0:
        lexical = np.zeros(len(cosines))
        return np.where(without, 0.0, dense), lexical, dense
    full_cover = max(constants.coverage * query.idf_total, _EPSILON)
    lexical = np.clip(np.array(columns.bm25, dtype=np.float64) / full_cover, 0.0, 1.0)
    both = np.clip(constants.dense_weight * dense + constants.lexical_weight * lexical, 0.0, 1.0)
    return np.where(without, lexical, both), lexical, dense


def _mix(x: Floats, chunk_ids: Sequence[str], rerank: Mapping[str, float], weight: float) -> None:
    for place, chunk_id in enumerate(chunk_ids):
        if chunk_id in rerank:
            x[place] = clamp01((1.0 - weight) * float(x[place]) + weight * rerank[chunk_id])


def _codes(names: Sequence[str | None]) -> Places:
    """A number a name, from 1; 0 for None."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys((None, *names)))}
    return np.fromiter(map(numbers.__getitem__, names), dtype=np.intp, count=len(names))


def _best_of_threads(threads: Places, x: Floats) -> Floats:
    best = np.zeros(int(threads.max()) + 1)
    np.maximum.at(best, threads, x)
    found: Floats = best[threads]
    return found


def _named(columns: CandidateColumns, query_words: frozenset[str]) -> NDArray[np.bool_]:
    """Rows whose author the query names by whole, first or last name; none when there is one author only."""
    authors = {
        author
        for author, thread in zip(columns.authors, columns.threads, strict=True)
        if author and thread is not None
    }
    if len(authors) < 2 or not query_words:
        return np.zeros(len(columns.authors), dtype=bool)
    named = {author for author in authors if _is_named(author, query_words)}
    return np.array([author in named for author in columns.authors], dtype=bool)


def _is_named(author: str, query_words: frozenset[str]) -> bool:
    names = words(author)
    if not names:
        return False
    if all(name in query_words for name in names):
        return True
    return any(len(name) > 1 and name in query_words for name in (names[0], names[-1]))


def _from_neighbours(
    columns: CandidateColumns,
    threads: Places,
    asks: NDArray[np.bool_],
    x: Floats,
    constants: RankingConstants,
) -> tuple[Floats, Floats]:
    """What the rows beside each add, and what the question before it adds."""
    documents = _codes(columns.document_ids)
    one, two, three = constants.neighbour_weights
    other = columns.beside
    same_document = documents[other] == documents[:, None]
    same_thread = (threads[other] == threads[:, None]) & (threads > 0)[:, None]
    lent = np.where((other >= 0) & (same_document | same_thread), x[other], 0.0)
    around: Floats = (lent * (three, two, one, 0.0, one, two, three)).sum(axis=1)
    before = _REACH - 1
    answers = asks[other[:, before]] & ~same_document[:, before]
    return around, constants.answer_weight * np.where(answers, lent[:, before], 0.0)


def _priors(
    columns: CandidateColumns, now: datetime, claims: Claims, constants: RankingConstants
) -> tuple[Floats, Floats, Floats]:
    authority = _prior_of(np.array(columns.authorities, dtype=np.float64))
    authority = 1.0 + constants.authority_weight * (authority - 1.0)
    corroboration = np.ones(len(authority))
    if claims:
        for place, chunk_id in enumerate(columns.chunk_ids):
            if chunk_id in claims:
                own = effective_authority(columns.authorities[place], *claims[chunk_id])
                authority[place] = weighted(authority_multiplier(own), constants.authority_weight)
                corroboration[place] = weighted(
                    corroboration_factor(*claims[chunk_id]), constants.corroboration_weight
                )
    temporal = _temporal(columns, (now - _EPOCH).total_seconds(), constants.half_life_ms)
    return authority, corroboration, 1.0 + constants.temporal_weight * (temporal - 1.0)


def _temporal(columns: CandidateColumns, now: float, half_life_ms: float) -> Floats:
    age_ms = 1000.0 * (now - np.array(columns.occurred, dtype=np.float64))
    found: Floats = _prior_of(np.exp2(-np.maximum(age_ms, 0.0) / half_life_ms))
    for place, kind in enumerate(columns.temporal_classes):
        if kind is not TemporalClass.EVENT:
            expires = columns.expires[place]
            left_ms = None if expires is None else 1000.0 * (expires - now)
            found[place] = prior_at(
                kind, age_ms=float(age_ms[place]), left_ms=left_ms, half_life_ms=half_life_ms
            )
    return found


def _prior_of(shares: Floats) -> Floats:
    """:func:`~corbits_memory.core.scale.prior_of` of each."""
    found: Floats = np.clip(PRIOR_MIN + 0.6 * shares, PRIOR_MIN, PRIOR_MAX)
    return found
