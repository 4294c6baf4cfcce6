"""Rates: guesses of a client address are limited, those who have a token never wait for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from corbits_memory.core.enums import Capability
from corbits_memory.engine.pool import Database
from corbits_memory.errors import ConfigError
from corbits_memory.plane import Memory
from corbits_memory.server.app import host_app
from corbits_memory.server.identity import SeenSecrets, TokenIdentity
from corbits_memory.server.rates import TokenBuckets, client_of
from corbits_memory.server.settings import FAILURES_PER_MINUTE, load_host_settings
from corbits_memory.server.tokens import Tokens
from corbits_memory.testing import FakeDocumentStore
from tests.server.support import bearer, route, running

LIST = route("acme", "list")
PRESET = "preset-by-the-operator"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# --- buckets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_minute", [1, 10, 60])
def test_a_bucket_gives_its_number_at_once_and_fills_again_evenly(per_minute: int) -> None:
    clock = Clock()
    buckets = TokenBuckets(per_minute, clock=clock)
    assert [buckets.take("a") for _ in range(per_minute)] == [0.0] * per_minute
    assert buckets.take("a") == pytest.approx(60 / per_minute)
    clock.now += 60 / per_minute - 0.01
    assert 0 < buckets.take("a") < 0.02
    clock.now += 0.02
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0
    clock.now += 3_600
    assert [bool(buckets.take("a")) for _ in range(per_minute + 1)] == [False] * per_minute + [True]


def test_a_refused_one_is_not_taken_and_a_taken_one_can_be_given_back() -> None:
    clock = Clock()
    buckets = TokenBuckets(1, clock=clock)
    assert buckets.take("a") == 0.0
    for _ in range(1_000):
        assert buckets.take("a") > 0
    clock.now += 60
    assert buckets.take("a") == 0.0
    buckets.give_back("a")
    buckets.give_back("a")
    assert [bool(buckets.take("a")) for _ in range(2)] == [False, True]


def test_keys_have_buckets_of_their_own() -> None:
    buckets = TokenBuckets(1, clock=Clock())
    assert buckets.take(("acme", "ann")) == 0.0
    assert buckets.take(("acme", "bob")) == 0.0
    assert buckets.take(("acme", "ann")) > 0


@pytest.mark.parametrize(("keys", "kept"), [(9, 9), (10, 10), (11, 10), (1_000, 10)])
def test_there_are_never_more_buckets_than_the_limit(keys: int, kept: int) -> None:
    buckets = TokenBuckets(1, keys_max=10, clock=Clock())
    for key in range(keys):
        buckets.take(key)
    assert len(buckets) == kept
    assert buckets.take(keys - 1) > 0, "the newest stay"


def test_of_seen_secrets_the_latest_are_kept_and_never_themselves() -> None:
    seen = SeenSecrets(size=2)
    for secret in ("first!", "second", "first!", "third!"):
        seen.add(secret)
    assert [secret in seen for secret in ("first!", "second", "third!")] == [True, False, True]
    assert "first!" not in repr(vars(seen))


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::6", "2001:db8:1:3::/64"),
        ("no address", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_a_client_is_an_address_or_a_site(host: str | None, client: str) -> None:
    scope: dict[str, Any] = {"type": "http", "client": None if host is None else (host, 1), "headers": []}
    assert client_of(Request(scope)) == client


# --- wrong tokens ------------------------------------------------------------------------------------


@asynccontextmanager
async def served(
    database: Database, *, trusted: tuple[str, ...] = (), **limits: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, Tokens]]:
    tokens = Tokens(database)
    async with Memory(FakeDocumentStore()) as memory:
        app = host_app(
            memory,
            identity=TokenIdentity(tokens, **limits),
            database=database,
            trusted_proxies=trusted,
        )
        async with running(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            yield client, tokens


async def statuses(
    client: httpx2.AsyncClient, count: int, headers: dict[str, str] | None = None, **given: Any
) -> list[int]:
    return [
        (await client.get(LIST, headers=headers or bearer(f"guess-{number}"), **given)).status_code
        for number in range(count)
    ]


async def test_guesses_beyond_the_limit_are_429_with_a_time(database: Database) -> None:
    async with served(database) as (client, _):
        assert await statuses(client, FAILURES_PER_MINUTE) == [401] * FAILURES_PER_MINUTE
        answer = await client.get(LIST, headers=bearer("guess"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limited")
    assert 1 <= int(answer.headers["retry-after"]) <= 6
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer"},
        {"authorization": "Basic YTpi"},
        bearer("x" * 2_000),
        bearer("cmt_" + "A" * 43),
    ],
)
async def test_whatever_fails_counts(database: Database, headers: dict[str, str]) -> None:
    async with served(database, failures=TokenBuckets(2)) as (client, _):
        assert await statuses(client, 3, headers) == [401, 401, 429]


async def test_a_request_without_a_credential_guesses_nothing_and_is_not_counted(database: Database) -> None:
    async with served(database, failures=TokenBuckets(1)) as (client, _):
        assert [(await client.get(LIST)).status_code for _ in range(5)] == [401] * 5
        assert await statuses(client, 2) == [401, 429]
        assert (await client.get(LIST)).status_code == 401


async def test_who_has_a_token_is_never_slowed(database: Database) -> None:
    """Not even when the guesses come from the same address, nor on a token's first use."""
    async with served(database, failures=TokenBuckets(1)) as (client, tokens):
        old = await tokens.create(tenant_id="acme", principal_id="ann", capabilities=set(Capability))
        assert await statuses(client, 3, bearer(old.secret)) == [200] * 3
        assert await statuses(client, 2) == [401, 429]
        new = await tokens.create(tenant_id="acme", principal_id="bob", capabilities=set(Capability))
        for made in (old, new):
            assert await statuses(client, 20, bearer(made.secret)) == [200] * 20


