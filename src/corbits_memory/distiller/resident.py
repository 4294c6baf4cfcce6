"""A distiller that stays: it keeps its cursor, tries again what failed, and leaves the work to one at a time.

What holds, however many run and wherever one is killed: an entry is dealt with at least once; the claim about a
document is one document, so that dealing with it twice writes no second one; no entry is passed over before it was
settled or given up; and of those that were given up the reason is kept.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import anyio

from corbits_memory.access.requirements import capability_ids_for_surface
from corbits_memory.distiller.claims import DISTILLER_AGENT_ID, worth_distilling
from corbits_memory.distiller.cursors import Consumer, CursorLease, CursorStore
from corbits_memory.distiller.entries import Distill, DistillEntry, DistillTick, Poison, read_entry
from corbits_memory.distiller.errors import DistillUnavailableError, LeaseLostError
from corbits_memory.distiller.memory import DistilledMemory
from corbits_memory.distiller.prompt import resident_prompt
from corbits_memory.distiller.tick import Distiller, Failed, Gate, count, poison_reason
from corbits_memory.errors import TooManyRequestsError, UnavailableError, UpstreamError
from corbits_memory.wire.feed import FeedResponse

DISTILLER_WORKFLOW_ID = "resident-memory-distiller"
DISTILLER_CRON = "*/5 * * * *"
INTERVAL_SECONDS = 300.0
"""What the cron line says, for a loop of one's own."""
ATTEMPTS = 5
RETRY_SECONDS, RETRY_SECONDS_MAX = 2.0, 600.0
DISTILLER_TOOLS = ("memory_feed", "memory_add", "memory_search")
RELEASE_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillerWorkflow:
    """The same as a description, for a host that has agents and a scheduler of its own."""

    id: str
    agent_id: str
    cron: str
    description: str
    system_prompt: str
    tools: tuple[str, ...]
    capabilities: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentTick:
    """A tick, and why it ended early, if it did; ``wait_seconds``: nothing is tried before.

    ``busy``: somebody else has the cursor, or it waits; nothing was done.
    """

    tick: DistillTick
    busy: bool = False
    problem: str | None = None
    wait_seconds: float = 0.0


def create_resident_distiller(
    memory: DistilledMemory,
    *,
    distill: Distill,
    cursors: CursorStore,
    tenant_id: str,
    principal_id: str,
    id: str = DISTILLER_WORKFLOW_ID,  # noqa: A002 - the original's name
    agent_id: str = DISTILLER_AGENT_ID,
    cron: str = DISTILLER_CRON,
    interval: float = INTERVAL_SECONDS,
    system_prompt: str | None = None,
    extra_tools: Sequence[str] = (),
    description: str = "Distils what is new in the memory into a few claims.",
    gate: Gate = worth_distilling,
    attempts: int = ATTEMPTS,
    retry_seconds: float = RETRY_SECONDS,
    limit: int | None = None,
    after: int = 0,
) -> "ResidentDistiller":
    """A distiller over a memory, with its inference and a place for its cursor.

    ``interval`` (seconds) is how often it looks for what is new; ``attempts`` how often an entry may fail before it is
    given up, with pauses that double from ``retry_seconds``; ``limit`` how many entries one tick reads (default 50);
    ``after`` where a cursor that is not there yet begins. ``gate`` says which entries are worth the inference.
    ``principal_id`` names whose cursor it is: that as whom ``memory`` acts.
    """
    return ResidentDistiller(
        Distiller(memory=memory, distill=distill, agent_id=agent_id, claims_of=principal_id, gate=gate),
        cursors=cursors,
        consumer=Consumer(tenant_id=tenant_id, principal_id=principal_id, agent_id=agent_id),
        workflow=DistillerWorkflow(
            id=id,
            agent_id=agent_id,
            cron=cron,
            description=description,
            system_prompt=system_prompt or resident_prompt(agent_id),
            tools=(*DISTILLER_TOOLS, *extra_tools),
            capabilities=capability_ids_for_surface("distiller"),
            tags=("role:resident-distiller", "package:corbits-memory"),
        ),
        interval=interval,
        attempts=max(1, attempts),
        retry_seconds=retry_seconds,
        limit=limit,
        after=after,
    )


