"""Can the evidence level be believed? Questions that a conversation answers, against the same questions put to
another conversation with the names exchanged, which it can't answer."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from benchmarks.datasets import DataSet
from benchmarks.embeddings import DiskCachedEmbedder
from benchmarks.metrics import auc
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, open_store
from corbits_memory.core.enums import EvidenceLevel
from corbits_memory.core.evidence import ItemEvidence, confidence, dense_level
from corbits_memory.engine.vectors import vector_text
from corbits_memory.ports import SearchItem, SearchQuery

if TYPE_CHECKING:
    from benchmarks.retrieval import Trial

TARGET = 0.92
LIMIT = 10


@dataclass(slots=True)
class EvidenceReport:
    """Scores and levels of answerable questions and of foreign ones."""

    scores: dict[str, list[float]] = field(default_factory=lambda: {"answerable": [], "foreign": []})
    levels: dict[str, Counter[str]] = field(
        default_factory=lambda: {"answerable": Counter(), "foreign": Counter()}
    )

    @property
    def area(self) -> float:
        return auc(self.scores["answerable"], self.scores["foreign"])

    def markdown(self) -> str:
        table = Table(("evidence, LoCoMo-dev", "questions", *EvidenceLevel))
        for kind, counts in self.levels.items():
            total = sum(counts.values())
            table.add(kind, total, *(f"{100 * counts[level] / total:.0f} %" for level in EvidenceLevel))
        held = "holds" if self.area >= TARGET else "**does not hold**"
        return f"{table.markdown()}\n\nAUC of the confidence behind it: {self.area:.3f} (target {TARGET}: {held})."


async def measure_evidence(
    url: str, embedder: DiskCachedEmbedder, trials: "Sequence[Trial]"
) -> EvidenceReport:
    """Ask each conversation its own questions and those of the next one; both are loaded already."""
    report = EvidenceReport()
    async with open_store(url, embedder) as store:
        with psycopg.connect(url, autocommit=True) as conn:
            for place, trial in enumerate(trials):
                other = trials[(place + 1) % len(trials)]
                names = dict(zip(_speakers(other.data), _speakers(trial.data), strict=True))
                asked = [(question.text, "answerable") for question in trial.questions]
                asked += [(exchange(question.text, names), "foreign") for question in other.questions]
                for text, kind in asked:
                    result = await store.search(
                        tenant_id=trial.tenant_id,
                        principal_id=PRINCIPAL,
                        query=SearchQuery(query=text, limit=LIMIT, explain=True),
                    )
                    [vector] = await embedder.embed([text], purpose="query")
                    spread = _spread(conn, embedder.model_key, trial.tenant_id, vector)
                    report.scores[kind].append(
                        max((_confidence(i, *spread) for i in result.items), default=0.0)
                    )
                    report.levels[kind][result.evidence] += 1
    return report


def exchange(text: str, names: Mapping[str, str]) -> str:
    """The text with each whole name replaced, all at once."""
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names))
    return pattern.sub(lambda match: names[match.group()], text)


def _speakers(data: DataSet) -> list[str]:
    counts = Counter(document.author for document in data.documents if document.author)
    return [name for name, _ in counts.most_common(2)]


def _spread(
    conn: psycopg.Connection, model_key: str, tenant_id: str, vector: Sequence[float]
) -> tuple[float, float]:
    """Mean and deviation of the query's cosines to the tenant's vectors, as the exact dense channel has them."""
    row = conn.execute(
        sql.SQL(
            "SELECT avg(1 - d), stddev_pop(1 - d) FROM (SELECT embedding <=> %s::halfvec AS d FROM {} "
            "WHERE tenant_id = %s) AS n"
        ).format(sql.Identifier("memory", f"embedding_{model_key}")),
        (vector_text(vector), tenant_id),
    ).fetchone()
    assert row is not None
    return float(row[0]), float(row[1])


def _confidence(item: SearchItem, mean: float, deviation: float) -> float:
    explain = item.explain or {}
    return confidence(
        ItemEvidence(
            lexical=explain["lexical"], dense=dense_level(explain["cosine"], mean=mean, sd=deviation)
        )
    )
