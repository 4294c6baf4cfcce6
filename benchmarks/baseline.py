"""The yardstick: BM25 as a library has it, over title and text of the same documents.

Words are those of Postgres's own Snowball configurations (stemmed, without stop words), so that both sides
split and stem alike; scripts without spaces become overlapping character bigrams.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import bm25s
import psycopg

from benchmarks.datasets import DataSet, Question, texts_of

K1, B = 1.2, 0.75
_HAN = re.compile(r"[\u3400-\u9fff]+")


class Bm25Baseline:
    """An index over one data set."""

    def __init__(self, conn: psycopg.Connection, data: DataSet) -> None:
        self._conn = conn
        self._language = data.language
        self._references = [document.external_ref or "" for document in data.documents]
        tokens = self._tokens(texts_of(data.documents))
        self._known = {token for document in tokens for token in document}
        self._index = bm25s.BM25(method="lucene", k1=K1, b=B)
        self._index.index(tokens, show_progress=False)

    def search(self, questions: Sequence[Question], limit: int) -> list[list[str]]:
        """External references for each question, best first, matches only."""
        answers: list[list[str]] = []
        for tokens in self._tokens([question.text for question in questions]):
            known = list(dict.fromkeys(token for token in tokens if token in self._known))
            if not known:
                answers.append([])
                continue
            scores = self._index.get_scores(known)
            order = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:limit]
            answers.append([self._references[row] for row in order if scores[row] > 0])
        return answers

    def _tokens(self, texts: Sequence[str]) -> list[list[str]]:
        rows = self._conn.execute(
            "SELECT t.i, l.lexeme, cardinality(l.positions) FROM unnest(%s::text[]) WITH ORDINALITY AS t(text, i), "
            "unnest(to_tsvector(%s::regconfig, t.text)) AS l ORDER BY t.i, l.lexeme",
            (list(map(_bigrams, texts)), self._language),
        )
        tokens: list[list[str]] = [[] for _ in texts]
        for place, lexeme, count in rows:
            tokens[place - 1] += [lexeme] * count
        return tokens


def _bigrams(text: str) -> str:
    return _HAN.sub(_split, text)


def _split(run: re.Match[str]) -> str:
    characters = run.group()
    pairs = ["".join(pair) for pair in pairwise(characters)] or [characters]
    return f" {' '.join(pairs)} "