class ResidentDistiller:
    """One of possibly many; they share the work of one cursor by its lease."""

    def __init__(
        self,
        distiller: Distiller,
        *,
        cursors: CursorStore,
        consumer: Consumer,
        workflow: DistillerWorkflow,
        interval: float,
        attempts: int,
        retry_seconds: float,
        limit: int | None,
        after: int,
    ) -> None:
        self.workflow = workflow
        self.consumer = consumer
        self._distiller = distiller
        self._cursors = cursors
        self._interval = interval
        self._attempts = attempts
        self._retry_seconds = retry_seconds
        self._limit = limit
        self._after = self._reached = after
        self._unavailable = 0

    async def run(
        self, *, on_tick: Callable[[ResidentTick], None] | None = None, stop: anyio.Event | None = None
    ) -> None:
        """Tick after tick, until ``stop`` is set or the task is cancelled.

        A database or a server that is away is waited for. Raises what an operator has to mend: a cursor that the
        feed has not reached, a permission, a wrong configuration.
        """
        stop = stop or anyio.Event()
        outages = 0
        while not stop.is_set():
            try:
                done = await _beside(stop.wait, self.tick)
            except (UpstreamError, UnavailableError, TooManyRequestsError, LeaseLostError) as error:
                outages += 1
                done = ResidentTick(
                    tick=DistillTick(next_cursor=self._reached),
                    problem=error.message,
                    wait_seconds=self._backoff(outages),
                )
            else:
                outages = 0
            if done is None:
                return
            if on_tick is not None:
                on_tick(done)
            pause = 0.0 if done.tick.has_more else self._interval
            if done.busy or done.wait_seconds:
                pause = min(done.wait_seconds or self._interval, self._interval)
            with anyio.move_on_after(pause):
                await stop.wait()

    async def tick(self, *, impatient: bool = False) -> ResidentTick:
        """One page: what failed before, then what is new; each entry is settled by itself.

        ``impatient``: a pause after a failure is not waited out. Raises what the memory raises, ``LeaseLostError``
        when somebody else went on meanwhile; what was settled stays so.
        """
        lease = await self._cursors.claim(self.consumer, after=self._after, impatient=impatient)
        if lease is None:
            state = await self._cursors.state(self.consumer)
            return ResidentTick(
                tick=DistillTick(next_cursor=state.position), busy=True, wait_seconds=state.waits
            )
        try:
            done = await _beside(lambda: _keep(lease), lambda: self._work(lease))
            if done is None:
                raise LeaseLostError
            self._reached = done.tick.next_cursor
            return done
        finally:
            with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                await lease.release()

    async def _work(self, lease: CursorLease) -> ResidentTick:
        done = ResidentTick(tick=DistillTick(next_cursor=lease.position, has_more=False))
        for seq in [seq for seq in lease.attempts if seq <= lease.position]:
            page = await self._page(after=seq - 1, limit=1)
            entry = next((read_entry(told) for told in page.entries if told.feed_seq == seq), None)
            if entry is None:
                # It can't be read any more.
                await lease.settle(seq)
                continue
            done = await self._settle(lease, entry, done)
            if done.problem is not None:
                return done
        page = await self._page(after=lease.position, limit=self._limit)
        for told in page.entries:
            entry = read_entry(told)
            if entry is not None:
                done = await self._settle(lease, entry, done)
                if done.problem is not None:
                    return done
                done = _at(done, told.feed_seq)
        if page.next_cursor is not None and page.next_cursor > done.tick.next_cursor:
            await lease.settle(page.next_cursor)
            done = _at(done, page.next_cursor)
        return replace(done, tick=replace(done.tick, has_more=page.has_more))

    async def _page(self, *, after: int, limit: int | None) -> FeedResponse:
        return await self._distiller.memory.feed(
            after=after, limit=limit, exclude_generator=self._distiller.agent_id, include_text=True
        )

    async def _settle(self, lease: CursorLease, entry: DistillEntry, done: ResidentTick) -> ResidentTick:
        try:
            settled = await self._distiller.settle(entry)
        except DistillUnavailableError as error:
            self._unavailable = min(self._unavailable + 1, 32)
            seconds = max(self._backoff(self._unavailable), error.retry_after or 0.0)
            await lease.wait(seconds)
            return replace(done, problem=error.message, wait_seconds=seconds)
        self._unavailable = 0
        attempts = lease.attempts.get(entry.seq, 0) + 1
        if not isinstance(settled, (Poison, Failed)):
            await lease.settle(entry.seq)
            return replace(done, tick=count(done.tick, entry, settled))
        reason = poison_reason(settled)
        dead = isinstance(settled, Poison) or attempts >= self._attempts
        seconds = 0.0 if dead else self._backoff(attempts)
        await lease.fail(
            seq=entry.seq,
            version_id=entry.version_id,
            attempts=attempts,
            reason=reason,
            dead=dead,
            wait_seconds=seconds,
        )
        if dead:
            return replace(done, tick=count(done.tick, entry, settled, attempts=attempts))
        problem = f"entry {entry.seq} failed for the {attempts}. time: {reason}"
        return replace(done, problem=problem, wait_seconds=seconds)

    def _backoff(self, failures: int) -> float:
        """Doubles with each failure; a random part of it, so that what failed together comes back apart."""
        longest = min(self._retry_seconds * 2.0 ** (min(failures, 32) - 1), RETRY_SECONDS_MAX)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _at(done: ResidentTick, seq: int) -> ResidentTick:
    return replace(done, tick=replace(done.tick, next_cursor=max(done.tick.next_cursor, seq)))


async def _keep(lease: CursorLease) -> None:
    """Renew a lease for ever. Raises ``LeaseLostError``."""
    while True:
        await anyio.sleep(lease.seconds / 3)
        # While the database is away each settling says so, and the lease may last until it is back.
        with suppress(UpstreamError):
            await lease.renew()


async def _beside(watch: Callable[[], Awaitable[None]], work: Callable[[], Awaitable[T]]) -> T | None:
    """The work's answer; None when ``watch`` ended first, and the work was given up. Raises what either raises."""
    answers: list[T] = []
    errors: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def end_with(one: Callable[[], Awaitable[T | None]]) -> None:
            try:
                answer = await one()
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group
                errors.append(error)
            else:
                if one is work:
                    answers.append(cast("T", answer))
            group.cancel_scope.cancel()

        group.start_soon(end_with, watch)
        await end_with(work)
    if errors:
        raise errors[0]
    return answers[0] if answers else None
