"""Ask two generations the same questions: ``transform compare``."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corbits_memory.cli.backend import Backend, Json, Target, open_backend
from corbits_memory.core.comparison import RANKS, Answer, Comparison, Hit, Quality, QueryComparison, Side
from corbits_memory.core.limits import COMPARED_QUERIES
from corbits_memory.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``filters`` are other fields of a search; ``relevant`` external refs or document ids."""

    query: str
    relevant: frozenset[str]
    filters: Mapping[str, Any]


_FILTERS = frozenset(
    {"kinds", "entity_ids", "attributes", "occurred_after", "occurred_before", "valid_at", "profile"}
)


def read_questions(path: Path) -> list[Question]:
    """A line each: a query, or JSON with ``query`` and perhaps ``relevant`` and filters of a search.

    Raises ``InvalidInputError`` with the line's number; what it holds is not repeated.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            questions = list(_questions(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"--queries names a file that can't be read as UTF-8 text ({type(error).__name__})"
        ) from None
    if not questions:
        raise InvalidInputError("--queries names a file without a query")
    return questions


def sampled_questions(told: Json) -> list[Question]:
    """Each question once. Raises ``InvalidInputError`` where none was kept."""
    asked = dict.fromkeys(one["query"] for one in told["queries"])
    if not asked:
        raise InvalidInputError(
            "no question was kept here: give --queries FILE, or set QUERY_LOG_PERCENT and wait until some were asked"
        )
    return [Question(query=query, relevant=frozenset(), filters={}) for query in asked]


def _questions(lines: Iterator[str]) -> Iterator[Question]:
    read = 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        read += 1
        if read > COMPARED_QUERIES:
            raise InvalidInputError(f"--queries may hold at most {COMPARED_QUERIES:,} queries")
        if text.startswith("{"):
            yield _question(text, number)
        else:
            yield Question(query=text, relevant=frozenset(), filters={})


def _question(text: str, number: int) -> Question:
    try:
        given = json.loads(text)
    except ValueError:
        raise InvalidInputError(f"--queries: line {number} begins like JSON and is none") from None
    # Collections of judged queries call it the one or the other.
    query = given.get("query", given.get("question"))
    relevant = given.get("relevant") or []
    if not isinstance(query, str) or not query.strip():
        raise InvalidInputError(f'--queries: line {number} has no "query"')
    if not isinstance(relevant, list) or not all(isinstance(ref, str) for ref in relevant):
        raise InvalidInputError(
            f'--queries: "relevant" of line {number} must list external refs or document ids'
        )
    filters = {name: value for name, value in given.items() if name in _FILTERS}
    return Question(query=query, relevant=frozenset(relevant), filters=filters)


Progress = Callable[[int, int], None]
"""Told how many questions of how many were asked."""


async def compare(
    target: Target, before: str | None, after: str, questions: Sequence[Question], progress: Progress
) -> list[QueryComparison]:
    """Each question asked of both, in turns of who is first, so that what one warms helps both alike.

    ``before`` None: the live generation.
    """
    async with open_backend(target, os.environ) as backend:
        # Plans, models and pages of neither are cold for the first question.
        for generation in (before, after):
            await _ask(backend, questions[0], generation)
        compared = []
        for number, question in enumerate(questions):
            order = (before, after) if number % 2 == 0 else (after, before)
            answers = {generation: await _ask(backend, question, generation) for generation in order}
            compared.append(
                QueryComparison(
                    query=question.query,
                    before=answers[before],
                    after=answers[after],
                    relevant=question.relevant,
                )
            )
            progress(number + 1, len(questions))
    return compared


async def _ask(backend: Backend, question: Question, generation: str | None) -> Answer:
    body: dict[str, Any] = {
        **question.filters,
        "query": question.query,
        "limit": RANKS,
        "max_per_document": 1,
        "sample": False,
        **({} if generation is None else {"generation": generation}),
    }
    began = time.perf_counter()
    found = await backend.search(body)
    seconds = time.perf_counter() - began
    hits = [
        Hit(
            document_id=item["documentId"],
            title=item["title"],
            names=(item["externalRef"], item["documentId"]),
        )
        for item in found["items"]
    ]
    return Answer(
        hits=tuple({hit.document_id: hit for hit in hits}.values()),
        evidence=found.get("evidence") or "none",
        degraded=tuple(found.get("degraded") or ()),
        seconds=seconds,
    )


def comparison_json(compared: Sequence[QueryComparison]) -> Json:
    """The summary and every question's answers."""
    total = Comparison.of(compared)
    return {
        "queries": total.queries,
        "judged": total.judged,
        "sameAnswers": total.same,
        f"overlapAt{RANKS}": total.overlap,
        "rankCorrelation": total.correlation,
        "onlyBefore": total.only_before,
        "onlyAfter": total.only_after,
        "better": total.better,
        "worse": total.worse,
        "before": _side_json(total.before),
        "after": _side_json(total.after),
        "perQuery": [_query_json(one) for one in compared],
    }


def _side_json(side: Side) -> Json:
    return {
        "medianMs": side.median * 1_000,
        "p95Ms": side.p95 * 1_000,
        "strongEvidence": side.strong,
        "noEvidence": side.none,
        "degraded": side.degraded,
        **({} if side.quality is None else _quality_json(side.quality)),
    }


def _quality_json(quality: Quality) -> Json:
    return {
        f"recallAt{RANKS}": quality.recall,
        f"ndcgAt{RANKS}": quality.ndcg,
        "reciprocalRank": quality.reciprocal_rank,
    }


def _query_json(one: QueryComparison) -> Json:
    told: Json = {
        "query": one.query,
        f"overlapAt{RANKS}": one.overlap,
        "rankCorrelation": one.correlation,
        "before": [_hit_json(hit) for hit in one.before.hits],
        "after": [_hit_json(hit) for hit in one.after.hits],
        "beforeMs": one.before.seconds * 1_000,
        "afterMs": one.after.seconds * 1_000,
        "beforeEvidence": one.before.evidence,
        "afterEvidence": one.after.evidence,
    }
    if one.quality is not None:
        before, after = one.quality
        told["beforeQuality"], told["afterQuality"] = _quality_json(before), _quality_json(after)
    return told


def _hit_json(hit: Hit) -> Json:
    return {"documentId": hit.document_id, "externalRef": hit.names[0], "title": hit.title}
