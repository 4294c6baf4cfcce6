"""What is found: every question of every data set, through the product's own store.

Documents go in by ``add``, vectors are made from the queue, and questions are asked by ``search``: Postgres,
access rules and ranking are the real ones. Beside the two profiles stand the two channels alone and BM25
from a library.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.baseline import Bm25Baseline
from benchmarks.datasets import DataSet, Question, load_collection, load_conversations
from benchmarks.embeddings import DiskCachedEmbedder, cached_embedder
from benchmarks.evidence import EvidenceReport, measure_evidence
from benchmarks.metrics import COLUMNS, Scores, mean, score
from benchmarks.report import Table
from benchmarks.server import PRINCIPAL, bench_server, open_store
from corbits_memory.core.enums import SearchProfile
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.engine.vectors import vector_text
from corbits_memory.errors import MemoryError
from corbits_memory.ports import SearchQuery

LIMIT = 20
BATCH = 500
SYSTEMS = ("BM25 (bm25s)", "lexical only", "dense only", "compat", "default")
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Nobody will miss these rows, and this part measures no time."""

TARGETS = {
    "LoCoMo-dev": {"nDCG@10": 0.65, "R@10": 0.83, "MRR": 0.62},
    "Cranfield": {"nDCG@10": 0.405},
    "XQuAD en": {"nDCG@10": 0.98},
    "XQuAD de": {"nDCG@10": 0.98},
    "XQuAD de on en": {"nDCG@10": 0.925},
}
"""What ``default`` must reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Questions put to one tenant. Trials of one label are averaged over all their questions."""

    label: str
    tenant_id: str
    data: DataSet
    questions: tuple[Question, ...]


Answers = dict[str, list[Scores]]
"""Scores of each question by system."""


def plan_trials(*, quick: bool, only: Sequence[str] = ()) -> list[Trial]:
    """All trials; ``only`` keeps those whose label begins so. Quick: one conversation, and XQuAD en."""
    conversations = load_conversations(1 if quick else None)
    trials = [_trial("LoCoMo-dev", data.name, data) for data in conversations]
    english = load_collection("xquad-en", "english")
    trials.append(_trial("XQuAD en", "xquad-en", english))
    if not quick:
        german, chinese = load_collection("xquad-de", "german"), load_collection("xquad-zh", "simple")
        cranfield = load_collection("cranfield", "english")
        trials += [
            _trial("XQuAD de", "xquad-de", german),
            _trial("XQuAD zh", "xquad-zh", chinese),
            _trial("XQuAD de on en", "xquad-en", english, german.questions),
            _trial("XQuAD zh on en", "xquad-en", english, chinese.questions),
            _trial("Cranfield", "cranfield", cranfield),
        ]
        everything = DataSet(
            name="all",
            language="english",
            documents=tuple(d for data in (*conversations, cranfield) for d in data.documents),
            questions=(),
        )
        asked = tuple(question for data in conversations for question in data.questions)
        trials += [
            _trial("LoCoMo-dev, one tenant", "all", everything, asked),
            _trial("Cranfield, one tenant", "all", everything, cranfield.questions),
        ]
    return [trial for trial in trials if not only or trial.label.startswith(tuple(only))]


async def run_retrieval(*, quick: bool = False, only: Sequence[str] = (), details: Path | None = None) -> str:
    """Markdown of the retrieval and evidence tables. ``details``: a file for each question's scores."""
    trials = plan_trials(quick=quick, only=only)
    embedder = cached_embedder()
    with bench_server(FAST) as server:
        url = await server.create_database("retrieval")
        results = await _run_trials(url, embedder, trials)
        conversations = [trial for trial in trials if trial.label == "LoCoMo-dev"]
        evidence = await measure_evidence(url, embedder, conversations) if len(conversations) > 1 else None
        versions = await server.version()
    await embedder.close()
    if details is not None:
        _write_details(details, trials, results)
    return f"{render(trials, results, evidence)}\n\n{versions}"


def _write_details(file: Path, trials: Sequence[Trial], results: Sequence[Answers]) -> None:
    file.write_text(json.dumps(_details(trials, results)), encoding="utf-8")


async def _run_trials(url: str, embedder: DiskCachedEmbedder, trials: Sequence[Trial]) -> list[Answers]:
    loaded: set[str] = set()
    results = []
    async with open_store(url, embedder) as store, open_store(url, None) as wordless:
        with psycopg.connect(url, autocommit=True) as conn:
            for trial in trials:
                if trial.tenant_id not in loaded:
                    await load(store, trial.tenant_id, trial.data)
                    loaded.add(trial.tenant_id)
                results.append(await _answer(conn, store, wordless, embedder, trial))
                _say(f"{trial.label} ({trial.tenant_id}): {_line(results[-1])}")
    return results


async def load(store: PostgresDocumentStore, tenant_id: str, data: DataSet) -> None:
    """Add the documents and make their vectors, as a worker would. Raises the first refusal."""
    for start in range(0, len(data.documents), BATCH):
        answers = await store.add(
            tenant_id=tenant_id, principal_id=PRINCIPAL, documents=data.documents[start : start + BATCH]
        )
        for answer in answers:
            if isinstance(answer, MemoryError):
                raise answer
    await store.embedding.drain(tenant_id)
    await store.statistics.refresh(tenant_id)


