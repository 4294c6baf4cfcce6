"""Two generations of a corpus, asked the same questions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from corbits_memory.core.relevance import ndcg, overlap, percentile, rank_correlation, recall, reciprocal_rank

RANKS = 10
"""Answers are compared so far down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A document found; ``names`` are what judgements may call it by."""

    document_id: str
    title: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one generation answered: documents, best first, each once; and how long that took."""

    hits: tuple[Hit, ...]
    evidence: str
    degraded: tuple[str, ...]
    seconds: float

    @property
    def found(self) -> list[str]:
        return [hit.document_id for hit in self.hits]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Against judgements, each 0 to 1."""

    recall: float
    ndcg: float
    reciprocal_rank: float

    @classmethod
    def of(cls, answer: Answer, relevant: Collection[str]) -> "Quality":
        # By the name that is judged, so that a document with two names counts once.
        found = [
            next((name for name in hit.names if name in relevant), hit.document_id) for hit in answer.hits
        ]
        return cls(
            recall=recall(found, relevant, RANKS),
            ndcg=ndcg(found, relevant, RANKS),
            reciprocal_rank=reciprocal_rank(found, relevant),
        )

    @classmethod
    def mean(cls, qualities: Sequence["Quality"]) -> "Quality":
        return cls(
            recall=fmean(one.recall for one in qualities),
            ndcg=fmean(one.ndcg for one in qualities),
            reciprocal_rank=fmean(one.reciprocal_rank for one in qualities),
        )


@dataclass(frozen=True, kw_only=True)
class QueryComparison:
    """One question's answers. ``relevant`` empty: nobody judged it."""

    query: str
    before: Answer
    after: Answer
    relevant: frozenset[str] = frozenset()

    @cached_property
    def overlap(self) -> float:
        return overlap(self.before.found, self.after.found, RANKS)

    @cached_property
    def correlation(self) -> float | None:
        return rank_correlation(self.before.found, self.after.found)

    @cached_property
    def only_before(self) -> tuple[Hit, ...]:
        found = set(self.after.found)
        return tuple(hit for hit in self.before.hits if hit.document_id not in found)

    @cached_property
    def only_after(self) -> tuple[Hit, ...]:
        found = set(self.before.found)
        return tuple(hit for hit in self.after.hits if hit.document_id not in found)

    @cached_property
    def quality(self) -> tuple[Quality, Quality] | None:
        """Before and after."""
        if not self.relevant:
            return None
        return Quality.of(self.before, self.relevant), Quality.of(self.after, self.relevant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One generation's answers taken together; times in seconds."""

    median: float
    p95: float
    strong: int
    none: int
    """Answers with strong evidence, and with none."""
    degraded: dict[str, int] = field(default_factory=dict)
    quality: Quality | None = None

    @classmethod
    def of(cls, answers: Sequence[Answer], qualities: Sequence[Quality]) -> "Side":
        times = [answer.seconds for answer in answers]
        degraded: dict[str, int] = {}
        for flag in (flag for answer in answers for flag in answer.degraded):
            degraded[flag] = degraded.get(flag, 0) + 1
        return cls(
            median=percentile(times, 0.5),
            p95=percentile(times, 0.95),
            strong=sum(answer.evidence == "strong" for answer in answers),
            none=sum(answer.evidence == "none" for answer in answers),
            degraded=degraded,
            quality=Quality.mean(qualities) if qualities else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All questions. ``better`` and ``worse`` count those judged whose nDCG rose and fell."""

    queries: int
    judged: int
    same: int
    """Answers with the same documents in the same order."""
    overlap: float
    correlation: float | None
    only_before: int
    only_after: int
    better: int
    worse: int
    before: Side
    after: Side

    @classmethod
    def of(cls, compared: Sequence[QueryComparison]) -> "Comparison":
        """Of at least one question."""
        qualities = [one.quality for one in compared if one.quality is not None]
        correlations = [one.correlation for one in compared if one.correlation is not None]
        gains = [after.ndcg - before.ndcg for before, after in qualities]
        return cls(
            queries=len(compared),
            judged=len(qualities),
            same=sum(one.before.found == one.after.found for one in compared),
            overlap=fmean(one.overlap for one in compared),
            correlation=fmean(correlations) if correlations else None,
            only_before=sum(len(one.only_before) for one in compared),
            only_after=sum(len(one.only_after) for one in compared),
            better=sum(gain > 0 for gain in gains),
            worse=sum(gain < 0 for gain in gains),
            before=Side.of([one.before for one in compared], [before for before, _ in qualities]),
            after=Side.of([one.after for one in compared], [after for _, after in qualities]),
        )
