"""Tokens: kept as hashes, shown once, ended by time or by revoking."""

import asyncio
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from corbits_memory.core.enums import AuditAction, AuditOutcome, Capability
from corbits_memory.engine.audit import AuditService
from corbits_memory.engine.pool import Database
from corbits_memory.errors import InvalidInputError, NotFoundError
from corbits_memory.server.tokens import NewToken, Tokens, hash_secret, parse_capabilities

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SEARCH = frozenset({Capability.SEARCH})


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(database: Database, clock: Clock) -> Tokens:
    return Tokens(database, clock=clock)


async def make(tokens: Tokens, **given: Any) -> NewToken:
    values: dict[str, Any] = {"tenant_id": "acme", "principal_id": "ann", "capabilities": SEARCH}
    return await tokens.create(**(values | given))


async def test_a_token_says_tenant_principal_and_capabilities(tokens: Tokens) -> None:
    made = await make(tokens)
    found = await tokens.verify(made.secret)
    assert found is not None
    assert (found.id, found.tenant_id, found.principal_id) == (made.token.id, "acme", "ann")
    assert found.capabilities == SEARCH


async def test_the_secret_is_nowhere_in_the_database(tokens: Tokens, database: Database) -> None:
    made = await make(tokens, label="laptop")
    async with database.operator() as conn:
        row = await (await conn.execute("SELECT t::text, token_hash FROM memory_host.token t")).fetchone()
    assert row is not None
    whole, stored = row
    assert made.secret not in whole
    assert made.secret[len(made.token.prefix) :] not in whole
    assert bytes(stored) == hash_secret(made.secret)


async def test_the_secret_is_not_in_its_repr(tokens: Tokens) -> None:
    made = await make(tokens)
    assert made.secret not in repr(made)


async def test_secrets_are_long_random_and_recognisable(tokens: Tokens) -> None:
    one, other = await make(tokens), await make(tokens)
    assert one.secret.startswith("cmt_")
    assert len(one.secret) == 4 + 43  # 256 bits in base64url
    assert one.secret != other.secret
    assert one.token.prefix == one.secret[:10]


@pytest.mark.parametrize("change", ["", "x", "cmt_"])
async def test_a_foreign_secret_is_nobody(tokens: Tokens, change: str) -> None:
    made = await make(tokens)
    assert await tokens.verify(change + made.secret[1:]) is None


async def test_a_hash_is_not_a_secret(tokens: Tokens) -> None:
    made = await make(tokens)
    assert await tokens.verify(hash_secret(made.secret).hex()) is None


