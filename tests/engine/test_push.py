"""Webhooks on real Postgres and real receivers: order, signatures, retries, dead letters, several workers."""

import asyncio
import hashlib
import hmac
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from corbits_memory.access.memory_store import InMemoryGrantStore
from corbits_memory.config import PushConfig
from corbits_memory.core import limits
from corbits_memory.core.enums import FeedOp
from corbits_memory.engine import push as engine_push
from corbits_memory.engine.push import DELIVERY_ID, SIGNATURE, sign
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import ConflictError, InvalidCursorError, InvalidInputError, NotFoundError
from corbits_memory.plane import Memory
from corbits_memory.ports import CreatedSubscription, NewSubscription, Subscription
from tests.engine.receiver import Received, Receiver, Reply
from tests.engine.support import OpenStore, P, T, add, note
from tests.engine.test_access import access_of, grant
from tests.engine.test_feed import retract

Owner = psycopg.AsyncConnection[Any]
HERE = PushConfig(
    allow_http=True, allowed_hosts=("127.0.0.1",), attempts=3, retry_seconds=0.02, timeout_seconds=2.0
)
GONE = "http://127.0.0.1:9/"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def store(open_store: OpenStore) -> PostgresDocumentStore:
    """One that delivers only when asked to."""
    return await open_store(push=HERE)


async def subscribe(
    store: PostgresDocumentStore, url: str, *, principal: str = P, tenant: str = T, **fields: Any
) -> CreatedSubscription:
    given = NewSubscription(url=url, principal_id=principal, **fields)
    return await store.subscribe(tenant_id=tenant, principal_id="admin", subscription=given)


async def state(store: PostgresDocumentStore, tenant: str = T) -> Subscription:
    (only,) = await store.subscriptions(tenant_id=tenant)
    return only


