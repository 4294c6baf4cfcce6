"""Delivers the feed to subscribers: at least once, in order, signed, until it is taken or given up.

A subscription belongs to one worker at a time, by a lease that ends by itself; its position moves on after each
delivery, so that a worker that dies has the last one repeated and nothing left out. What is told is read, and
judged by the principal's grants, when it is sent: nothing of it is kept here.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import random
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from psycopg.rows import class_row, dict_row

from corbits_memory.config import PushConfig
from corbits_memory.core.enums import FeedOp
from corbits_memory.engine.feed import FeedService
from corbits_memory.engine.feed_signal import LOOK_SECONDS, FeedSignal, at_most
from corbits_memory.engine.outbound import Channel, DeliveryError, Outbound
from corbits_memory.engine.pool import Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import MemoryError
from corbits_memory.feed_json import entry_json
from corbits_memory.ports import Access, AccessOf, FeedEntry, FeedPage, FeedQuery

logger = logging.getLogger("corbits_memory.push")

SIGNATURE = "x-corbits-memory-signature"
DELIVERY_ID = "x-corbits-memory-delivery"
CONCURRENCY = 8
"""Subscriptions that one process serves at a time."""
LEASE_SECONDS = 60.0
LEASE_LEFT_SECONDS = 30.0
"""A lease is renewed before it has less than this: more than one delivery takes."""
SLICE_SECONDS = 20.0
"""How long one subscription is served before others have their turn."""
READ_AHEAD = 10
FRESH_SECONDS = 2.0
"""A page that was read longer ago is read again: grants and documents may have changed."""
REPLAYS_A_SLICE = 20
RETRY_SECONDS_MAX = 3_600.0
UNJUDGED_SECONDS = 30.0
JUDGED_NOT = "the grants of its principal could not be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A subscription that is this worker's for now. ``due``: the entry that comes next may be tried."""

    tenant_id: str
    id: str
    url: str
    principal_id: str
    ops: Sequence[str]
    exclude_generator: str | None
    include_text: bool
    position: int
    failures: int
    due: bool
    secret: str

    def query(self, *, after: int, limit: int) -> FeedQuery:
        return FeedQuery(
            after=after,
            limit=limit,
            ops=frozenset(map(FeedOp, self.ops)),
            exclude_generator=self.exclude_generator,
            include_text=self.include_text,
        )


class LeaseLostError(Exception):
    """Another worker has the subscription, or it was removed."""


