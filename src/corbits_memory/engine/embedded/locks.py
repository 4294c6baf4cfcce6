"""File locks that the kernel drops when their holder dies."""

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from corbits_memory.engine.embedded.account import Account
from corbits_memory.errors import EmbeddedPostgresError

POLL_SECONDS = 0.01

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class FileLock:
    """An open lock file. Two of them exclude each other, in one process and in several.

    A child process that inherits the descriptor shares the lock: it is free when the last copy is closed.
    """

    def __init__(self, path: Path, *, account: Account) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(path, flags, 0o600)
        account.give_to_owner_of(path.parent, self.fd)

    def try_shared(self) -> bool:
        """Take the lock beside other shared holders; False when somebody holds it exclusively."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock alone; False when anybody holds it."""
        return self._try(fcntl.LOCK_EX)

    def wait_shared(self, *, seconds: float) -> bool:
        return self._wait(fcntl.LOCK_SH, seconds)

    def wait_exclusive(self, *, seconds: float) -> bool:
        return self._wait(fcntl.LOCK_EX, seconds)

    def close(self) -> None:
        """Let go, unless a child process still has the descriptor. Closing twice is fine."""
        # Closing, not LOCK_UN: unlocking would take the lock from a forked child too.
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _wait(self, kind: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._try(kind):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self.fd, kind | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in _BUSY:
                return False
            raise EmbeddedPostgresError(
                f"The file system of {self.path.parent} can't lock files ({exc.strerror}). "
                "Put the data directory on a local disk."
            ) from exc
        return True
