"""What goes wrong while distilling; all else is of :mod:`corbits_memory.errors`."""

from corbits_memory.distiller.entries import DistillTick
from corbits_memory.errors import MemoryError, UnavailableError


class DistillUnavailableError(UnavailableError):
    """The inference can't work now; nothing is wrong with the entry, which waits."""

    code = "distill_unavailable"


class DistillAnswerError(MemoryError):
    """The inference answered with something that is no claim; the message says what, without quoting it."""

    status = 502
    code = "distill_answer"


class TickAbortedError(MemoryError):
    """A tick broke off before its page was done. ``tick`` is what was dealt with: go on at its cursor."""

    code = "tick_aborted"

    def __init__(self, message: str, *, tick: DistillTick) -> None:
        super().__init__(message)
        self.tick = tick


class LeaseLostError(MemoryError):
    """Another distiller has the cursor by now; it goes on where this one was."""

    status = 409
    code = "lease_lost"
