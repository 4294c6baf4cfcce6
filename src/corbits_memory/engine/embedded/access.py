"""How the server reaches folders that it can't name: root's, and those with very long paths."""

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from corbits_memory.engine.embedded.account import Account
from corbits_memory.errors import EmbeddedPostgresError

PATH_BYTES_MAX = 900
"""Longest path of a data directory given by name: Postgres appends to it, and stops at 1,024."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A folder's name for the server, and the open descriptor that the name stands on, if any.

    A folder below one that only root may enter, such as /root, is opened by root and handed down:
    ``/proc/self/fd/N`` leads straight into it, and no parent's permissions need to change. So is one whose
    path is longer than Postgres takes.
    """

    path: str
    fd: int | None = None

    @classmethod
    def into(cls, folder: Path, account: Account) -> Self:
        """:raises EmbeddedPostgresError: the server's user can't get there on this system."""
        reachable = account.can_reach(folder.parent)
        # Postgres records its path on one line.
        nameable = len(os.fsencode(folder)) <= PATH_BYTES_MAX and "\n" not in str(folder)
        if reachable and nameable:
            return cls(str(folder))
        if sys.platform != "linux":
            problem = (
                "has a path too long for Postgres, or with a line break"
                if reachable
                else f"is below one that {account.name!r}, who runs Postgres in place of root, may not enter"
            )
            raise EmbeddedPostgresError(
                f"The folder {folder} {problem}. Name another directory with --data-dir."
            )
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return cls(f"/proc/self/fd/{fd}", fd)

    @property
    def fds(self) -> tuple[int, ...]:
        """What a child process must inherit."""
        return () if self.fd is None else (self.fd,)

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def is_private(folder: Path, uid: int) -> bool:
    """Whether ``folder`` is a real folder of user ``uid`` that nobody else may enter."""
    status = folder.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == uid
        and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )
