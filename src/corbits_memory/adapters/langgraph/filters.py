"""Filters on items' values, as LangGraph's own stores read them."""

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any

from langgraph.store.base import MatchCondition

from corbits_memory.adapters.langgraph.names import Namespace
from corbits_memory.errors import InvalidInputError

_ORDERS: Mapping[str, Callable[[float, float], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_OPERATORS = {"$eq", "$ne", *_ORDERS}
WILDCARD = "*"


def check_filter(wanted: Mapping[str, Any] | None) -> None:
    """Raises ``InvalidInputError`` for an operator that nothing knows."""
    for condition in (wanted or {}).values():
        if isinstance(condition, Mapping):
            unknown = [name for name in condition if name.startswith("$") and name not in _OPERATORS]
            if unknown:
                raise InvalidInputError(
                    f"a filter has an unknown operator; known are {', '.join(sorted(_OPERATORS))}"
                )
            check_filter({name: inner for name, inner in condition.items() if not name.startswith("$")})


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether an item's value meets every condition of a filter."""
    return all(_meets(value.get(name), condition) for name, condition in (wanted or {}).items())


def _meets(value: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_compares(value, name, operand) for name, operand in condition.items())
        return isinstance(value, Mapping) and passes(value, condition)
    if isinstance(condition, Sequence) and not isinstance(condition, str):
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and len(value) == len(condition)
            and all(map(_meets, value, condition))
        )
    return bool(value == condition)


def _compares(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$ne":
        return bool(value != operand)
    try:
        return _ORDERS[operator](float(value), float(operand))
    except (TypeError, ValueError):
        # What is no number is neither more nor less.
        return False


def matches(namespace: Namespace, conditions: Sequence[MatchCondition]) -> bool:
    """Whether a namespace begins and ends as it is asked to; ``*`` stands for any one label."""
    return all(_matches(namespace, condition) for condition in conditions)


def _matches(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    labels = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in (WILDCARD, label) for label, wanted in zip(labels, path, strict=True))


def common_prefix(conditions: Sequence[MatchCondition]) -> Namespace:
    """The labels with which every namespace that is asked for begins."""
    found: Namespace = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            fixed = path[: path.index(WILDCARD)] if WILDCARD in path else path
            found = max(found, fixed, key=len)
    return found
