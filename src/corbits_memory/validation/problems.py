"""Collects everything that is wrong with an input, so that one answer tells all of it."""

import re
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from corbits_memory.core import limits
from corbits_memory.core.planning import InvalidTextError, validate_text
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import Scalar

E = TypeVar("E", bound=StrEnum)

REPORTED = 100
"""Problems that one answer lists; a batch could have many thousands."""

_INSTANT = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:[Zz]|[+-]\d{2}:?\d{2})?)?", re.ASCII
)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
"""All of Unicode's category Cc."""


class Problems:
    """The problems found so far. A method that finds one returns a harmless value and goes on.

    Problems name the field and the rule, never the value.
    """

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def __bool__(self) -> bool:
        """Whether any were found."""
        return bool(self._found)

    def add(self, field: str, problem: str) -> None:
        self._found.append((field, problem))

    def raise_if_any(self) -> None:
        """Raises one :class:`InvalidInputError` that holds everything found, if anything was."""
        error = self.error()
        if error is not None:
            raise error

    def error(self) -> InvalidInputError | None:
        if not self._found:
            return None
        if len(self._found) == 1:
            message = " ".join(part for part in self._found[0] if part)
        else:
            names = list(dict.fromkeys(field for field, _ in self._found if field))
            more = ", …" if len(names) > 8 else ""
            message = f"{len(self._found)} problems with the input: {', '.join(names[:8])}{more}"
        listed = [{"field": field, "problem": problem} for field, problem in self._found[:REPORTED]]
        return InvalidInputError(message, details=listed)

    # --- text ---

    def required_text(self, field: str, value: object, *, max_chars: int) -> str:
        if value is None:
            self.add(field, "is required")
            return ""
        return self.optional_text(field, value, max_chars=max_chars) or ""

    def optional_text(
        self, field: str, value: object, *, max_chars: int, may_be_blank: bool = False
    ) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self.add(field, "must be text")
            return None
        problem = text_problem(value, max_chars=max_chars, may_be_blank=may_be_blank)
        if problem:
            self.add(field, problem)
            return None
        return value

    def identifier(self, field: str, value: object, *, max_chars: int = limits.ID_CHARS) -> str | None:
        """Text that names something: as other text, and without control characters."""
        text = self.optional_text(field, value, max_chars=max_chars)
        if text is not None and _has_control_characters(text):
            self.add(field, "must not contain control characters")
            return None
        return text

    def required_identifier(self, field: str, value: object) -> str:
        if value is None:
            self.add(field, "is required")
            return ""
        return self.identifier(field, value) or ""

    def identifiers(
        self, field: str, value: object, *, max_items: int, max_chars: int = limits.ID_CHARS
    ) -> tuple[str, ...]:
        """A list of identifiers, each kept once."""
        checked = [
            self.entry(f"{field}[{index}]", item, max_chars=max_chars)
            for index, item in enumerate(self.items(field, value, max_items=max_items))
        ]
        return tuple(dict.fromkeys(item for item in checked if item is not None))

    def entry(self, field: str, value: object, *, max_chars: int = limits.ID_CHARS) -> str | None:
        """One identifier of a list, where None is not "absent" but wrong."""
        if value is None:
            self.add(field, "must be text")
            return None
        return self.identifier(field, value, max_chars=max_chars)

    def items(self, field: str, value: object, *, max_items: int) -> Sequence[object]:
        if value is None:
            return ()
        if isinstance(value, str | bytes | bytearray) or not isinstance(value, Sequence | Set):
            self.add(field, "must be a list")
            return ()
        if len(value) > max_items:
            self.add(field, f"must have at most {max_items:,} entries")
            return ()
        return tuple(value)

    # --- other types ---

    def flag(self, field: str, value: object, *, default: bool = False) -> bool:
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add(field, "must be true or false")
            return default
        return value

    def integer(
        self, field: str, value: object, *, low: int, high: int, default: int, rule: str | None = None
    ) -> int:
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # in JSON, 5.0 is the integer 5
        # bool is a subclass of int; True is nobody's limit.
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.add(field, rule or f"must be an integer between {low} and {high}")
            return default
        return value

    def choice(self, field: str, value: object, options: type[E]) -> E | None:
        if value is None:
            return None
        if not isinstance(value, str) or value not in set(options):
            self.add(field, f"must be one of: {', '.join(options)}")
            return None
        return options(value)

    def instant(self, field: str, value: object) -> datetime | None:
        """An aware datetime in UTC from one, or from ISO 8601 text; without a zone it is UTC."""
        if value is None:
            return None
        moment = value if isinstance(value, datetime) else _parse_instant(value)
        if moment is None:
            self.add(field, "must be an ISO 8601 date or date-time, like 2026-03-01T09:30:00Z")
            return None
        try:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (OverflowError, ValueError):
            self.add(field, "must lie in the years 1 to 9999 (UTC)")
            return None

    def scalars(self, field: str, value: object) -> dict[str, Scalar]:
        """A flat mapping of text keys to text, numbers, booleans and null."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.add(field, "must be an object")
            return {}
        if len(value) > limits.ATTRIBUTES:
            self.add(field, f"must have at most {limits.ATTRIBUTES} entries")
            return {}
        for index, (key, item) in enumerate(value.items()):
            key_problem = (
                text_problem(key, max_chars=limits.ATTRIBUTE_KEY_CHARS)
                if isinstance(key, str)
                else "must be text"
            )
            if key_problem:
                self.add(f"{field} key {index}", key_problem)
                continue
            item_problem = _scalar_problem(item)
            if item_problem:
                # A key is input too, and is not repeated.
                self.add(f"{field} value {index}", item_problem)
        return dict(value)


def text_problem(text: str, *, max_chars: int, may_be_blank: bool = False) -> str | None:
    """Why this text can't be kept; None when it can."""
    if not may_be_blank and not text.strip():
        return "must not be blank"
    if len(text) > max_chars:
        return f"must be at most {max_chars:,} characters"
    try:
        validate_text(text, "text")
    except InvalidTextError:
        return "must not contain NUL or lone surrogates"
    return None


def _has_control_characters(text: str) -> bool:
    return _CONTROL.search(text) is not None


def _parse_instant(value: object) -> datetime | None:
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value.upper())
    except ValueError:
        return None


def _scalar_problem(value: object) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return text_problem(value, max_chars=limits.ATTRIBUTE_VALUE_CHARS, may_be_blank=True)
    if isinstance(value, int | float):
        # A float beyond is an integer too, and comes back from the database as one.
        return None if abs(value) <= limits.SAFE_INTEGER else "must be a number within ±(2^53 - 1)"
    return "must be text, a number, true, false or null"
