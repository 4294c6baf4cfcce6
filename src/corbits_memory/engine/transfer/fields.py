"""The fields of a line, checked one by one; all that is wrong with a line is told at once."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from corbits_memory.core import limits
from corbits_memory.engine.transfer.format import Row
from corbits_memory.errors import InvalidInputError
from corbits_memory.validation import Problems

INTEGER = 2**31 - 1


class Fields:
    """The fields of one line's object. A method that finds a problem notes it and returns something harmless."""

    def __init__(self, kind: str, given: object) -> None:
        self.problems = Problems()
        self._kind = kind
        if not isinstance(given, Mapping):
            self.problems.add(kind, "must be an object")
            self.problems.raise_if_any()
        self._given: Mapping[str, Any] = given  # type: ignore[assignment]  # else it was raised

    def add(self, field: str, problem: str) -> None:
        self.problems.add(self.called(field), problem)

    def called(self, field: str) -> str:
        return f"{self._kind}.{field}"

    def get(self, field: str) -> Any:
        """What was given, not checked; a problem when nothing was."""
        value = self._given.get(field)
        if value is None:
            self.add(field, "is required")
        return value

    def optional(self, field: str) -> Any:
        return self._given.get(field)

    def name(self, field: str, *, most: int = limits.ID_CHARS) -> str:
        value = self.get(field)
        return self.problems.identifier(self.called(field), value, max_chars=most) or ""

    def optional_name(self, field: str, *, most: int = limits.ID_CHARS) -> str | None:
        return self.problems.identifier(self.called(field), self.optional(field), max_chars=most)

    def text(self, field: str, *, most: int, may_be_blank: bool = False) -> str:
        value = self.get(field)
        name = self.called(field)
        return self.problems.optional_text(name, value, max_chars=most, may_be_blank=may_be_blank) or ""

    def optional_text(self, field: str, *, most: int, may_be_blank: bool = False) -> str | None:
        return self.problems.optional_text(
            self.called(field), self.optional(field), max_chars=most, may_be_blank=may_be_blank
        )

    def integer(self, field: str, *, low: int = 0, high: int = INTEGER) -> int:
        return integer(self.problems, self.called(field), self._given.get(field), low=low, high=high)

    def flag(self, field: str) -> bool:
        return self.problems.flag(self.called(field), self.get(field))

    def share_of_one(self, field: str) -> float:
        value = self.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            self.add(field, "must be a number from 0 to 1")
            return 0.0
        return float(value)

    def choice(self, field: str, options: type[StrEnum]) -> str:
        return self.problems.choice(self.called(field), self.get(field), options) or ""

    def optional_choice(self, field: str, options: type[StrEnum]) -> str | None:
        return self.problems.choice(self.called(field), self.optional(field), options)

    def instant(self, field: str) -> str | None:
        self.get(field)
        return self.optional_instant(field)

    def optional_instant(self, field: str) -> str | None:
        moment = self.problems.instant(self.called(field), self.optional(field))
        return None if moment is None else moment.isoformat()

    def scalars(self, field: str) -> Row:
        return dict(self.problems.scalars(self.called(field), self.get(field)))

    def same(self, field: str, expected: str, what: str) -> None:
        """A field that has to repeat what stands elsewhere."""
        if self.get(field) != expected:
            self.add(field, f"must be {what}")

    def done(self) -> None:
        self.problems.raise_if_any()


def integer(problems: Problems, name: str, value: object, *, low: int, high: int) -> int:
    if value is None:
        problems.add(name, "is required")
        return low
    return problems.integer(name, value, low=low, high=high, default=low)


def located(error: InvalidInputError, line: int) -> InvalidInputError:
    """The same problem, with the number of the line that it stands in."""
    found = error.details if isinstance(error.details, (list, tuple)) else ()
    return InvalidInputError(
        f"line {line}: {error.message}",
        details=[{"line": line, **problem} for problem in found] or [{"line": line}],
    )