async def test_a_preset_token_that_was_used_before_is_not_slowed(database: Database) -> None:
    async with served(database, failures=TokenBuckets(1)) as (client, tokens):
        await tokens.ensure_first(PRESET)
        used: Any = {"headers": bearer(PRESET)}
        url = route("default", "list")
        assert (await client.get(url, **used)).status_code == 200
        assert await statuses(client, 2) == [401, 429]
        assert [(await client.get(url, **used)).status_code for _ in range(3)] == [200] * 3


async def test_a_token_that_people_chose_can_not_be_guessed_beyond_the_limit(database: Database) -> None:
    async with served(database, failures=TokenBuckets(2)) as (client, tokens):
        await tokens.ensure_first(PRESET)
        assert await statuses(client, 3) == [401, 401, 429]
        right = await client.get(route("default", "list"), headers=bearer(PRESET))
        assert right.status_code == 429, "the right guess must look like all others"


async def test_guesses_at_once_are_no_more_than_guesses_one_by_one(database: Database) -> None:
    async with served(database, failures=TokenBuckets(3)) as (client, _):
        answers = await asyncio.gather(
            *(client.get(LIST, headers=bearer(f"guess-{number}")) for number in range(20))
        )
    assert sorted(answer.status_code for answer in answers) == [401] * 3 + [429] * 17


async def test_a_valid_token_at_the_limit_takes_nothing_away(database: Database) -> None:
    async with served(database, failures=TokenBuckets(1)) as (client, tokens):
        await tokens.ensure_first(PRESET)
        assert (await client.get(route("default", "list"), headers=bearer(PRESET))).status_code == 200
        assert await statuses(client, 2) == [401, 429]


async def test_a_revoked_token_counts_as_wrong(database: Database) -> None:
    async with served(database, failures=TokenBuckets(1)) as (client, tokens):
        made = await tokens.create(tenant_id="acme", principal_id="ann", capabilities=set(Capability))
        assert await statuses(client, 1, bearer(made.secret)) == [200]
        await tokens.revoke(made.token.id)
        assert await statuses(client, 2, bearer(made.secret)) == [401, 429]


# --- behind a proxy ----------------------------------------------------------------------------------


