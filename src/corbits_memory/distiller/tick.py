"""One page of the feed, distilled entry by entry."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from corbits_memory.distiller.claims import (
    DISTILLER_AGENT_ID,
    claim_of,
    resolve_next_cursor,
    worth_distilling,
)
from corbits_memory.distiller.entries import (
    Distill,
    DistillEntry,
    DistillTick,
    Outcome,
    Poison,
    Poisoned,
    Skip,
    Write,
    Wrote,
    read_entry,
)
from corbits_memory.distiller.errors import DistillUnavailableError, TickAbortedError
from corbits_memory.distiller.memory import DistilledMemory
from corbits_memory.errors import (
    ConflictError,
    ExternalRefInUseError,
    ForbiddenError,
    InvalidInputError,
    MemoryError,
    NotFoundError,
    TooLargeError,
)

REASON_CHARS = 500
UNSAID = "the inference gave no reason"
AGENT_IN_USE = (
    "distill tick: another principal distils this document under the agent id {agent}; give this distiller an id of "
    "its own"
)

Gate = Callable[[DistillEntry, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The inference failed on an entry; it may do better another time."""

    reason: str


Settled = Wrote | Skip | Poison | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Distiller:
    """Memory, inference and name of a distiller: what settles an entry."""

    memory: DistilledMemory
    distill: Distill
    agent_id: str = DISTILLER_AGENT_ID
    claims_of: str = ""
    gate: Gate = worth_distilling

    async def settle(self, entry: DistillEntry) -> Settled:
        """Distil an entry and write its claim. Writing it again writes nothing anew.

        Raises ``DistillUnavailableError``, and what the memory raises where that is nothing about the claim.
        """
        if not self.gate(entry, self.agent_id):
            return Skip()
        try:
            outcome = await self._infer(entry)
        except DistillUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - a host's inference may raise anything
            return Failed(reason=reason_of(error))
        if not isinstance(outcome, Write):
            return outcome
        try:
            claim = claim_of(entry, outcome, generator_agent_id=self.agent_id, claims_of=self.claims_of)
            answer = await self.memory.add(**claim)
        except ExternalRefInUseError:
            # Another principal distils under this name, or took it: that must not end what is distilled besides.
            return Poison(reason=AGENT_IN_USE.format(agent=self.agent_id))
        except ForbiddenError as error:
            return Poison(reason=reason_of(error))
        except (InvalidInputError, NotFoundError, ConflictError, TooLargeError) as error:
            # This claim can't be kept. Another answer, or what the feed tells next time, may be better.
            return Failed(reason=reason_of(error))
        return Wrote(seq=entry.seq, claim=claim, answer=answer)

    async def _infer(self, entry: DistillEntry) -> Outcome:
        answer = self.distill(entry)
        outcome = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(outcome, (Skip, Poison, Write)):
            raise TypeError("distill must answer Skip, Poison or Write")
        return outcome


async def run_distill_tick(
    memory: DistilledMemory,
    distill: Distill,
    *,
    after: int = 0,
    limit: int | None = None,
    generator_agent_id: str = DISTILLER_AGENT_ID,
    claims_of: str = "",
    gate: Gate = worth_distilling,
    stop: anyio.Event | None = None,
) -> DistillTick:
    """Distil one page of the feed behind ``after``: at most ``limit`` entries (1 to 100, default 50), in order.

    Keep the tick's ``next_cursor``. An entry on which ``distill`` raises is poisoned, once and for all; who wants it
    tried again uses a resident distiller. ``stop`` ends the tick before its next entry. Raises ``TickAbortedError``
    with what was done so far where ``distill`` can't work at all or the memory fails, and what the feed raises.
    """
    distiller = Distiller(
        memory=memory, distill=distill, agent_id=generator_agent_id, claims_of=claims_of, gate=gate
    )
    page = await memory.feed(
        after=after, limit=limit, exclude_generator=generator_agent_id, include_text=True
    )
    tick = DistillTick(next_cursor=after, has_more=page.has_more)
    for told in page.entries:
        if stop is not None and stop.is_set():
            return replace(tick, has_more=True)
        entry = read_entry(told)
        if entry is not None:
            try:
                tick = count(tick, entry, await distiller.settle(entry))
            except MemoryError as error:
                raise TickAbortedError(
                    f"distill tick: broke off at entry {entry.seq}: {error.message}",
                    tick=replace(tick, has_more=True),
                ) from error
        tick = replace(tick, next_cursor=told.feed_seq)
    resolved = resolve_next_cursor(page)
    return tick if resolved is None else replace(tick, next_cursor=max(resolved, tick.next_cursor))


def count(tick: DistillTick, entry: DistillEntry, settled: Settled, *, attempts: int = 1) -> DistillTick:
    """The tick with one more entry dealt with."""
    tick = replace(tick, processed=tick.processed + 1)
    if isinstance(settled, Wrote):
        return replace(tick, wrote=(*tick.wrote, settled))
    if isinstance(settled, Skip):
        return replace(tick, skipped=tick.skipped + 1)
    given_up = Poisoned(
        seq=entry.seq, version_id=entry.version_id, reason=poison_reason(settled), attempts=attempts
    )
    return replace(tick, poisoned=(*tick.poisoned, given_up))


def poison_reason(settled: Poison | Failed) -> str:
    return clip(settled.reason or "") or UNSAID


def reason_of(error: Exception) -> str:
    """What went wrong, in few words."""
    if isinstance(error, MemoryError):
        return clip(f"{error.code}: {error.message}")
    return clip(f"{type(error).__name__}: {error}".rstrip(": "))


def clip(text: str) -> str:
    """One line that a database can keep."""
    return " ".join(text.replace("\x00", " ").split()).encode("utf-8", "replace").decode()[:REASON_CHARS]