async def test_the_decision_is_a_comparison_in_constant_time(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await make(tokens)
    compared: list[tuple[bytes, bytes]] = []

    def refuse(stored: bytes, presented: bytes) -> bool:
        compared.append((stored, presented))
        return False

    monkeypatch.setattr(hmac, "compare_digest", refuse)
    assert await tokens.verify(made.secret) is None, "that the index found a row must not be enough"
    assert compared == [(hash_secret(made.secret), hash_secret(made.secret))]


async def test_a_token_ends_at_its_time(tokens: Tokens, clock: Clock) -> None:
    made = await make(tokens, expires_at=NOON + timedelta(hours=1))
    clock.now = NOON + timedelta(hours=1) - timedelta(seconds=1)
    assert await tokens.verify(made.secret) is not None
    clock.now = NOON + timedelta(hours=1)
    assert await tokens.verify(made.secret) is None
    (listed,) = await tokens.list()
    assert listed.state(clock.now) == "expired"


async def test_an_end_in_the_past_is_refused(tokens: Tokens) -> None:
    with pytest.raises(InvalidInputError, match="past"):
        await make(tokens, expires_at=NOON)


async def test_revoking_counts_at_once_and_may_be_repeated(tokens: Tokens, clock: Clock) -> None:
    made, other = await make(tokens), await make(tokens)
    assert await tokens.verify(made.secret) is not None
    revoked = await tokens.revoke(made.token.id)
    assert await tokens.verify(made.secret) is None
    assert await tokens.verify(other.secret) is not None
    clock.now += timedelta(days=1)
    assert await tokens.revoke(made.token.id) == revoked


async def test_revoking_an_unknown_id_says_where_ids_are(tokens: Tokens) -> None:
    with pytest.raises(NotFoundError, match="token list"):
        await tokens.revoke("tok_nothing")


async def test_the_last_use_is_noted_at_most_every_minute(tokens: Tokens, clock: Clock) -> None:
    made = await make(tokens)

    async def last_use_after(seconds: int) -> datetime | None:
        clock.now = NOON + timedelta(seconds=seconds)
        await tokens.verify(made.secret)
        return (await tokens.list())[0].last_used_at

    assert (await tokens.list())[0].last_used_at is None
    assert await last_use_after(1) == NOON + timedelta(seconds=1)
    assert await last_use_after(60) == NOON + timedelta(seconds=1)
    assert await last_use_after(61) == NOON + timedelta(seconds=61)


async def test_tokens_are_listed_by_tenant_and_in_order(tokens: Tokens) -> None:
    first, other, second = await make(tokens), await make(tokens, tenant_id="acme-corp"), await make(tokens)
    assert [token.id for token in await tokens.list("acme")] == [first.token.id, second.token.id]
    assert [token.id for token in await tokens.list()] == [first.token.id, other.token.id, second.token.id]


@pytest.mark.parametrize(
    "given", [{"tenant_id": ""}, {"principal_id": " "}, {"tenant_id": "a\nb"}, {"capabilities": frozenset()}]
)
async def test_bad_input_is_refused(tokens: Tokens, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await make(tokens, **given)


async def test_the_first_token_may_do_all_and_is_made_once(tokens: Tokens) -> None:
    first = await tokens.ensure_first()
    assert first is not None
    assert (first.token.tenant_id, first.token.principal_id) == ("default", "owner")
    assert first.token.capabilities == frozenset(Capability)
    assert await tokens.ensure_first() is None
    await tokens.revoke(first.token.id)
    assert await tokens.ensure_first() is None, "a revoked one is no reason to make another"


async def test_hosts_that_start_together_make_one_first_token(tokens: Tokens) -> None:
    made = await asyncio.gather(*(tokens.ensure_first() for _ in range(4)))
    assert len([each for each in made if each is not None]) == 1
    assert len(await tokens.list()) == 1


async def test_a_preset_token_is_the_first_and_stays_revoked(tokens: Tokens) -> None:
    secret = "preset-by-the-operator"
    assert await tokens.ensure_first(secret) is not None
    assert await tokens.ensure_first(secret) is None
    found = await tokens.verify(secret)
    assert found is not None
    assert found.prefix == "(preset)"
    await tokens.revoke(found.id)
    assert await tokens.ensure_first(secret) is None
    assert await tokens.verify(secret) is None


async def test_another_preset_is_added(tokens: Tokens) -> None:
    await tokens.ensure_first("preset-by-the-operator")
    assert await tokens.ensure_first("preset-by-the-successor") is not None
    assert await tokens.verify("preset-by-the-successor") is not None


def test_capabilities_are_read_with_or_without_their_prefix() -> None:
    assert parse_capabilities(["add", " memory:SEARCH "]) == {Capability.ADD, Capability.SEARCH}


@pytest.mark.parametrize("names", [[], [""], ["add", "fly"]])
def test_unknown_or_no_capabilities_are_refused_with_those_that_there_are(names: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="add, search, forget, purge, admin"):
        parse_capabilities(names)


async def test_making_and_revoking_are_in_the_audit(tokens: Tokens, database: Database, clock: Clock) -> None:
    made = await make(tokens, tenant_id="audited", by="sara")
    for _ in range(2):
        clock.now += timedelta(minutes=1)
        await tokens.revoke(made.token.id, by="tom")
    page = await AuditService(database).page(tenant_id="audited", limit=10)
    assert [(e.actor_id, e.action, e.outcome) for e in reversed(page.events)] == [
        ("sara", AuditAction.CREATE_TOKEN, AuditOutcome.DONE),
        ("tom", AuditAction.REVOKE_TOKEN, AuditOutcome.DONE),
        ("tom", AuditAction.REVOKE_TOKEN, AuditOutcome.UNCHANGED),
    ]
    assert {event.target_id for event in page.events} == {made.token.id}
    assert made.secret not in str(page)