async def test_nobodys_word_about_the_address_counts_unless_it_is_trusted(database: Database) -> None:
    async with served(database, failures=TokenBuckets(2)) as (client, _):
        found = [
            (
                await client.get(LIST, headers=bearer("guess") | {"x-forwarded-for": f"203.0.113.{number}"})
            ).status_code
            for number in range(3)
        ]
    assert found == [401, 401, 429]


async def test_behind_a_trusted_proxy_each_client_has_its_own_limit(database: Database) -> None:
    async with served(database, trusted=("127.0.0.0/8", "10.0.0.0/8"), failures=TokenBuckets(1)) as (
        client,
        _,
    ):

        async def guess(forwarded: str) -> int:
            headers = bearer("guess") | {"x-forwarded-for": forwarded}
            return (await client.get(LIST, headers=headers)).status_code

        assert await guess("203.0.113.1") == 401
        assert await guess("203.0.113.1") == 429
        assert await guess("203.0.113.2") == 401
        # The proxy nearest to us appends; what a client wrote in front of that is only its word.
        assert await guess("198.51.100.9, 203.0.113.1") == 429
        assert await guess("198.51.100.8, 203.0.113.1, 10.1.2.3") == 429
        assert await guess("nonsense") == 401
        assert await guess("other nonsense") == 429


# --- requests of a principal -------------------------------------------------------------------------


async def test_requests_of_a_principal_are_limited_where_it_is_asked_for(database: Database) -> None:
    async with served(database, requests=TokenBuckets(3)) as (client, tokens):
        many: dict[str, Any] = {"capabilities": set(Capability)}
        ann = await tokens.create(tenant_id="acme", principal_id="ann", **many)
        again = await tokens.create(tenant_id="acme", principal_id="ann", **many)
        bob = await tokens.create(tenant_id="acme", principal_id="bob", **many)
        assert await statuses(client, 2, bearer(ann.secret)) == [200, 200]
        assert await statuses(client, 2, bearer(again.secret)) == [200, 429], "another token, the same limit"
        assert await statuses(client, 1, bearer(bob.secret)) == [200]
        refused = await client.get(LIST, headers=bearer(ann.secret))
        assert refused.json()["error"]["code"] == "rate_limited"
        assert 1 <= int(refused.headers["retry-after"]) <= 20


async def test_requests_are_not_limited_by_default(database: Database) -> None:
    async with served(database) as (client, tokens):
        made = await tokens.create(tenant_id="acme", principal_id="ann", capabilities=set(Capability))
        assert await statuses(client, 60, bearer(made.secret)) == [200] * 60


# --- settings ----------------------------------------------------------------------------------------


def test_the_defaults_limit_guesses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_host_settings()
    assert settings.failures_per_minute == 10
    assert settings.requests_per_minute is None
    assert settings.trusted_proxies == ()


@pytest.mark.parametrize(
    ("given", "proxies"),
    [
        ("10.0.0.7", ("10.0.0.7/32",)),
        (" 10.0.0.0/24 , ::1 ", ("10.0.0.0/24", "::1/128")),
    ],
)
def test_trusted_proxies_are_addresses_and_networks(
    monkeypatch: pytest.MonkeyPatch, given: str, proxies: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CORBITS_MEMORY_TRUSTED_PROXIES", given)
    assert load_host_settings().trusted_proxies == proxies


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRUSTED_PROXIES", "*"),
        ("TRUSTED_PROXIES", "0.0.0.0/0"),
        ("TRUSTED_PROXIES", "::/0"),
        ("TRUSTED_PROXIES", "proxy.example"),
        ("TRUSTED_PROXIES", "10.0.0.1/24"),
        ("TRUSTED_PROXIES", ","),
        ("FAILURES_PER_MINUTE", "0"),
        ("REQUESTS_PER_MINUTE", "0"),
        ("REQUESTS_PER_MINUTE", "many"),
    ],
)
def test_settings_that_would_open_the_door_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"CORBITS_MEMORY_{name}", value)
    with pytest.raises(ConfigError, match=f"CORBITS_MEMORY_{name}"):
        load_host_settings()
