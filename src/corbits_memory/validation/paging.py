"""The cursor of a search: which question it belongs to, and what was shown."""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from corbits_memory.core.enums import SearchProfile
from corbits_memory.core.hashing import canonical_json
from corbits_memory.core.limits import SEARCH_DEPTH_MAX
from corbits_memory.core.shown import read_cursor, write_cursor
from corbits_memory.errors import InvalidCursorError
from corbits_memory.ports import SearchQuery, SearchResult

_FREE = frozenset({"limit", "explain", "sample", "shown", "profile"})
"""What may change from page to page, and the profile, which is told as it is resolved."""


class SearchPages:
    """The pages of one validated question of one caller. ``profile`` is the one that it is ranked by."""

    def __init__(
        self, query: SearchQuery, *, tenant_id: str, principal_id: str, profile: SearchProfile
    ) -> None:
        self._query = query
        self._caller = (tenant_id, principal_id)
        self._profile = profile

    def page(self, cursor: object) -> SearchQuery:
        """The question for the page that a cursor asks for. Raises ``InvalidCursorError`` unless it is of this one."""
        if cursor is None:
            return self._query
        shown = read_cursor(cursor, self._question()) if isinstance(cursor, str) else None
        if shown is None:
            raise InvalidCursorError("cursor must be one that this same search has answered its caller with")
        left = SEARCH_DEPTH_MAX - len(shown)
        return replace(self._query, shown=shown, limit=min(self._query.limit, left))

    def answer(self, query: SearchQuery, found: SearchResult) -> SearchResult:
        """What was found for :meth:`page`, with the cursor for the page after it."""
        if not found.more or not found.items:
            return found
        shown = query.shown.and_these((item.document_id, item.chunk_id, item.text) for item in found.items)
        if len(shown) >= SEARCH_DEPTH_MAX:
            return found
        return replace(found, next_cursor=write_cursor(shown, self._question()))

    def _question(self) -> str:
        # Field by field, so that a filter that comes later can't be forgotten here.
        asked = {
            field.name: _plain(getattr(self._query, field.name))
            for field in fields(self._query)
            if field.name not in _FREE
        }
        return canonical_json([*self._caller, self._profile, asked])


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    # Filters are sets: in which order they come is no other question.
    return sorted(value) if isinstance(value, tuple) else value
