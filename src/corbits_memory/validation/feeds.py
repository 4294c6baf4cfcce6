"""Checks of what the feed takes. In this process, numbers out of range are moved into it; HTTP refuses them."""

import math

from corbits_memory.core import limits
from corbits_memory.core.enums import FeedOp
from corbits_memory.ports import FeedQuery
from corbits_memory.validation.problems import Problems

PLAIN_OPS = frozenset({FeedOp.UPSERT})


def feed_query(
    *,
    after: object = None,
    limit: object = None,
    ops: object = None,
    exclude_generator: object = None,
    include_text: object = None,
) -> FeedQuery:
    """The validated query; raises ``InvalidInputError`` with every problem."""
    problems = Problems()
    query = FeedQuery(
        after=_clamped(problems, "after", after, low=0, high=limits.SAFE_INTEGER, default=0),
        limit=_clamped(
            problems, "limit", limit, low=1, high=limits.FEED_LIMIT_MAX, default=limits.FEED_LIMIT_DEFAULT
        ),
        ops=_ops(problems, ops),
        exclude_generator=_generator(problems, exclude_generator),
        include_text=problems.flag("include_text", include_text),
    )
    problems.raise_if_any()
    return query


def _clamped(problems: Problems, field: str, value: object, *, low: int, high: int, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        problems.add(field, "must be an integer")
        return default
    return math.floor(min(max(value, low), high))


def _ops(problems: Problems, value: object) -> frozenset[FeedOp]:
    words = problems.items("ops", value, max_items=len(FeedOp))
    if any(not isinstance(word, str) or word not in set(FeedOp) for word in words):
        problems.add("ops", f"must be some of: {', '.join(FeedOp)}")
        return PLAIN_OPS
    return frozenset(FeedOp(str(word)) for word in words) or PLAIN_OPS


def _generator(problems: Problems, value: object) -> str | None:
    """Trimmed; blank means no exclusion."""
    if isinstance(value, str) and not value.strip():
        return None
    return problems.identifier("exclude_generator", value.strip() if isinstance(value, str) else value)
