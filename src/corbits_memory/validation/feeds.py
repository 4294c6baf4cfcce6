"""Checks of what the feed takes. In this process, numbers out of range are moved into it; HTTP refuses them."""

import math

from corbits_memory.core import limits
from corbits_memory.core.enums import FeedOp
from corbits_memory.ports import FeedQuery, NewSubscription
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


def new_subscription(
    *,
    principal_id: str,
    url: object,
    principal: object = None,
    ops: object = None,
    exclude_generator: object = None,
    include_text: object = None,
    after: object = None,
) -> NewSubscription:
    """The validated subscription of ``principal_id``, in whose place another ``principal`` may be told.

    What may be called is the store's to judge. Raises ``InvalidInputError`` with every problem.
    """
    problems = Problems()
    subscription = NewSubscription(
        url=problems.required_text("url", url, max_chars=limits.URL_CHARS),
        principal_id=problems.identifier("principal", principal) or principal_id,
        ops=_ops(problems, ops),
        exclude_generator=_generator(problems, exclude_generator),
        include_text=problems.flag("include_text", include_text),
        after=None if after is None else _number(problems, "after", after),
    )
    problems.raise_if_any()
    return subscription


def dead_letter_page(*, after: object = None, limit: object = None) -> tuple[int, int]:
    """The validated cursor and limit of a page of dead letters."""
    problems = Problems()
    page = (
        _number(problems, "after", after),
        problems.integer(
            "limit", limit, low=1, high=limits.DEAD_LIMIT_MAX, default=limits.DEAD_LIMIT_DEFAULT
        ),
    )
    problems.raise_if_any()
    return page


def replayed_seqs(seqs: object) -> tuple[int, ...] | None:
    """The validated numbers of dead letters; None for all."""
    if seqs is None:
        return None
    problems = Problems()
    # In a list, None is not "absent" but wrong: -1 stands for it.
    numbers = [
        _number(problems, f"seqs[{index}]", -1 if seq is None else seq)
        for index, seq in enumerate(problems.items("seqs", seqs, max_items=limits.REPLAYED))
    ]
    problems.raise_if_any()
    return tuple(numbers)


def _number(problems: Problems, field: str, value: object) -> int:
    return problems.integer(
        field, value, low=0, high=limits.SAFE_INTEGER, default=0, rule="must be a non-negative integer"
    )


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
