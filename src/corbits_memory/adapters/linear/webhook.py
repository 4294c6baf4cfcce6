"""Linear's webhooks as documents. The host checks their signature before it trusts a word of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from corbits_memory.adapters.linear.api import text_at
from corbits_memory.adapters.linear.source import ADAPTER
from corbits_memory.adapters.notes import instant
from corbits_memory.core.enums import CreatedByKind, LineageClass
from corbits_memory.core.limits import SHARED_PRINCIPALS, TITLE_CHARS
from corbits_memory.errors import InvalidInputError
from corbits_memory.ports import Scalar, Share
from corbits_memory.validation import AddInput, Content

Action = Literal["create", "update", "remove"]
ACTIONS: Mapping[str, Action] = {"create": "create", "update": "update", "remove": "remove"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueChange:
    """What happened to an issue. ``document`` is for ``memory.add_batch``; of a removed issue it holds no text of it,
    and takes the place of what was known. ``people``: the principals it concerns."""

    action: Action
    external_ref: str
    document: AddInput
    people: tuple[str, ...]


def issue_change(
    payload: object, *, principal_of: Callable[[str], str | None] | None = None
) -> IssueChange | None:
    """The change that a webhook tells of; None for what is no change of an issue.

    Shared with the tenant only if issue and team both say that they are not private; else with the people whom the
    issue concerns, and with nobody if that is one alone. ``principal_of`` makes a principal of a Linear user's id
    (None: no principal of ours); without it, the ids are the principals. Raises ``InvalidInputError`` for an issue
    that has no name.
    """
    if not isinstance(payload, Mapping) or payload.get("type") != "Issue":
        return None
    action = ACTIONS.get(str(payload.get("action")))
    if action is None:
        return None
    issue = payload.get("data")
    ref = text_at(issue, "identifier") or text_at(issue, "id")
    if not isinstance(issue, Mapping) or ref is None:
        raise InvalidInputError("the webhook tells of an issue that has neither an identifier nor an id")
    title = text_at(issue, "title") or ref
    removed = action == "remove"
    text = f"{ref} was removed from Linear." if removed else text_at(issue, "description") or title
    people = _people(issue, principal_of or str)
    return IssueChange(
        action=action,
        external_ref=ref,
        people=people,
        document=AddInput(
            content=Content(title=ref if removed else title[:TITLE_CHARS], text=text),
            kind="issue",
            adapter=ADAPTER,
            external_ref=ref,
            attributes=_attributes(issue, text_at(issue, "url") or text_at(payload, "url"), removed=removed),
            share=_share(issue, people),
            created_by_kind=CreatedByKind.ADAPTER,
            lineage_class=LineageClass.IMPORTED,
            occurred_at=instant(issue.get("updatedAt")) or instant(issue.get("createdAt")),
        ),
    )


def _attributes(issue: Mapping[str, Any], url: str | None, *, removed: bool) -> dict[str, Scalar]:
    priority = issue.get("priority")
    found: dict[str, Scalar] = {
        "linear_id": text_at(issue, "id"),
        "identifier": text_at(issue, "identifier"),
        "priority": priority if isinstance(priority, (int, float)) else None,
        "team_id": text_at(issue, "teamId") or text_at(issue, "team", "id"),
        "state_id": text_at(issue, "stateId") or text_at(issue, "state", "id"),
        "state_name": text_at(issue, "state", "name"),
        "state_type": text_at(issue, "state", "type"),
        "assignee_id": text_at(issue, "assigneeId") or text_at(issue, "assignee", "id"),
        "creator_id": text_at(issue, "creatorId") or text_at(issue, "creator", "id"),
        "url": url,
        "removed": True if removed else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _share(issue: Mapping[str, Any], people: Sequence[str]) -> Share | None:
    team = issue.get("team")
    public = issue.get("private") is False and isinstance(team, Mapping) and team.get("private") is False
    if public:
        return Share(tenant=True)
    return Share(principals=tuple(people[:SHARED_PRINCIPALS])) if len(people) > 1 else None


def _people(issue: Mapping[str, Any], principal_of: Callable[[str], str | None]) -> tuple[str, ...]:
    subscribers = issue.get("subscriberIds")
    ids = [
        text_at(issue, "creatorId") or text_at(issue, "creator", "id"),
        text_at(issue, "assigneeId") or text_at(issue, "assignee", "id"),
        *(subscribers if isinstance(subscribers, list) else []),
    ]
    known = [principal_of(one) for one in ids if isinstance(one, str) and one.strip()]
    return tuple(dict.fromkeys(one for one in known if one and one.strip()))
