"""Somebody else's token, and somebody else's ids, on every route that there is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from corbits_memory.http.calls import Operation
from tests.security.world import (
    ABSENT,
    ABSENT_VERSION,
    BODY,
    CANARY,
    ENTITY,
    EVERY,
    EVERY_ID,
    VICTIM,
    WITH_IDS,
    World,
    hostile_bodies,
    path_of,
)

EACH = pytest.mark.parametrize("operation", EVERY, ids=EVERY_ID)
EACH_WITH_IDS = pytest.mark.parametrize("operation", WITH_IDS, ids=[operation.id for operation in WITH_IDS])
THIEVES = pytest.mark.parametrize("who", ["bob", "eve"])
QUERY = (
    "limit=50&kinds=&after=0&cursor=&as_of=2100-01-01T00:00:00Z&generation=g0&tenantId=acme&principalId=ann"
)


def ids_of(world: World) -> dict[str, str]:
    return {"document_id": world.document, "version_id": world.version, "generation": "g0"}


def rounded(value: Any) -> Any:
    """Scores without what a moment more of age changes."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def told(answer: httpx2.Response) -> tuple[int, Any]:
    """All of an answer that may differ from another, its request's id apart."""
    headers = {name: value for name, value in answer.headers.items() if name not in {"x-request-id", "date"}}
    return answer.status_code, (answer.text, headers)


def page_of(answer: httpx2.Response) -> tuple[list[dict[str, Any]], Any]:
    """A page of a list, and the cursor of the next."""
    assert answer.status_code == 200, answer.text
    page = answer.json()
    return page["events"], page["nextCursor"]


@EACH
def test_another_tenants_path_is_refused_before_anything_is_looked_at(
    world: World, operation: Operation
) -> None:
    before = world.state()
    path = path_of(operation, ids_of(world))
    for body in ({}, BODY, *hostile_bodies(world.version, ENTITY)):
        answer = world.ask("eve", operation.method, path, tenant=VICTIM, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_mismatch")
    assert world.state() == before


@EACH
def test_no_route_answers_without_a_token(world: World, operation: Operation) -> None:
    before = world.state()
    path = path_of(operation, ids_of(world))
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer null"},
        {"authorization": "Bearer cmt_"},
        {"authorization": world.secrets["ann"]},
        {"authorization": f"Basic {world.secrets['ann']}"},
        {"authorization": f"Bearer {world.secrets['ann'][:-1]}"},
        {"authorization": f"Bearer {world.secrets['ann'].swapcase()}"},
        {"authorization": f"Bearer {world.secrets['ann']} x"},
        {"cookie": f"token={world.secrets['ann']}"},
        {"x-api-key": world.secrets["ann"]},
        {"proxy-authorization": f"Bearer {world.secrets['ann']}"},
    ):
        answer = world.ask(None, operation.method, path, json=BODY, headers=headers)
        assert answer.status_code == 401, headers
        assert CANARY not in answer.text
    query = f"{path}?token={world.secrets['ann']}&access_token={world.secrets['ann']}"
    assert world.ask(None, operation.method, query, json=BODY).status_code == 401
    assert world.state() == before


@EACH
@THIEVES
def test_nothing_of_anns_comes_out_or_changes_whatever_is_named(
    world: World, operation: Operation, who: str
) -> None:
    """Each thief on its own path, where its token is good, with Ann's ids in every place."""
    before = {name: found for name, found in world.state().items() if who == "eve"}
    path = path_of(operation, ids_of(world))
    for body in (BODY, *hostile_bodies(world.version, ENTITY)):
        answer = world.ask(who, operation.method, f"{path}?{QUERY}", json=body)
        assert answer.status_code in {200, 400, 403, 404, 409, 501}, answer.text
        assert CANARY not in answer.text + str(answer.headers)
        # Bob is an administrator of Ann's tenant, and the audit tells administrators ids.
        assert world.document not in answer.text or (who, operation.id) == ("bob", "memory_audit")
        assert world.version not in answer.text
        assert ENTITY not in answer.text
    # Bob works in Ann's own tenant, whose counters move: that Ann's documents stand is looked at below.
    assert before == {} or world.state() == before
    assert world.document in world.seen_by_ann()


@EACH_WITH_IDS
@THIEVES
def test_an_invisible_id_is_told_like_an_absent_one(world: World, operation: Operation, who: str) -> None:
    absent = {"document_id": ABSENT, "version_id": ABSENT_VERSION, "generation": "g77"}
    given: Any = {"json": BODY} if operation.request is not None else {}
    hidden = world.ask(who, operation.method, path_of(operation, ids_of(world)), **given)
    nothing = world.ask(who, operation.method, path_of(operation, absent), **given)
    if operation.id == "memory_promote":
        # Each tenant's first generation is called g0: it is the caller's own that is live already.
        assert (hidden.status_code, nothing.status_code) == (409, 404)
        return
    assert told(hidden) == told(nothing)
    assert hidden.status_code in {403, 404}


