"""Linear's issues beside the memory: searched live, with the host's own token."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from corbits_memory.adapters.linear.api import URL, LinearApi, nodes_of, text_at
from corbits_memory.adapters.notes import instant
from corbits_memory.adapters.vendor import TIMEOUT_SECONDS
from corbits_memory.ports import Citation, LiveItem, OpenTarget

ADAPTER = "linear"
SNIPPET_CHARS = 240
SEARCH = """
query SearchIssues($term: String!, $first: Int!, $filter: IssueFilter) {
  searchIssues(term: $term, first: $first, filter: $filter) {
    nodes { id identifier title description url updatedAt team { id } }
  }
}
"""


class LinearSource(LinearApi):
    """Finds the issues that Linear finds, of one team if ``team_id`` is given.

    Everybody who may search sees them: they are what the token sees, and no grant decides over them.
    """

    id = ADAPTER

    def __init__(
        self,
        *,
        access_token: str,
        team_id: str | None = None,
        base_url: str = URL,
        timeout_seconds: float = TIMEOUT_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises ``ConfigError``. No I/O. Close it after the memory: sources are the host's."""
        super().__init__(
            access_token=access_token,
            base_url=base_url,
            timeout_seconds=timeout_seconds,
            transport=transport,
        )
        self._team_id = team_id

    async def search_live(
        self, *, query: str, tenant_id: str, principal_id: str, limit: int
    ) -> Sequence[LiveItem]:
        """Linear's order, scored by place. Raises ``VendorError``; no words, no call."""
        if not query.strip():
            return []
        team = self._team_id
        variables: dict[str, Any] = {"term": query, "first": limit}
        if team is not None:
            variables["filter"] = {"team": {"id": {"eq": team}}}
        found = nodes_of(await self.run("searchIssues", SEARCH, variables, private=(query,)))
        # What Linear was asked to leave out is looked at once more.
        issues = [issue for issue in found if team is None or text_at(issue, "team", "id") == team]
        items = [_item(issue, place, len(issues)) for place, issue in enumerate(issues)]
        return [item for item in items if item is not None][:limit]


def _item(issue: Mapping[str, Any], place: int, total: int) -> LiveItem | None:
    """None for an issue without a name."""
    issue_id = text_at(issue, "id")
    ref = text_at(issue, "identifier") or issue_id
    if ref is None:
        return None
    title = text_at(issue, "title") or ref
    return LiveItem(
        adapter=ADAPTER,
        external_ref=ref,
        title=title,
        snippet=_clipped(text_at(issue, "description") or title),
        score=1.0 if total <= 1 else 1.0 - place / total,
        kind="issue",
        citation=Citation(
            adapter=ADAPTER,
            external_ref=ref,
            open=OpenTarget(type="issue", id=issue_id or ref, url=text_at(issue, "url")),
        ),
        updated_at=instant(issue.get("updatedAt")),
    )


def _clipped(text: str) -> str:
    text = text.strip()
    return text if len(text) <= SNIPPET_CHARS else f"{text[: SNIPPET_CHARS - 3]}..."
