"""Linear's webhooks as documents: what becomes of them, and who may read it."""

from typing import Any

import pytest

from corbits_memory.adapters.linear import IssueChange, issue_change
from corbits_memory.errors import InvalidInputError
from corbits_memory.plane import Memory
from corbits_memory.ports import Share
from corbits_memory.testing import FakeDocumentStore
from tests.adapters.failures import ANN

ISSUE: dict[str, Any] = {
    "id": "issue-1",
    "identifier": "ENG-1",
    "title": "Deploy on Fridays",
    "description": "We never deploy on Fridays.",
    "priority": 2,
    "teamId": "team-1",
    "team": {"id": "team-1", "key": "ENG", "name": "Engineering", "private": False},
    "state": {"id": "state-1", "name": "Todo", "type": "unstarted"},
    "creatorId": "ann",
    "assigneeId": "bob",
    "subscriberIds": ["ann", "cleo"],
    "private": False,
    "createdAt": "2026-06-01T12:00:00.000Z",
    "updatedAt": "2026-06-02T12:00:00.000Z",
}


def payload(action: str = "update", kind: str = "Issue", **fields: Any) -> dict[str, Any]:
    data = {name: value for name, value in {**ISSUE, **fields}.items() if value is not ...}
    return {"action": action, "type": kind, "data": data, "url": "https://linear.app/acme/issue/ENG-1"}


def changed(action: str = "update", **fields: Any) -> IssueChange:
    change = issue_change(payload(action, **fields))
    assert change is not None
    return change


def test_an_issue_becomes_a_document() -> None:
    change = changed("create")
    document = change.document
    assert (change.action, change.external_ref, change.people) == ("create", "ENG-1", ("ann", "bob", "cleo"))
    assert document.content is not None
    assert (document.content.title, document.content.text) == (
        "Deploy on Fridays",
        "We never deploy on Fridays.",
    )
    assert (document.kind, document.adapter, document.external_ref) == ("issue", "linear", "ENG-1")
    assert document.created_by_kind == "adapter"
    assert document.attributes == {
        "linear_id": "issue-1",
        "identifier": "ENG-1",
        "priority": 2,
        "team_id": "team-1",
        "state_id": "state-1",
        "state_name": "Todo",
        "state_type": "unstarted",
        "assignee_id": "bob",
        "creator_id": "ann",
        "url": "https://linear.app/acme/issue/ENG-1",
    }
    assert str(document.occurred_at) == "2026-06-02 12:00:00+00:00"


@pytest.mark.parametrize(
    "other",
    [
        payload("archive"),
        payload("update", "Comment"),
        payload(kind="issue"),
        {},
        {"type": "Issue"},
        {"type": "Issue", "action": ["create"]},
        None,
        [],
        "text",
    ],
)
def test_anything_else_is_none(other: Any) -> None:
    assert issue_change(other) is None


@pytest.mark.parametrize("data", [None, [], "x", {}, {"id": " ", "identifier": 5}])
def test_an_issue_without_a_name_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInputError):
        issue_change({"type": "Issue", "action": "create", "data": data})


@pytest.mark.parametrize(
    ("fields", "tenant"),
    [
        ({}, True),
        ({"private": True}, False),
        ({"private": ...}, False),
        ({"private": None}, False),
        ({"private": 0}, False),
        ({"private": "false"}, False),
        ({"team": {"id": "team-1", "private": True}}, False),
        ({"team": {"id": "team-1"}}, False),
        ({"team": ...}, False),
        ({"team": "team-1"}, False),
    ],
)
def test_only_what_says_that_it_is_public_is_the_tenants(fields: dict[str, Any], tenant: bool) -> None:
    share = changed(**fields).document.share
    assert share == (Share(tenant=True) if tenant else Share(principals=("ann", "bob", "cleo")))


def test_what_concerns_one_alone_is_shared_with_nobody() -> None:
    assert changed(private=True, assigneeId=None, subscriberIds=["ann"]).document.share is None
    assert changed(private=True, creatorId=None, assigneeId=None, subscriberIds=None).document.share is None


@pytest.mark.parametrize(("people", "shared"), [(63, 63), (64, 64), (65, 64)])
def test_it_is_shared_with_so_many_people(people: int, shared: int) -> None:
    ids = [f"user-{number}" for number in range(people)]
    share = changed(private=True, creatorId=None, assigneeId=None, subscriberIds=ids).document.share
    assert share is not None
    assert len(share.principals) == shared


def test_people_are_those_that_the_host_knows() -> None:
    known = {"ann": "ann@acme.test", "bob": "bob@acme.test"}
    change = issue_change(payload(private=True), principal_of=known.get)
    assert change is not None
    assert change.people == ("ann@acme.test", "bob@acme.test")
    alone = issue_change(payload(private=True), principal_of={"ann": "x"}.get)
    assert alone is not None
    assert alone.document.share is None


async def test_a_removed_issue_takes_its_text_away() -> None:
    async with Memory(FakeDocumentStore()) as memory:
        for action in ("create", "update", "remove"):
            (done,) = await memory.add_batch(**ANN, items=[changed(action).document])
        found = await memory.search(**ANN, query="fridays")
        left = await memory.search(**ANN, query="ENG-1")
    assert found.items == ()
    assert [item.title for item in left.items] == ["ENG-1"]
    assert changed("remove").document.attributes is not None
    assert changed("remove").document.attributes["removed"] is True  # type: ignore[index]
    assert getattr(done, "version", None) == 2


def test_an_issue_that_says_little_is_read_as_far_as_it_goes() -> None:
    change = issue_change({"type": "Issue", "action": "create", "data": {"id": "issue-1", "updatedAt": 5}})
    assert change is not None
    assert change.document.content is not None
    assert (change.document.content.title, change.document.content.text) == ("issue-1", "issue-1")
    assert (change.document.share, change.document.occurred_at) == (None, None)
    assert change.document.attributes == {"linear_id": "issue-1"}