@EACH_WITH_IDS
@THIEVES
def test_guessed_ids_are_nothing(world: World, operation: Operation, who: str) -> None:
    """Neighbours of Ann's ids, parts of them, patterns that would match them, and what is no id at all."""
    prefix, _, number = world.document.partition("_")
    # Base 62, in time order: the last characters are the next documents of this millisecond.
    near = [f"{prefix}_{number[:-1]}{last}" for last in "0aZz" if last != number[-1]]
    other = [
        world.document[:-1],
        world.document.upper(),
        number,
        f"%20{world.document}",
        f"{world.document}%20",
        f"{world.document}%00",
        "%25",
        "_",
        "*",
        "doc_%25",
        f"{world.document}%27--",
        f"{VICTIM}:{world.document}",
        f"{world.document}%3Btenant_id=acme",
        "x" * 300,
        "%F0%9F%94%91",
    ]
    before = world.state()
    for guess in (*near, *other):
        path = path_of(operation, dict.fromkeys(ids_of(world), guess))
        answer = world.ask(who, operation.method, path, json=BODY)
        assert answer.status_code in {400, 403, 404}, guess
        assert CANARY not in answer.text
    if who == "eve":
        assert world.state() == before


@THIEVES
@pytest.mark.parametrize("field", ["derived_from", "supports", "contradicts"])
def test_a_reference_to_an_invisible_version_is_refused_like_one_to_an_absent_version(
    world: World, who: str, field: str
) -> None:
    body = {"title": "a", "text": "b"}
    for reference in (world.version, world.claim):
        hidden = world.ask(who, "POST", "/add", json=body | {field: [reference]})
        nothing = world.ask(who, "POST", "/add", json=body | {field: [ABSENT_VERSION]})
        assert hidden.status_code == 400
        assert told(hidden) == told(nothing)


@THIEVES
def test_filters_by_what_is_anns_find_nothing_of_hers(world: World, who: str) -> None:
    for body in (
        {"query": "", "entity_ids": [ENTITY]},
        {"query": "", "kinds": ["kind-quixoticcanary"]},
        {"query": CANARY},
        {"query": f'"{CANARY}"'},
        {"query": "vault -lighthouse", "profile": "compat"},
        {"query": "lighthouse", "includeDeprecated": True, "explain": True, "limit": 50},
        {"query": "lighthouse", "attributes": {"code": CANARY}},
    ):
        answer = world.ask(who, "POST", "/search", json=body)
        assert answer.status_code == 200, answer.text
        assert {item["attribution"]["owner"] for item in answer.json()["items"]} <= {who}
        assert CANARY not in answer.text
    # A word that only Ann wrote is as unknown as one that nobody wrote.
    known, unknown = (
        world.ask(who, "POST", "/search", json={"query": f"lighthouse {word}", "explain": True}).json()
        for word in (CANARY, "quaxoticcenury")
    )
    assert rounded(known) == rounded(unknown)


@THIEVES
@pytest.mark.parametrize("past", [False, True], ids=["now", "then"])
def test_a_cursor_of_anns_list_is_an_instant_and_no_more(world: World, who: str, past: bool) -> None:
    (event,), cursor = page_of(world.ask("ann", "GET", "/list?limit=1"))
    assert CANARY in event["title"]
    assert event["versionId"] in cursor
    at = datetime.fromisoformat(event["at"])

    def add_around(text: str) -> None:
        for day in (-1, 1):
            moment = (at + timedelta(days=day)).isoformat()
            body = {"title": who, "text": text, "occurred_at": moment, "external_ref": f"{who}'s {day}"}
            assert world.ask(who, "POST", "/add", json=body).status_code == 200

    asked = {"limit": "100"}
    add_around("As it was.")
    if past:
        asked["as_of"] = datetime.now(UTC).isoformat()
        add_around("As it is.")
    before = world.state()
    everything, _ = page_of(world.ask(who, "GET", "/list", params=asked))
    answer = world.ask(who, "GET", "/list", params={**asked, "cursor": cursor})
    events, end = page_of(answer)
    assert events == [own for own in everything if datetime.fromisoformat(own["at"]) < at]
    assert 0 < len(events) < len(everything)
    assert {own["owner"] for own in everything} == {who}
    assert end is None
    assert CANARY not in answer.text
    # Whether there is such a version can't be told: one that nobody has answers alike.
    absent = f"{cursor.partition('.')[0]}.{ABSENT_VERSION}"
    assert told(answer) == told(world.ask(who, "GET", "/list", params={**asked, "cursor": absent}))
    assert world.state() == before


def test_anothers_reference_can_not_be_overwritten_and_tells_nothing_more(world: World) -> None:
    before = world.state()
    body = {"title": "mine now", "text": "b", "external_ref": f"ref-{CANARY}"}
    answer = world.ask("bob", "POST", "/add", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "external_ref_in_use")
    assert world.document not in answer.text
    assert world.state() == before
    # In another tenant the same name is free: names of tenants never meet.
    assert world.ask("eve", "POST", "/add", json=body).json()["status"] in {"created", "unchanged"}
    assert world.state() == before


def test_an_administrator_of_one_tenant_is_nobody_in_another(world: World) -> None:
    for generation in ("g0", "live", "g1"):
        body = {"query": CANARY, "generation": generation}
        answer = world.ask("eve", "POST", "/search", json=body)
        assert CANARY not in answer.text
        refused = world.ask("eve", "POST", "/search", json=body, tenant=VICTIM)
        assert refused.status_code == 403


def test_pages_for_everybody_tell_nothing_of_anybody(world: World) -> None:
    for page in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"):
        answer = world.client.get(world.url + page)
        assert answer.status_code == 200
        for word in (CANARY, VICTIM, "evil-corp", "ann", world.document, world.secrets["ann"]):
            assert f'"{word}"' not in answer.text
            assert f"/{word}/" not in answer.text
