"""What a grant must look like before it is written: everything that is wrong with it, at once."""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import datetime

from corbits_memory.access.patterns import has_wildcard
from corbits_memory.core.enums import Capability, Effect, GrantOrigin
from corbits_memory.core.limits import ID_CHARS, TAG_CHARS
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import ConditionRegistry, GrantRule

MEMORY = "memory"
"""The resource whose actions are the capabilities."""
PATTERN_CHARS = TAG_CHARS
CONDITION_CHARS = 10_000
"""All conditions of a grant together, as JSON."""
ACTIONS = tuple(word.partition(":")[2] for word in Capability)

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_Found = Iterator[tuple[str, str]]


def check_grant(rule: GrantRule, *, now: datetime, conditions: ConditionRegistry | None = None) -> None:
    """Raises ``InvalidInputError`` that names every field with a problem, never its value.

    ``conditions``: the evaluators that there are; None leaves the names of conditions unchecked.
    """
    problems = [
        *_named("id", rule.id),
        *_named("tenant_id", rule.tenant_id),
        *_holder(rule),
        *_resource(rule.resource),
        *_action(rule.action),
        *_enumerated("effect", rule.effect, Effect),
        *_enumerated("origin", rule.origin, GrantOrigin),
        *_conditions(rule.conditions, conditions),
        *_expiry(rule.expires_at, now),
    ]
    raise_problems("grant", problems)


def check_names(**names: object) -> None:
    """Raises ``InvalidInputError`` unless all are ids that can be kept."""
    raise_problems("input", [problem for field, value in names.items() for problem in _named(field, value)])


def raise_problems(thing: str, problems: list[tuple[str, str]]) -> None:
    """One error for all problems, if there are any."""
    if not problems:
        return
    listed = [{"field": field, "problem": problem} for field, problem in problems]
    if len(problems) == 1:
        raise InvalidInputError(" ".join(problems[0]), details=listed)
    fields = ", ".join(dict.fromkeys(field for field, _ in problems))
    raise InvalidInputError(f"{len(problems)} problems with the {thing}: {fields}", details=listed)


def _named(field: str, value: object) -> _Found:
    if value is None:
        yield field, "is required"
    else:
        yield from _text(field, value, ID_CHARS)


def _text(field: str, value: object, most: int) -> _Found:
    if not isinstance(value, str):
        yield field, "must be text"
    elif not value.strip():
        yield field, "must not be blank"
    elif len(value) > most:
        yield field, f"must be at most {most} characters"
    elif any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        yield field, "must not contain control characters"


def _holder(rule: GrantRule) -> _Found:
    if (rule.principal_id is None) is (rule.role_id is None):
        yield "principal_id", "or role_id must be given, and only one of them"
        return
    if rule.principal_id is not None:
        yield from _text("principal_id", rule.principal_id, ID_CHARS)
    else:
        yield from _text("role_id", rule.role_id, ID_CHARS)
    if rule.created_by is not None:
        yield from _text("created_by", rule.created_by, ID_CHARS)
        if rule.created_by == rule.principal_id:
            yield "principal_id", "must not be the one who gives the grant"


def _resource(pattern: object) -> _Found:
    yield from _text("resource", pattern, PATTERN_CHARS)
    if isinstance(pattern, str) and pattern.strip() and pattern != MEMORY and not {":", "*"} & set(pattern):
        yield "resource", "must be memory, a tag with a colon like memory.space:eng, or a pattern with *"


def _action(pattern: object) -> _Found:
    yield from _text("action", pattern, PATTERN_CHARS)
    if isinstance(pattern, str) and pattern.strip() and pattern not in ACTIONS and not has_wildcard(pattern):
        yield "action", f"must be one of {', '.join(ACTIONS)}, or a pattern with *"


def _enumerated(field: str, value: object, words: type[Effect] | type[GrantOrigin]) -> _Found:
    if not isinstance(value, words):
        yield field, f"must be one of {', '.join(words)}"


def _conditions(given: object, registry: ConditionRegistry | None) -> _Found:
    if given is None:
        return
    if not isinstance(given, Mapping):
        yield "conditions", "must be an object"
        return
    values = dict(given)
    try:
        text = json.dumps(values, allow_nan=False, ensure_ascii=False)
        text.encode()
        # What comes back otherwise (a number as a name, say) is no JSON.
        sound = json.loads(text) == values
    except (TypeError, ValueError, RecursionError):
        sound, text = False, ""
    if not sound:
        yield "conditions", "must be JSON"
        return
    if len(text) > CONDITION_CHARS:
        yield "conditions", f"must be at most {CONDITION_CHARS:,} characters of JSON"
    if _NUL.search(text):
        yield "conditions", "must not contain NUL"
    if registry is not None and not values.keys() <= registry.keys():
        yield "conditions", f"may only be of: {', '.join(sorted(registry)) or 'none'}"


def _expiry(moment: object, now: datetime) -> _Found:
    if moment is None:
        return
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        yield "expires_at", "must be a time with a zone"
    elif moment <= now:
        yield "expires_at", "must lie in the future"
