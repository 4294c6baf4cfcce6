"""Where a distiller keeps how far it is, and who may work on it. Stores: :mod:`.postgres` and :mod:`.file`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

LEASE_SECONDS = 60.0
FAILURES_READ = 100
"""Failures that wait to be tried again, of one claim of a cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Whose cursor: an agent that reads a tenant's feed as a principal."""

    tenant_id: str
    principal_id: str
    agent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorState:
    """``waits``: for so many seconds nothing is tried, after a failure. ``dead``: entries that were given up."""

    position: int = 0
    held: bool = False
    waits: float = 0.0
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An entry that was given up."""

    seq: int
    version_id: str
    attempts: int
    reason: str
    failed_at: datetime


class CursorLease(Protocol):
    """A cursor that is this process's for now. Every call raises ``LeaseLostError`` once it is not.

    What a holder that died had begun is begun again by the next one; what it had settled is not.
    """

    @property
    def position(self) -> int:
        """When it was taken."""
        ...

    @property
    def attempts(self) -> Mapping[int, int]:
        """Entries that failed and are to be tried again: how often they did, by number, in order."""
        ...

    @property
    def seconds(self) -> float:
        """How long it is held without being renewed."""
        ...

    async def renew(self) -> None: ...

    async def settle(self, seq: int) -> None:
        """Everything up to ``seq`` is dealt with, and it is no failure."""

    async def fail(
        self, *, seq: int, version_id: str, attempts: int, reason: str, dead: bool, wait_seconds: float
    ) -> None:
        """An entry failed. ``dead``: it was the last time, and the ones after it go on."""

    async def wait(self, seconds: float) -> None:
        """Nothing can be done for so long, and nobody counts that."""

    async def release(self) -> None:
        """Let others have it; does not raise."""


class CursorStore(Protocol):
    """Cursors, each held by one at a time."""

    async def claim(
        self, consumer: Consumer, *, after: int = 0, impatient: bool = False
    ) -> CursorLease | None:
        """The cursor; one that is not there begins at ``after``. None: somebody has it, or (unless ``impatient``)
        it waits after a failure."""
        ...

    async def state(self, consumer: Consumer) -> CursorState: ...

    async def failures(
        self, consumer: Consumer, *, after: int = 0, limit: int = FAILURES_READ
    ) -> Sequence[Failure]:
        """What was given up, numbered above ``after``, in order."""
        ...

    async def retry(self, consumer: Consumer, seqs: Sequence[int] | None = None) -> int:
        """Have what was given up tried again, all or some; how many."""
        ...

    async def move(self, consumer: Consumer, position: int) -> bool:
        """Go on behind ``position`` next; False while somebody holds the cursor."""
        ...
