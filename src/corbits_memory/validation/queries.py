"""Checks of what reads take."""

from dataclasses import dataclass

from corbits_memory.core import limits
from corbits_memory.core.enums import RetentionClass, SearchProfile
from corbits_memory.ports import SearchQuery
from corbits_memory.validation.inputs import SearchInput
from corbits_memory.validation.problems import Problems

CURSOR_MAX = 2**31 - 1
"""Version numbers and ordinals are integers of the database."""
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


def search_query(given: SearchInput) -> SearchQuery:
    """The validated query, its text trimmed; raises :class:`InvalidInputError` with every problem."""
    problems = Problems()
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
    )
    problems.flag("include_evidence", given.include_evidence)
    if isinstance(text, str) and not text.strip() and not (query.kinds or query.entity_ids):
        problems.add("query", BLANK_QUERY)
    problems.raise_if_any()
    return query


def check_list(limit: object, kinds: object) -> tuple[int, tuple[str, ...]]:
    """The validated limit and kinds of ``list``."""
    problems = Problems()
    checked = (
        problems.integer(
            "limit", limit, low=1, high=limits.LIST_LIMIT_MAX, default=limits.LIST_LIMIT_DEFAULT
        ),
        problems.identifiers("kinds", kinds, max_items=limits.FILTER_VALUES, max_chars=limits.KIND_CHARS),
    )
    problems.raise_if_any()
    return checked


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
