"""Reranking clients: TEI, Cohere and Voyage."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from corbits_memory.config import (
    RERANK_MODEL_DEFAULT,
    RerankConfig,
    RerankStyle,
    check_rerank_config,
    default_max_doc_chars,
)
from corbits_memory.errors import ConfigError, RerankQueryTooLongError
from corbits_memory.models.endpoint import RERANKING, AnswerError, Endpoint
from corbits_memory.models.tasks import gather
from corbits_memory.models.texts import clean
from corbits_memory.models.vectors import member
from corbits_memory.ports import RerankScore

BATCH = 32
DOCUMENT_CHARS_MIN = 200
"""The least room for a document beside the query."""
WIDE_CHARS = 3
"""What a character counts that may be a token by itself (Chinese, Japanese, Korean)."""
_WIDE_FROM = "\u2e80"


class HttpReranker(ABC):
    """A :class:`~corbits_memory.ports.Reranker` over one HTTP endpoint; batches travel at once."""

    path: ClassVar[str]
    style: ClassVar[RerankStyle]

    def __init__(self, config: RerankConfig) -> None:
        check_rerank_config(config)
        if not config.base_url:
            raise ConfigError("A reranker needs RERANK_BASE_URL; without it there is none.")
        self._config = config
        self._endpoint = Endpoint(
            family=RERANKING,
            base_url=config.base_url,
            path=self.path,
            api_key=config.api_key,
            timeout_ms=config.timeout_ms,
        )

    @abstractmethod
    def request(self, query: str, documents: Sequence[str]) -> dict[str, Any]:
        """The body that asks for the scores of ``documents``."""

    @abstractmethod
    def rows(self, answer: Any) -> Any:
        """The scored items in an answer; ``AnswerError`` when they aren't there."""

    score_field: ClassVar[str] = "relevance_score"

    @property
    def model(self) -> str:
        return self._config.model or RERANK_MODEL_DEFAULT

    async def rerank(self, query: str, documents: Sequence[str]) -> list[RerankScore]:
        """Scores, best first; a document that the model left out is missing. A blank query scores nothing.

        The scores are the endpoint's own: probabilities or logits, as it is set up.
        """
        if not documents or not query.strip():
            return []
        asked = clean(query)
        fitted = self.fit(asked, [clean(document) for document in documents])
        starts = range(0, len(fitted), BATCH)
        answers = await gather([self._call(asked, fitted[start : start + BATCH], start) for start in starts])
        scores = [score for answer in answers for score in answer]
        return sorted(scores, key=lambda scored: (-scored.score, scored.index))

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    def fit(self, query: str, documents: list[str]) -> list[str]:
        """The documents as they are sent; the service cuts them itself unless a style knows its window."""
        return documents

    async def _call(self, query: str, documents: list[str], start: int) -> list[RerankScore]:
        def parse(answer: Any) -> list[RerankScore]:
            return read_scores(self.rows(answer), count=len(documents), field=self.score_field, start=start)

        return await self._endpoint.post(self.request(query, documents), parse, private=[query, *documents])


class TeiReranker(HttpReranker):
    """Text Embeddings Inference: the server knows its model, and refuses what its window can't hold."""

    path = "/rerank"
    style = "tei"
    score_field = "score"

    def request(self, query: str, documents: Sequence[str]) -> dict[str, Any]:
        return {"query": query, "texts": list(documents)}

    def rows(self, answer: Any) -> Any:
        return answer

    def fit(self, query: str, documents: list[str]) -> list[str]:
        chars = self._config.max_doc_chars
        if chars is not None:
            return fit_documents(query, documents, max_doc_chars=chars, wide=1)
        return fit_documents(
            query, documents, max_doc_chars=default_max_doc_chars(self._config.model), wide=WIDE_CHARS
        )


class CohereReranker(HttpReranker):
    path = "/v2/rerank"
    style = "cohere"

    def request(self, query: str, documents: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "query": query, "documents": list(documents)}

    def rows(self, answer: Any) -> Any:
        return member(answer, "results")


class VoyageReranker(HttpReranker):
    path = "/v1/rerank"
    style = "voyage"

    def request(self, query: str, documents: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "query": query, "documents": list(documents)}

    def rows(self, answer: Any) -> Any:
        return member(answer, "data")


def fit_documents(query: str, documents: list[str], *, max_doc_chars: int, wide: int) -> list[str]:
    """Each document cut to what the query leaves of ``max_doc_chars``; trimmed first, so padding costs nothing.

    A character of a script without spaces counts ``wide``. Raises ``RerankQueryTooLongError`` when less than
    ``DOCUMENT_CHARS_MIN`` is left.
    """
    share = max_doc_chars - _width(query, wide)
    if share < DOCUMENT_CHARS_MIN:
        raise RerankQueryTooLongError(
            f"The query of {len(query)} characters leaves less than {DOCUMENT_CHARS_MIN} of the reranker's "
            f"{max_doc_chars} for a document: ask a shorter question, or raise RERANK_MAX_DOC_CHARS."
        )
    return [_cut(document, share, wide) for document in documents]


def _cut(document: str, share: int, wide: int) -> str:
    if _width(document, wide) <= share:
        return document
    document = document.strip()
    if wide == 1:
        return document[:share]
    used = 0
    for position, char in enumerate(document):
        used += wide if char >= _WIDE_FROM else 1
        if used > share:
            return document[:position]
    return document


def _width(text: str, wide: int) -> int:
    return len(text) + (wide - 1) * sum(char >= _WIDE_FROM for char in text) if wide > 1 else len(text)


def read_scores(rows: Any, *, count: int, field: str, start: int = 0) -> list[RerankScore]:
    """``rows`` as scores of documents ``start`` onwards; each index known and once, each score finite."""
    if not isinstance(rows, list):
        raise AnswerError("it holds no list of scores")
    scores: dict[int, float] = {}
    for row in rows:
        index = member(row, "index")
        if type(index) is not int or not 0 <= index < count:
            raise AnswerError(f"it scores a document that was not sent (there are {count})")
        if index in scores:
            raise AnswerError(f"it scores document {index} twice")
        scores[index] = _read_score(member(row, field))
    return [RerankScore(start + index, score) for index, score in scores.items()]


def _read_score(value: Any) -> float:
    try:
        score = float(value) if type(value) in {int, float} else math.nan
    except OverflowError:
        score = math.nan
    if not math.isfinite(score):
        raise AnswerError("it holds a score that is not a finite number")
    return score