async def _answer(
    conn: psycopg.Connection,
    store: PostgresDocumentStore,
    wordless: PostgresDocumentStore,
    embedder: DiskCachedEmbedder,
    trial: Trial,
) -> Answers:
    found = {
        "BM25 (bm25s)": Bm25Baseline(conn, trial.data).search(trial.questions, LIMIT),
        "lexical only": await _search(wordless, trial, SearchProfile.DEFAULT),
        "dense only": await _nearest(conn, embedder, trial),
        "compat": await _search(store, trial, SearchProfile.COMPAT),
        "default": await _search(store, trial, SearchProfile.DEFAULT),
    }
    return {
        system: [
            score(refs, question.relevant) for refs, question in zip(answers, trial.questions, strict=True)
        ]
        for system, answers in found.items()
    }


async def _search(store: PostgresDocumentStore, trial: Trial, profile: SearchProfile) -> list[list[str]]:
    answers = []
    for question in trial.questions:
        result = await store.search(
            tenant_id=trial.tenant_id,
            principal_id=PRINCIPAL,
            query=SearchQuery(query=question.text, limit=LIMIT, profile=profile),
        )
        answers.append([item.external_ref for item in result.items])
    return answers


async def _nearest(conn: psycopg.Connection, embedder: DiskCachedEmbedder, trial: Trial) -> list[list[str]]:
    """The dense channel alone: an exact scan of the stored vectors, best chunk a document."""
    table = sql.Identifier("memory", f"embedding_{embedder.model_key}")
    query = sql.SQL(
        "SELECT d.external_ref FROM (SELECT e.document_id, min(e.embedding <=> %(vector)s::halfvec) AS distance "
        "FROM {table} e WHERE e.tenant_id = %(tenant)s GROUP BY e.document_id) AS n "
        "JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = n.document_id "
        "ORDER BY n.distance, d.id LIMIT %(limit)s"
    ).format(table=table)
    vectors = await embedder.embed([question.text for question in trial.questions], purpose="query")
    return [
        [
            str(row[0])
            for row in conn.execute(
                query, {"vector": vector_text(vector), "tenant": trial.tenant_id, "limit": LIMIT}
            )
        ]
        for vector in vectors
    ]


def summarise(trials: Sequence[Trial], results: Sequence[Answers]) -> dict[str, dict[str, Scores]]:
    """Means by label and system; questions of trials with one label are pooled."""
    labels = list(dict.fromkeys(trial.label for trial in trials))
    return {
        label: {
            system: mean(
                [
                    scores
                    for trial, answers in zip(trials, results, strict=True)
                    if trial.label == label
                    for scores in answers[system]
                ]
            )
            for system in SYSTEMS
        }
        for label in labels
    }


def render(
    trials: Sequence[Trial], results: Sequence[Answers], evidence: EvidenceReport | None = None
) -> str:
    """The tables, targets beside what was reached."""
    summary = summarise(trials, results)
    table = Table(("set", "questions", "system", *COLUMNS))
    for label, systems in summary.items():
        count = sum(len(trial.questions) for trial in trials if trial.label == label)
        for system, scores in systems.items():
            table.add(label, count, system, *_numbers(scores))
    parts = [table.markdown(), _targets(summary).markdown(), _categories(trials, results).markdown()]
    if evidence is not None:
        parts.append(evidence.markdown())
    return "\n\n".join(parts)


def _targets(summary: dict[str, dict[str, Scores]]) -> Table:
    table = Table(("`default` must hold", "measure", "target", "reached", "holds"))
    for label, wanted in TARGETS.items():
        if label in summary:
            reached = dict(zip(COLUMNS, _values(summary[label]["default"]), strict=True))
            for measure, target in wanted.items():
                held = reached[measure] >= target
                table.add(
                    label, measure, f"{target:.3f}", f"{reached[measure]:.4f}", "yes" if held else "**no**"
                )
    return table


def _categories(trials: Sequence[Trial], results: Sequence[Answers]) -> Table:
    table = Table(("LoCoMo question type", "questions", "system", *COLUMNS))
    pooled: dict[tuple[str, str], list[Scores]] = {}
    for trial, answers in zip(trials, results, strict=True):
        if trial.label == "LoCoMo-dev":
            for system in ("BM25 (bm25s)", "default"):
                for question, scores in zip(trial.questions, answers[system], strict=True):
                    pooled.setdefault((question.category or "", system), []).append(scores)
    for (category, system), all_scores in sorted(pooled.items()):
        table.add(category, len(all_scores), system, *_numbers(mean(all_scores)))
    return table


def _details(trials: Sequence[Trial], results: Sequence[Answers]) -> list[dict[str, object]]:
    return [
        {"label": trial.label, "question": question.id, **{s: _numbers(a[i]) for s, a in answers.items()}}
        for trial, answers in zip(trials, results, strict=True)
        for i, question in enumerate(trial.questions)
    ]


def _trial(label: str, tenant_id: str, data: DataSet, questions: tuple[Question, ...] | None = None) -> Trial:
    return Trial(
        label=label,
        tenant_id=tenant_id,
        data=data,
        questions=data.questions if questions is None else questions,
    )


def _values(scores: Scores) -> tuple[float, ...]:
    return (scores.recall_5, scores.recall_10, scores.recall_20, scores.mrr, scores.ndcg_10)


def _numbers(scores: Scores) -> tuple[str, ...]:
    return tuple(f"{value:.3f}" for value in _values(scores))


def _line(answers: Answers) -> str:
    return ", ".join(f"{system} {mean(scores).ndcg_10:.3f}" for system, scores in answers.items())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
