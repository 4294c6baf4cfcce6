"""What of the relevant is found, and how high. Relevance is binary; an empty ``relevant`` is not asked."""

import math
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass

from corbits_memory.core.relevance import ndcg, recall, reciprocal_rank


@dataclass(frozen=True, slots=True)
class Scores:
    """Macro means over questions, each 0 to 1."""

    recall_5: float
    recall_10: float
    recall_20: float
    mrr: float
    ndcg_10: float


COLUMNS = ("R@5", "R@10", "R@20", "MRR", "nDCG@10")


def score(found: Sequence[str], relevant: Collection[str]) -> Scores:
    """All measures of one answer."""
    return Scores(
        recall_5=recall(found, relevant, 5),
        recall_10=recall(found, relevant, 10),
        recall_20=recall(found, relevant, 20),
        mrr=reciprocal_rank(found, relevant),
        ndcg_10=ndcg(found, relevant),
    )


def mean(scores: Sequence[Scores]) -> Scores:
    """The macro mean of at least one answer's scores."""
    columns = zip(*map(astuple, scores), strict=True)
    return Scores(*(math.fsum(column) / len(scores) for column in columns))


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """How often a positive scores above a negative, ties half: the area under the ROC curve."""
    ranked = sorted([(value, 1) for value in positive] + [(value, 0) for value in negative])
    rank_sum, place = 0.0, 0
    while place < len(ranked):
        end = place
        while end < len(ranked) and ranked[end][0] == ranked[place][0]:
            end += 1
        rank_sum += sum(kind for _, kind in ranked[place:end]) * (place + 1 + end) / 2
        place = end
    pairs = len(positive) * len(negative)
    return (rank_sum - len(positive) * (len(positive) + 1) / 2) / pairs
