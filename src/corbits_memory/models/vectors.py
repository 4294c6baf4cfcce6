"""Checks of what an embedding model answers, and the mean of the windows of one text."""

import math
from collections.abc import Sequence
from typing import Any

from corbits_memory.models.endpoint import AnswerError

_NUMBERS = {int, float}


def member(answer: Any, name: str) -> Any:
    """The named field of an answer that must be an object."""
    if not isinstance(answer, dict) or name not in answer:
        raise AnswerError(f"it has no {name!r}")
    return answer[name]


def read_vectors(rows: Any, *, count: int, dims: int | None) -> list[list[float]]:
    """``rows`` as vectors: ``count`` of them, finite, of ``dims`` dimensions or at least of equal ones."""
    if not isinstance(rows, list):
        raise AnswerError("it holds no list of vectors")
    if len(rows) != count:
        raise AnswerError(f"it holds {len(rows)} vectors for {count} texts")
    vectors = [_read_vector(row) for row in rows]
    expected = dims if dims is not None else len(vectors[0])
    for vector in vectors:
        if len(vector) != expected:
            raise AnswerError(
                f"it holds a vector of {len(vector)} dimensions where the model has {expected} "
                "(did the model behind the URL change? Then restart and re-embed)"
            )
    return vectors


def _read_vector(row: Any) -> list[float]:
    if not isinstance(row, list) or not row:
        raise AnswerError("it holds something that is not a vector")
    if not set(map(type, row)) <= _NUMBERS:
        raise AnswerError("it holds a vector with something that is not a number")
    try:
        vector = [float(number) for number in row]
    except OverflowError:
        raise AnswerError("it holds a vector with a number that is not finite") from None
    if not all(map(math.isfinite, vector)):
        raise AnswerError("it holds a vector with a number that is not finite")
    if not any(vector):
        raise AnswerError("it holds a vector of zeros, which has no direction")
    return vector


def unit(vector: Sequence[float]) -> list[float]:
    """The vector scaled to length 1; one of zeros stays."""
    length = math.hypot(*vector)
    return [number / length for number in vector] if length else list(vector)


def mean(vectors: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """The direction of the weighted sum of the vectors' directions, as a unit vector."""
    if len(vectors) == 1:
        return list(vectors[0])
    directions = [unit(vector) for vector in vectors]
    total = [
        sum(w * d[i] for w, d in zip(weights, directions, strict=True)) for i in range(len(directions[0]))
    ]
    return unit(total)
