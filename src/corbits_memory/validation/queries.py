"""Checks of what reads take."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from corbits_memory.core import limits
from corbits_memory.core.enums import MinEvidence, RetentionClass, SearchProfile
from corbits_memory.core.merge import LOCAL
from corbits_memory.core.positions import parse_position
from corbits_memory.errors import InvalidCursorError
from corbits_memory.ports import LookupQuery, SearchQuery, TimelineQuery
from corbits_memory.validation.inputs import SearchInput
from corbits_memory.validation.problems import Problems

CURSOR_MAX = 2**31 - 1
"""Version numbers and ordinals are integers of the database."""
CLOCK_SKEW = timedelta(minutes=1)
"""So far ahead of ours a client's clock may be that asks for what is there now."""
BLANK_QUERY = "must be non-empty unless kinds or entityIds is provided"


def check_caller(tenant_id: object, principal_id: object) -> None:
    """Raises :class:`InvalidInputError` when either id can't be one."""
    problems = Problems()
    problems.required_identifier("tenant_id", tenant_id)
    problems.required_identifier("principal_id", principal_id)
    problems.raise_if_any()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """How much of something, and from where on; ``cursor`` None is the beginning."""

    limit: int
    cursor: int | None


def check_page(limit: object, cursor_value: object, *, default: int, high: int, cursor: str) -> Page:
    """The validated page; ``cursor`` is the field that the cursor comes in."""
    problems = Problems()
    page = Page(
        limit=problems.integer("limit", limit, low=1, high=high, default=default),
        cursor=None
        if cursor_value is None
        else problems.integer(cursor, cursor_value, low=0, high=CURSOR_MAX, default=0),
    )
    problems.raise_if_any()
    return page


def check_identifier(field: str, value: object) -> None:
    """Raises :class:`InvalidInputError` when this can't be an id: blank, too long, control characters."""
    problems = Problems()
    problems.required_identifier(field, value)
    problems.raise_if_any()


def search_query(given: SearchInput, *, now: datetime) -> SearchQuery:
    """The validated query, its text trimmed; raises :class:`InvalidInputError` with every problem."""
    problems = Problems()
    query = _search_fields(problems, given, now)
    problems.raise_if_any()
    return query


def context_tokens(given: SearchInput, max_tokens: object, *, now: datetime) -> int:
    """The validated budget of a context; raises :class:`InvalidInputError` with every problem, the query's too."""
    problems = Problems()
    _search_fields(problems, given, now)
    tokens = problems.integer(
        "max_tokens",
        max_tokens,
        low=limits.CONTEXT_TOKENS_MIN,
        high=limits.CONTEXT_TOKENS_MAX,
        default=limits.CONTEXT_TOKENS_DEFAULT,
    )
    problems.raise_if_any()
    return tokens


def _search_fields(problems: Problems, given: SearchInput, now: datetime) -> SearchQuery:
    text: object = given.query
    query = SearchQuery(
        query=_query_text(problems, text),
        limit=problems.integer(
            "limit",
            given.limit,
            low=1,
            high=limits.SEARCH_LIMIT_MAX,
            default=limits.SEARCH_LIMIT_DEFAULT,
        ),
        kinds=problems.identifiers(
            "kinds", given.kinds, max_items=limits.FILTER_VALUES, max_chars=limits.KIND_CHARS
        ),
        entity_ids=problems.identifiers("entity_ids", given.entity_ids, max_items=limits.FILTER_VALUES),
        sources=problems.identifiers("sources", given.sources, max_items=limits.FILTER_VALUES),
        include_deprecated=problems.flag("include_deprecated", given.include_deprecated),
        profile=problems.choice("profile", given.profile, SearchProfile),
        generation=problems.identifier("generation", given.generation),
        explain=problems.flag("explain", given.explain),
        occurred_after=problems.instant("occurred_after", given.occurred_after),
        occurred_before=problems.instant("occurred_before", given.occurred_before),
        attributes=problems.scalars("attributes", given.attributes),
        max_per_document=problems.integer(
            "max_per_document", given.max_per_document, low=1, high=limits.MAX_PER_DOCUMENT, default=1
        ),
        valid_at=problems.instant("valid_at", given.valid_at),
        as_of=_as_of(problems, given.as_of, now),
        sample=True if given.sample is None else problems.flag("sample", given.sample),
        min_evidence=problems.choice("min_evidence", given.min_evidence, MinEvidence),
    )
    if query.as_of is not None:
        if query.profile is SearchProfile.COMPAT:
            problems.add("profile", "compat knows no as_of; leave one of them out")
        if any(source != LOCAL for source in query.sources):
            problems.add("sources", "live sources know no as_of; ask local alone")
    problems.flag("include_evidence", given.include_evidence)
    if isinstance(text, str) and not text.strip() and not (query.kinds or query.entity_ids):
        problems.add("query", BLANK_QUERY)
    return query


