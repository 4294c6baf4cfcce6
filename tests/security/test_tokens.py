"""Tokens under attack: guessed, revoked and expired in open connections, measured by the clock."""

import http.client
import itertools
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from corbits_memory.core.enums import Capability
from corbits_memory.core.ids import DOCUMENT, decode_id
from corbits_memory.engine.ids import new_id
from corbits_memory.http.calls import Operation
from corbits_memory.server.settings import FAILURES_PER_MINUTE
from tests.security.world import BODY, CANARY, EVERY, WITH_IDS, World, path_of, world_over
from tests.support.postgres import NewDatabase

LIST = "/api/tenants/acme/memory/list"


@pytest.fixture
def strict_world(new_database: NewDatabase, host_template: str) -> Iterator[World]:
    """A host of the test's own with the limits that are the default."""
    with world_over(new_database(host_template), failures=FAILURES_PER_MINUTE) as found:
        yield found


def test_a_flood_of_guesses_is_slowed_and_who_has_a_token_is_not(strict_world: World) -> None:
    world = strict_world
    found = [
        world.ask(None, "GET", "/list", headers={"authorization": f"Bearer guess-{number}"}).status_code
        for number in range(40)
    ]
    assert found.count(401) in {FAILURES_PER_MINUTE, FAILURES_PER_MINUTE + 1}
    assert set(found[FAILURES_PER_MINUTE + 1 :]) <= {401, 429}
    assert found.count(429) >= 28
    refused = world.ask(None, "GET", "/list", headers={"authorization": "Bearer guess"})
    if refused.status_code == 429:
        assert refused.json()["error"]["code"] == "rate_limited"
        assert int(refused.headers["retry-after"]) >= 1
    fresh = world.token("acme", "dora")
    for headers in (world.headers("ann"), {"authorization": f"Bearer {fresh.secret}"}):
        for _ in range(15):
            assert world.ask(None, "GET", "/list", headers=headers).status_code == 200


def connection(world: World) -> http.client.HTTPConnection:
    address = urlsplit(world.url)
    return http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)


def status(conn: http.client.HTTPConnection, secret: str) -> int:
    conn.request("GET", LIST, headers={"Authorization": f"Bearer {secret}"})
    answer = conn.getresponse()
    answer.read()
    return answer.status


def test_a_revoked_token_is_refused_in_a_connection_that_is_open(world: World) -> None:
    made = world.token("acme", "ann")
    conn = connection(world)
    assert [status(conn, made.secret) for _ in range(3)] == [200, 200, 200]
    socket = conn.sock
    world.run(world.tokens.revoke(made.token.id))
    assert [status(conn, made.secret) for _ in range(2)] == [401, 401]
    assert conn.sock is socket, "it was the same connection"
    conn.close()


def test_an_expired_token_is_refused_in_a_connection_that_is_open(world: World) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=1.5)
    made = world.token("acme", "ann", expires_at=ends)
    conn = connection(world)
    assert status(conn, made.secret) == 200
    socket = conn.sock
    time.sleep(max(0.0, (ends - datetime.now(UTC)).total_seconds()) + 0.05)
    assert status(conn, made.secret) == 401
    assert conn.sock is socket, "it was the same connection"
    conn.close()


def test_a_connection_is_nobodys(world: World) -> None:
    """The token of one request says nothing about the next one in the same connection."""
    conn = connection(world)
    assert status(conn, world.secrets["ann"]) == 200
    assert status(conn, world.secrets["eve"]) == 403
    conn.request("GET", LIST)
    answer = conn.getresponse()
    assert (answer.status, CANARY.encode() in answer.read()) == (401, False)
    assert status(conn, world.secrets["ann"]) == 200
    conn.close()


@pytest.mark.parametrize("capability", list(Capability))
def test_a_token_opens_the_routes_of_its_capability_alone(world: World, capability: Capability) -> None:
    secret = world.token("acme", "erin", capabilities=frozenset({capability})).secret
    for operation in EVERY:
        path = path_of(operation, {"document_id": world.document, "version_id": world.version})
        answer = world.ask(
            None, operation.method, path, json={}, headers={"authorization": f"Bearer {secret}"}
        )
        allowed = operation.capability is capability
        assert (answer.status_code == 403) is not allowed or answer.json()["error"]["code"] != "forbidden", (
            operation.id
        )
        if not allowed:
            assert answer.status_code == 403, operation.id