async def until(check: Callable[[], bool | Awaitable[bool]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while True:
            found = check()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


async def settle(store: PostgresDocumentStore, tenant: str = T) -> Subscription:
    """Deliver until nothing waits any more."""

    async def settled() -> bool:
        await store.push.deliver_due()
        now = await state(store, tenant)
        async with store._database.operator() as conn:
            rows = await conn.execute(
                "SELECT (SELECT feed_seq FROM memory.tenant_state WHERE tenant_id = %s), "
                "(SELECT count(*) FROM memory.delivery WHERE state = 'replay')",
                [tenant],
            )
            return await rows.fetchone() == (now.position, 0)

    await until(settled)
    return await state(store, tenant)


# --- deliveries --------------------------------------------------------------------------------------


async def test_what_is_written_is_delivered_in_order(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    await add(store, note("before"))
    created = await subscribe(store, receiver.url)
    await add(store, *(note(f"text {n}", title=f"Note {n}") for n in range(25)))
    after = await settle(store)
    assert receiver.seqs == list(range(2, 27))
    assert (after.position, after.failures, after.dead, after.last_error) == (26, 0, 0, None)
    assert after.last_delivered_at is not None
    first = receiver.received[0]
    assert first.json["subscriptionId"] == created.subscription.id
    assert first.json["tenantId"] == T
    assert first.json["entry"]["title"] == "Note 0"
    assert "text" not in first.json["entry"]
    assert first.headers["content-type"] == "application/json"
    assert first.headers[DELIVERY_ID] == f"{created.subscription.id}:2"
    assert receiver.connections == 1, "one connection serves many deliveries"


async def test_each_is_signed_over_its_time_and_body(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    created = await subscribe(store, receiver.url)
    await add(store, note("ünïcode — ok", title="Título"))
    await settle(store)
    (received,) = receiver.received
    stamped, given = received.headers[SIGNATURE].split(",")
    timestamp = stamped.removeprefix("t=")
    assert abs(time.time() - int(timestamp)) < 60
    expected = hmac.new(
        created.secret.encode(), timestamp.encode() + b"." + received.body, hashlib.sha256
    ).hexdigest()
    assert given == f"v1={expected}"
    assert sign("other", int(timestamp), received.body) != received.headers[SIGNATURE]


def test_what_the_documentation_says_verifies_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "feed.md").read_text(encoding="utf-8")
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def verify" in block
    ]
    names: dict[str, Any] = {}
    exec(code, names)
    verify, now, body = names["verify"], int(time.time()), b'{"a": 1}'
    assert verify("whsec_x", sign("whsec_x", now, body), body)
    assert not verify("whsec_y", sign("whsec_x", now, body), body)
    assert not verify("whsec_x", sign("whsec_x", now, body), body + b" ")
    assert not verify("whsec_x", sign("whsec_x", now - 301, body), body)
    for broken in ("", "t=,v1=", "v1=x", f"t={now}", "nonsense", f"t={now},v1="):
        assert not verify("whsec_x", broken, body)


async def test_a_subscription_may_begin_at_the_beginning_and_bring_texts(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    await add(store, note("one"), note("two", generator_agent_id="bot"), note("three"))
    await subscribe(store, receiver.url, after=0, include_text=True, exclude_generator="bot")
    await settle(store)
    assert [r.json["entry"]["text"] for r in receiver.received] == ["one", "three"]


async def test_retractions_are_delivered_to_who_asked_for_them(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    await subscribe(store, receiver.url, ops=frozenset(FeedOp))
    (added,) = await add(store, note("x"))
    await settle(store)
    await retract(store, [added.version_id], purge=True)
    await settle(store)
    assert receiver.received[1].json["entry"] == {
        "feedSeq": 2,
        "op": "retract",
        "versionId": added.version_id,
        "documentId": added.document_id,
    }


# --- who is told what --------------------------------------------------------------------------------


async def test_a_subscription_is_told_what_its_principal_may_see(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    await subscribe(store, receiver.url, principal="bob")
    await add(store, note("1", access_tags=("memory.space:eng",)), note("2"))
    await add(store, note("3"), principal="bob")
    after = await settle(store)
    assert receiver.seqs == [3], "without grants, its own documents alone"
    assert after.position == 3

    async def granted(tenant: str, principal: str) -> Any:
        assert (tenant, principal) == (T, "bob")
        return await access_of(grant("memory.space:eng"))

    store.judge_by(granted)
    await add(store, note("4", access_tags=("memory.space:eng",)), note("5"))
    await settle(store)
    assert receiver.seqs == [3, 4]


async def test_grants_are_those_of_the_moment_of_sending(open_store: OpenStore, receiver: Receiver) -> None:
    grants = InMemoryGrantStore([grant("memory.space:eng", tenant_id=T)])
    store = await open_store(push=HERE)
    memory = Memory(store, grant_store=grants)
    await subscribe(store, receiver.url, principal="bob")
    await add(store, note("1", access_tags=("memory.space:eng",)))
    await settle(store)
    await add(store, note("2", access_tags=("memory.space:eng",)))
    assert grants.delete_grant(T, "bob:search:allow:memory.space:eng")
    await settle(store)
    assert receiver.seqs == [1]
    assert memory.capabilities.supports_feed


async def test_while_grants_can_not_be_read_nothing_is_told_and_nothing_is_lost(
    store: PostgresDocumentStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_push, "UNJUDGED_SECONDS", 0.01)
    await subscribe(store, receiver.url)
    await add(store, note("x"))

    async def broken(tenant: str, principal: str) -> Any:
        raise RuntimeError("a secret of the host")

    store.judge_by(broken)
    await store.push.deliver_due()
    waiting = await state(store)
    assert receiver.received == []
    assert (waiting.position, waiting.failures) == (0, 0)
    assert waiting.last_error == "the grants of its principal could not be read"

    async def mended(tenant: str, principal: str) -> Any:
        return None

    store.judge_by(mended)
    await settle(store)
    assert receiver.seqs == [1]


async def test_tenants_share_nothing(store: PostgresDocumentStore, receiver: Receiver) -> None:
    created = await subscribe(store, receiver.url)
    await add(store, note("x"), tenant="other")
    await store.push.deliver_due()
    assert receiver.received == []
    assert await store.subscriptions(tenant_id="other") == []
    for unknown in (
        store.unsubscribe(tenant_id="other", principal_id="ann", subscription_id=created.subscription.id),
        store.replay(tenant_id="other", subscription_id=created.subscription.id, seqs=None),
        store.dead_letters(tenant_id="other", subscription_id=created.subscription.id, after=0, limit=1),
    ):
        with pytest.raises(NotFoundError):
            await unknown


# --- failures ----------------------------------------------------------------------------------------


async def test_a_failure_is_tried_again_and_holds_the_order(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    receiver.reply = lambda _: Reply(500 if len(receiver.received) <= 2 else 200)
    await subscribe(store, receiver.url)
    await add(store, note("1"), note("2"))
    await settle(store)
    assert receiver.seqs == [1, 1, 1, 2]
    assert len({r.headers[DELIVERY_ID] for r in receiver.received}) == 2


async def test_a_failure_is_told_to_administrators(store: PostgresDocumentStore, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(503)
    await subscribe(store, receiver.url)
    await add(store, note("1"))
    await store.push.deliver_due()
    now = await state(store)
    assert (now.position, now.failures, now.last_error) == (0, 1, "the receiver answered 503")


async def test_pauses_double_and_are_random(store: PostgresDocumentStore) -> None:
    from corbits_memory.engine.outbound import DeliveryError

    pauses = [
        [store.push._backoff(failures, DeliveryError("x")) for _ in range(50)] for failures in (1, 2, 3, 40)
    ]
    for drawn, longest in zip(pauses, (0.02, 0.04, 0.08, 3_600.0), strict=True):
        assert longest / 2 <= min(drawn) < max(drawn) <= longest
    assert store.push._backoff(1, DeliveryError("x", retry_after=9.0)) == 9.0


async def test_what_is_never_taken_is_given_up_and_the_next_goes_on(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    receiver.reply = lambda received: Reply(500 if received.seq == 1 else 200)
    created = await subscribe(store, receiver.url)
    (added, _) = await add(store, note("1"), note("2"))
    after = await settle(store)
    assert receiver.seqs == [1, 1, 1, 2]
    assert (after.position, after.dead, after.failures) == (2, 1, 0)
    (dead,) = await store.dead_letters(
        tenant_id=T, subscription_id=created.subscription.id, after=0, limit=10
    )
    assert (dead.seq, dead.op, dead.version_id) == (1, FeedOp.UPSERT, added.version_id)
    assert (dead.failures, dead.error) == (3, "the receiver answered 500")


async def test_dead_letters_are_sent_again_when_asked(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    receiver.reply = lambda _: Reply(500)
    created = await subscribe(store, receiver.url)
    named: Any = {"tenant_id": T, "subscription_id": created.subscription.id}
    await add(store, note("1"), note("2"), note("3"))
    assert (await settle(store)).dead == 3
    assert [d.seq for d in await store.dead_letters(**named, after=1, limit=1)] == [2]
    receiver.received.clear()
    receiver.reply = lambda _: Reply()
    assert await store.replay(**named, seqs=[2, 2, 99]) == 1
    assert (await settle(store)).dead == 2
    assert receiver.seqs == [2]
    assert await store.replay(**named, seqs=None) == 2
    assert (await settle(store)).dead == 0
    assert receiver.seqs == [2, 1, 3]
    assert await store.replay(**named, seqs=None) == 0


async def test_what_fails_again_is_dead_again(store: PostgresDocumentStore, receiver: Receiver) -> None:
    receiver.reply = lambda received: Reply(500 if received.seq == 1 else 200)
    created = await subscribe(store, receiver.url)
    await add(store, note("1"), note("2"))
    await settle(store)
    await store.replay(tenant_id=T, subscription_id=created.subscription.id, seqs=None)
    await add(store, note("3"))
    assert (await settle(store)).dead == 1
    assert receiver.seqs.count(1) == 6
    assert receiver.seqs.count(3) == 1, "a replay holds up nothing"


async def test_what_was_forgotten_meanwhile_is_not_sent_again(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    receiver.reply = lambda _: Reply(500)
    created = await subscribe(store, receiver.url)
    (added,) = await add(store, note("1"))
    await settle(store)
    await retract(store, [added.version_id])
    receiver.received.clear()
    assert await store.replay(tenant_id=T, subscription_id=created.subscription.id, seqs=None) == 1
    assert (await settle(store)).dead == 0
    assert receiver.received == []


async def test_a_host_that_may_not_be_reached_any_more_fails_like_others(
    open_store: OpenStore, receiver: Receiver
) -> None:
    allowing = await open_store(push=HERE)
    await subscribe(allowing, receiver.url)
    await add(allowing, note("1"))
    strict = await open_store(push=PushConfig(allow_http=True, attempts=2, retry_seconds=0.01))
    after = await settle(strict)
    assert receiver.received == []
    assert (after.dead, after.position) == (1, 1)
    assert "may not reach" in str(after.last_error)


# --- subscriptions -----------------------------------------------------------------------------------


async def test_a_secret_is_told_once_and_read_by_no_tenant(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    created = await subscribe(store, receiver.url)
    assert created.secret.startswith("whsec_")
    assert created.secret not in repr(created)
    assert created.secret not in repr(await store.subscriptions(tenant_id=T))
    async with store._database.tenant(T) as conn:
        rows = await conn.execute("SELECT secret FROM memory.subscription_secret")
        assert await rows.fetchall() == []
    other = await subscribe(store, receiver.url)
    assert other.secret != created.secret


async def test_removing_a_subscription_ends_it(
    store: PostgresDocumentStore, receiver: Receiver, owner: Owner
) -> None:
    receiver.reply = lambda _: Reply(500)
    created = await subscribe(store, receiver.url)
    await add(store, note("1"))
    await settle(store)
    await store.unsubscribe(tenant_id=T, principal_id="ann", subscription_id=created.subscription.id)
    await add(store, note("2"))
    assert await store.push.deliver_due() == 0
    for table in ("subscription", "subscription_secret", "delivery"):
        row = await (await owner.execute(f"SELECT count(*) FROM memory.{table}")).fetchone()
        assert row == (0,)
    with pytest.raises(NotFoundError):
        await store.unsubscribe(tenant_id=T, principal_id="ann", subscription_id=created.subscription.id)


@pytest.mark.parametrize(
    "url", ["https://10.0.0.1/", "https://127.0.0.2/", "https://169.254.169.254/", "ftp://127.0.0.1/", "x"]
)
async def test_urls_that_may_not_be_called_are_refused(store: PostgresDocumentStore, url: str) -> None:
    with pytest.raises(InvalidInputError):
        await subscribe(store, url)


async def test_a_number_that_the_feed_has_not_reached(
    store: PostgresDocumentStore, receiver: Receiver
) -> None:
    await add(store, note("1"))
    assert (await subscribe(store, receiver.url, after=1)).subscription.position == 1
    for tenant in (T, "nobody"):
        with pytest.raises(InvalidCursorError):
            await subscribe(store, receiver.url, after=2, tenant=tenant)


async def test_a_tenant_has_so_many_subscriptions_at_most(
    store: PostgresDocumentStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.SUBSCRIPTIONS == 100
    monkeypatch.setattr("corbits_memory.engine.subscriptions.SUBSCRIPTIONS", 2)
    for _ in range(2):
        await subscribe(store, receiver.url)
    with pytest.raises(ConflictError):
        await subscribe(store, receiver.url)
    assert len(await store.subscriptions(tenant_id=T)) == 2


# --- several workers ---------------------------------------------------------------------------------


async def test_several_workers_send_each_entry_once_and_in_order(
    open_store: OpenStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_push, "SLICE_SECONDS", 0.05)
    receiver.reply = lambda _: Reply(seconds=random.uniform(0, 0.01))
    workers = [await open_store(push=HERE, run_worker=True) for _ in range(4)]
    await subscribe(workers[0], receiver.url)
    for batch in range(6):
        await add(workers[batch % 4], *(note(f"{batch} {n}") for n in range(10)))
    await until(lambda: len(receiver.received) >= 60)
    await asyncio.sleep(0.1)
    assert receiver.seqs == list(range(1, 61))
    assert receiver.most_at_once == 1


async def test_a_worker_that_died_is_followed_by_another(
    open_store: OpenStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that was on its way comes again; none is left out."""
    monkeypatch.setattr(engine_push, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(engine_push, "LEASE_LEFT_SECONDS", 0.5)
    dying, living = await open_store(push=HERE), await open_store(push=HERE)
    await subscribe(dying, receiver.url)
    await add(dying, note("1"), note("2"), note("3"))
    receiver.reply = lambda received: Reply(seconds=5 if len(receiver.received) == 2 else 0)
    serving = asyncio.create_task(dying.push.deliver_due())
    await until(lambda: len(receiver.received) == 2)

    async def no_farewell(self: Any) -> None:
        """A process that is killed releases nothing."""

    monkeypatch.setattr(engine_push.Lease, "release", no_farewell)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert await living.push.deliver_due() == 0, "it is leased"
    monkeypatch.undo()
    await settle(living)
    assert receiver.seqs == [1, 2, 2, 3]


async def test_who_lost_its_lease_moves_nothing(
    store: PostgresDocumentStore, receiver: Receiver, owner: Owner
) -> None:
    await subscribe(store, receiver.url)
    await add(store, note("1"), note("2"))

    def lose(received: Received) -> Reply:
        with psycopg.connect(store._config.database_url, autocommit=True) as conn:
            conn.execute("UPDATE memory.subscription SET lease = 'another', leased_until = now() + '1 hour'")
        return Reply()

    receiver.reply = lose
    await store.push.deliver_due()
    assert receiver.seqs == [1]
    assert (await state(store)).position == 0


async def test_a_running_worker_delivers_at_once(open_store: OpenStore, receiver: Receiver) -> None:
    worker, writer = await open_store(push=HERE, run_worker=True), await open_store(push=HERE)
    await subscribe(writer, receiver.url)
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await add(writer, note("1"))
    await until(lambda: len(receiver.received) == 1)
    assert receiver.received[0].at - began < 1.5
    await worker.close()


async def test_a_slow_receiver_holds_up_nobody_else(open_store: OpenStore, receiver: Receiver) -> None:
    store = await open_store(push=HERE, run_worker=True)
    with Receiver(lambda _: Reply(seconds=1.5)) as slow:
        await subscribe(store, slow.url)
        await subscribe(store, receiver.url)
        await add(store, *(note(str(n)) for n in range(5)))
        await until(lambda: len(receiver.received) == 5, seconds=1.5 + 3)
        assert len(slow.received) <= 3
        await store.close()


async def test_closing_stops_deliveries(open_store: OpenStore, receiver: Receiver) -> None:
    store = await open_store(push=HERE, run_worker=True)
    receiver.reply = lambda _: Reply(seconds=30)
    await subscribe(store, receiver.url)
    await add(store, note("1"))
    await until(lambda: len(receiver.received) == 1)
    async with asyncio.timeout(4):
        await store.close()