class PushWorker:
    """Runs in the processes that also fill in vectors; they share the work through the database."""

    def __init__(
        self,
        database: Database,
        feed: FeedService,
        signal: FeedSignal,
        outbound: Outbound,
        config: PushConfig,
    ) -> None:
        self._database = database
        self._feed = feed
        self._signal = signal
        self._outbound = outbound
        self._config = config
        self._queries = load_queries("push")
        self._access_of: AccessOf = _own_documents_alone
        self._task: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def judge_by(self, access_of: AccessOf) -> None:
        self._access_of = access_of

    def start(self) -> None:
        """Deliver until :meth:`close`."""
        self._task = asyncio.create_task(self._run(), name="corbits-memory push")

    async def close(self) -> None:
        """Stop; what was on its way is sent again by the next worker."""
        for task in [task for task in (self._task, *self._serving) if task is not None]:
            # Asked again and again: Python 3.11's wait_for, which the driver uses, may swallow a cancellation.
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=0.5)
        self._task = None

    async def deliver_due(self) -> int:
        """Serve what is due, once, to its end; how many subscriptions. For those who bring no loop of their own."""
        claimed = await self._claim(CONCURRENCY)
        await asyncio.gather(*(self._serve(one, lease) for one, lease in claimed))
        return len(claimed)

    async def _run(self) -> None:
        with self._signal.anybody() as woken:
            while True:
                woken.clear()
                try:
                    await self._start_due()
                    pause = await self._pause()
                except MemoryError as error:
                    # The database went away or restarts: the positions are safe in it.
                    logger.warning("deliveries wait: %s", error.code)
                    pause = LOOK_SECONDS
                await at_most(woken, pause)

    async def _start_due(self) -> None:
        free = CONCURRENCY - len(self._serving)
        if free <= 0:
            return
        for one, lease in await self._claim(free):
            task = asyncio.create_task(self._serve(one, lease), name="corbits-memory delivery")
            self._serving.add(task)
            task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Not foreseen. Its message may quote a document: the type must do.
            logger.error("a delivery broke off: %s", type(error).__name__)

    async def _pause(self) -> float:
        """Until something is to be tried again, at most until the next look."""
        if len(self._serving) >= CONCURRENCY:
            await asyncio.wait(self._serving, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return 0.0
        async with self._database.operator() as conn:
            row = await (await conn.execute(self._queries["next_retry"])).fetchone()
        seconds = row[0] if row and row[0] is not None else LOOK_SECONDS
        return float(min(max(seconds, 0.05), LOOK_SECONDS))

    async def _claim(self, limit: int) -> list[tuple[Claimed, "Lease"]]:
        name = secrets.token_hex(16)
        began = time.monotonic()
        async with self._database.operator() as conn:
            cursor = conn.cursor(row_factory=class_row(Claimed))
            await cursor.execute(
                self._queries["claim"], {"lease": name, "seconds": LEASE_SECONDS, "limit": limit}
            )
            rows = await cursor.fetchall()
        return [(row, Lease(self._database, row, name, began)) for row in rows]

    async def _serve(self, one: Claimed, lease: "Lease") -> None:
        """Deliver for a while. Whatever fails is tried again later; nothing gets out of here."""
        more = False
        try:
            async with self._outbound.channel(one.url) as channel:
                await self._serve_replays(one, lease, channel)
                more = one.due and await self._serve_feed(one, lease, channel)
        except LeaseLostError:
            logger.info("subscription %s is served elsewhere or gone", one.id)
            return
        except DeliveryError as error:
            # The host resolves to nothing that may be reached: as if each due delivery had failed.
            await self._fail_all(one, lease, error)
        except _NotJudgedError:
            logger.warning("subscription %s waits: %s", one.id, JUDGED_NOT)
        except MemoryError as error:
            logger.warning("subscription %s waits: %s", one.id, error.code)
        finally:
            with suppress(MemoryError):
                await lease.release()
        if more:
            self._signal.wake_anybody()

    async def _judge(self, one: Claimed, lease: "Lease") -> Access | None:
        try:
            return await self._access_of(one.tenant_id, one.principal_id)
        except Exception as error:
            # A host's grant store may raise anything; then nothing may be told, and it is nobody's failure.
            await lease.run("postpone", failures=one.failures, error=JUDGED_NOT, seconds=UNJUDGED_SECONDS)
            raise _NotJudgedError from error

    async def _serve_feed(self, one: Claimed, lease: "Lease", channel: Channel) -> bool:
        """Whether there is more to deliver at once."""
        position, failures = one.position, one.failures
        ends = time.monotonic() + SLICE_SECONDS
        while time.monotonic() < ends:
            page = await self._page(one, lease, after=position, limit=READ_AHEAD)
            read = time.monotonic()
            for entry in page.entries:
                if time.monotonic() - read > FRESH_SECONDS:
                    break
                error = await self._send(one, lease, channel, entry)
                if error is None:
                    await lease.run("advance", position=entry.seq, delivered=True)
                elif not await self._failed(one, lease, entry.seq, failures + 1, error):
                    return False
                position, failures = entry.seq, 0
            else:
                if page.position > position:
                    await lease.run("advance", position=page.position, delivered=False)
                    position = page.position
                if not page.has_more:
                    return False
        return True

    async def _failed(
        self, one: Claimed, lease: "Lease", seq: int, failures: int, error: DeliveryError
    ) -> bool:
        """Whether the entry was given up, so that the next one comes."""
        logger.info("subscription %s: entry %d failed for the %d. time", one.id, seq, failures)
        if failures >= self._config.attempts:
            await lease.run("bury", seq=seq, failures=failures, error=error.message)
            return True
        await lease.run(
            "postpone", failures=failures, error=error.message, seconds=self._backoff(failures, error)
        )
        return False

    async def _serve_replays(self, one: Claimed, lease: "Lease", channel: Channel) -> None:
        for seq, failures in await lease.fetch("due_replays", limit=REPLAYS_A_SLICE):
            page = await self._page(one, lease, after=seq - 1, limit=1)
            entry = next((entry for entry in page.entries if entry.seq == seq), None)
            error = None if entry is None else await self._send(one, lease, channel, entry)
            if error is None:
                await lease.run("settle_replay", seq=seq)
            else:
                await self._replay_failed(lease, seq, failures + 1, error)

    async def _replay_failed(self, lease: "Lease", seq: int, failures: int, error: DeliveryError) -> None:
        await lease.run(
            "postpone_replay",
            seq=seq,
            dead=failures >= self._config.attempts,
            failures=failures,
            error=error.message,
            seconds=self._backoff(failures, error),
        )

    async def _fail_all(self, one: Claimed, lease: "Lease", error: DeliveryError) -> None:
        with suppress(MemoryError, LeaseLostError, _NotJudgedError):
            for seq, failures in await lease.fetch("due_replays", limit=REPLAYS_A_SLICE):
                await self._replay_failed(lease, seq, failures + 1, error)
            if not one.due:
                return
            page = await self._page(one, lease, after=one.position, limit=1)
            if page.entries:
                await self._failed(one, lease, page.entries[0].seq, one.failures + 1, error)
            elif page.position > one.position:
                await lease.run("advance", position=page.position, delivered=False)

    async def _page(self, one: Claimed, lease: "Lease", *, after: int, limit: int) -> FeedPage:
        """What comes after, as the principal may see it now."""
        return await self._feed.page(
            tenant_id=one.tenant_id,
            principal_id=one.principal_id,
            query=one.query(after=after, limit=limit),
            access=await self._judge(one, lease),
        )

    async def _send(
        self, one: Claimed, lease: "Lease", channel: Channel, entry: FeedEntry
    ) -> DeliveryError | None:
        await lease.hold()
        body = json.dumps(
            {"subscriptionId": one.id, "tenantId": one.tenant_id, "entry": entry_json(entry)},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode("utf-8", "backslashreplace")
        headers = {
            "content-type": "application/json",
            "user-agent": "corbits-memory",
            # The same whenever the same entry is sent: who has seen it may leave it out.
            DELIVERY_ID: f"{one.id}:{entry.seq}",
            SIGNATURE: sign(one.secret, int(time.time()), body),
        }
        try:
            await channel.post(body, headers)
        except DeliveryError as error:
            return error
        return None

    def _backoff(self, failures: int, error: DeliveryError) -> float:
        """Doubles with each failure; a random part of it, so that what failed together comes back apart."""
        longest = min(self._config.retry_seconds * 2.0 ** (failures - 1), RETRY_SECONDS_MAX)
        return max(longest * random.uniform(0.5, 1.0), error.retry_after or 0.0)  # noqa: S311 - no secret


class Lease:
    """What says that a subscription is this worker's, and the statements that hold only then."""

    def __init__(self, database: Database, one: Claimed, name: str, began: float) -> None:
        self._database = database
        self._parameters = {"tenant": one.tenant_id, "id": one.id, "lease": name}
        self._ends = began + LEASE_SECONDS

    async def hold(self) -> None:
        """Renewed when it ends soon. Raises ``LeaseLostError``."""
        if self._ends - time.monotonic() > LEASE_LEFT_SECONDS:
            return
        began = time.monotonic()
        await self.run("renew", seconds=LEASE_SECONDS)
        self._ends = began + LEASE_SECONDS

    async def run(self, name: str, **parameters: object) -> None:
        """A statement; raises ``LeaseLostError`` when it should have found its row and did not."""
        async with self._database.operator() as conn:
            done = await conn.execute(load_queries("push")[name], {**self._parameters, **parameters})
            if done.rowcount == 0:
                raise LeaseLostError

    async def fetch(self, name: str, **parameters: object) -> list[tuple[int, int]]:
        async with self._database.operator() as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(load_queries("push")[name], {**self._parameters, **parameters})
            return [(row["seq"], row["failures"]) for row in await cursor.fetchall()]

    async def release(self) -> None:
        with suppress(LeaseLostError):
            await self.run("release")


class _NotJudgedError(Exception):
    """It is not known what the principal may see."""


async def _own_documents_alone(tenant_id: str, principal_id: str) -> Access | None:
    return None


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """``t=<unix seconds>,v1=<hex HMAC-SHA256 of "<timestamp>.<body>">``."""
    signed = f"{timestamp}.".encode() + body
    return f"t={timestamp},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