def test_no_log_holds_a_token_or_a_text(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for who in ("ann", "bob", "eve"):
            world.ask(who, "POST", "/search", json={"query": CANARY})
            world.ask(who, "GET", f"/list?kinds={CANARY}")
            world.ask(who, "POST", "/add", json={"title": CANARY, "text": "", "kind": CANARY})
            world.ask(who, "POST", f"/documents/{CANARY}/share", json=BODY)
        world.ask(None, "GET", "/list", headers={"authorization": f"Bearer {CANARY}"})
        world.ask(None, "GET", f"/{CANARY}")
    ours = "\n".join(
        f"{record.getMessage()} {record.__dict__}"
        for record in caplog.records
        # The test's own client is no part of the host, and neither is the access log of uvicorn: it is off, and
        # turned on by the handler that this fixture gives every logger (e2e/test_serving.py reads a real log).
        if not record.name.startswith(("httpx", "httpcore", "uvicorn.access"))
    )
    assert "memory.server.access" in ours
    assert CANARY not in ours
    assert not [who for who, secret in world.secrets.items() if secret in ours]


# --- by the clock ------------------------------------------------------------------------------------

SAMPLES = 60
ROUNDS = 3
FACTOR = 2.0


def ratio(first: Callable[[], None], second: Callable[[], None]) -> float:
    """Of the median times of two things, taken in turns, so that whatever else goes on meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(SAMPLES):
        for ask, into in zip((first, second), times, strict=True):
            began = time.perf_counter()
            ask()
            into.append(time.perf_counter() - began)
    return statistics.median(times[0]) / statistics.median(times[1])


def assert_alike(first: Callable[[], None], second: Callable[[], None]) -> None:
    """Systematically different is what is so in every round, by a factor of two."""
    found = []
    for _ in range(ROUNDS):
        found.append(ratio(first, second))
        if 1 / FACTOR < found[-1] < FACTOR:
            return
    pytest.fail(f"the clock tells them apart: {found}")


@pytest.mark.parametrize("operation", WITH_IDS, ids=[operation.id for operation in WITH_IDS])
@pytest.mark.parametrize("who", ["bob", "eve"])
def test_the_clock_does_not_tell_an_invisible_document_from_an_absent_one(
    world: World, operation: Operation, who: str
) -> None:
    def ask(document: str, version: str) -> None:
        path = path_of(operation, {"document_id": document, "version_id": version})
        assert world.ask(who, operation.method, path, json=BODY).status_code in {403, 404}

    assert_alike(lambda: ask(world.document, world.version), lambda: ask(new_id(DOCUMENT), new_id("kver")))


@pytest.mark.parametrize("who", ["bob", "eve"])
def test_the_clock_does_not_tell_an_invisible_version_from_an_absent_one(world: World, who: str) -> None:
    def ask(version: str) -> None:
        body = {"title": "a", "text": "b", "derived_from": [version]}
        assert world.ask(who, "POST", "/add", json=body).status_code == 400

    assert_alike(lambda: ask(world.version), lambda: ask(new_id("kver")))


def test_the_clock_does_not_tell_a_revoked_token_from_an_unknown_one(world: World) -> None:
    made = world.token("acme", "ann")
    world.run(world.tokens.revoke(made.token.id))

    def ask(secret: str) -> None:
        headers = {"authorization": f"Bearer {secret}"}
        assert world.ask(None, "GET", "/list", headers=headers).status_code == 401

    assert_alike(lambda: ask(made.secret), lambda: ask("cmt_" + "A" * 43))
    assert_alike(lambda: ask(world.secrets["ann"][:-1] + "!"), lambda: ask("cmt_" + "A" * 43))


def test_the_clock_does_not_tell_a_word_that_only_another_tenant_wrote(world: World) -> None:
    def ask(query: str) -> None:
        assert world.ask("eve", "POST", "/search", json={"query": query}).status_code == 200

    assert_alike(lambda: ask(CANARY), lambda: ask("quaxoticcenury"))


def test_ids_are_not_consecutive() -> None:
    """Time-ordered, but between two of the same millisecond lie more than anybody can try."""
    made = [decode_id(DOCUMENT, new_id(DOCUMENT)).int for _ in range(1_000)]
    assert min(later - earlier for earlier, later in itertools.pairwise(made)) > 2**16
    assert len({number & 0xFFFF_FFFF for number in made}) > 990, "the lowest bits count nothing"