def timeline_query(
    *,
    now: datetime,
    limit: object = None,
    kinds: object = None,
    cursor: object = None,
    occurred_after: object = None,
    occurred_before: object = None,
    as_of: object = None,
) -> TimelineQuery:
    """The validated ``list``; raises :class:`InvalidInputError`, and ``InvalidCursorError`` for a cursor of none."""
    problems = Problems()
    query = TimelineQuery(
        limit=problems.integer(
            "limit", limit, low=1, high=limits.LIST_LIMIT_MAX, default=limits.LIST_LIMIT_DEFAULT
        ),
        kinds=problems.identifiers(
            "kinds", kinds, max_items=limits.FILTER_VALUES, max_chars=limits.KIND_CHARS
        ),
        occurred_after=problems.instant("occurred_after", occurred_after),
        occurred_before=problems.instant("occurred_before", occurred_before),
        as_of=_as_of(problems, as_of, now),
    )
    problems.raise_if_any()
    if cursor is None:
        return query
    position = parse_position(cursor) if isinstance(cursor, str) else None
    if position is None:
        raise InvalidCursorError("cursor must be one that a list has answered with")
    return replace(query, after=position)


def lookup_query(
    *,
    adapter: object,
    external_refs: object = None,
    prefix: object = None,
    after: object = None,
    limit: object = None,
    include_text: object = None,
) -> LookupQuery:
    """The validated ``lookup``; raises :class:`InvalidInputError`."""
    problems = Problems()
    chars = limits.EXTERNAL_REF_CHARS
    query = LookupQuery(
        adapter=problems.required_identifier("adapter", adapter),
        external_refs=problems.identifiers(
            "external_refs", external_refs, max_items=limits.LOOKUP_REFS, max_chars=chars
        ),
        prefix=problems.identifier("prefix", prefix, max_chars=chars) or "",
        after=problems.identifier("after", after, max_chars=chars) or "",
        limit=problems.integer(
            "limit", limit, low=1, high=limits.LOOKUP_LIMIT_MAX, default=limits.LOOKUP_LIMIT_DEFAULT
        ),
        include_text=problems.flag("include_text", include_text),
    )
    problems.raise_if_any()
    return query


def _as_of(problems: Problems, value: object, now: datetime) -> datetime | None:
    instant = problems.instant("as_of", value)
    if instant is not None and instant > now + CLOCK_SKEW:
        problems.add("as_of", "must not lie in the future")
    return instant


def check_forget(cascade: object) -> bool:
    """Whether to forget what was derived too; None is no."""
    problems = Problems()
    checked = problems.flag("cascade", cascade)
    problems.raise_if_any()
    return checked


def check_retention_class(value: object) -> RetentionClass:
    """Raises :class:`InvalidInputError` when this is none."""
    problems = Problems()
    if value is None:
        problems.add("retention_class", "is required")
    chosen = problems.choice("retention_class", value, RetentionClass)
    problems.raise_if_any()
    return chosen or RetentionClass.STANDARD


def _query_text(problems: Problems, value: object) -> str:
    if value is None:
        problems.add("query", "is required")
        return ""
    text = problems.optional_text("query", value, max_chars=limits.QUERY_CHARS, may_be_blank=True)
    return (text or "").strip()
