"""What lies where in a data directory, and how it comes to be."""

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from corbits_memory.engine.embedded.account import Account
from corbits_memory.errors import EmbeddedPostgresError

LOG_BYTES_MAX = 8 * 1024 * 1024
LOG_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths in one data directory; ``home`` is absolute and free of symbolic links."""

    home: Path

    @classmethod
    def of(cls, data_dir: Path) -> "Layout":
        return cls(data_dir.expanduser().resolve())

    @property
    def cluster(self) -> Path:
        """Postgres' own files."""
        return self.home / "cluster"

    @property
    def staging_prefix(self) -> str:
        """How the names of unfinished clusters begin."""
        return "cluster.init-"

    @property
    def run(self) -> Path:
        """The socket's folder, where the path is short enough for one."""
        return self.home / "run"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def password(self) -> Path:
        """The superuser's password for TCP, when TCP was ever asked for."""
        return self.home / "password"

    @property
    def start_lock(self) -> Path:
        return self.home / "start.lock"

    @property
    def lease_lock(self) -> Path:
        return self.home / "lease.lock"

    @property
    def server_lock(self) -> Path:
        return self.home / "server.lock"


def make_home(layout: Layout) -> None:
    """Create the data directory when it is missing; nothing that exists changes.

    :raises EmbeddedPostgresError: it can't be created or written.
    """
    home = layout.home
    # Root's folder lets the server's user pass on to the cluster, and nobody look around.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        if not home.is_dir():
            home.mkdir(mode=mode, exist_ok=True)
            home.chmod(mode)
        foreign = (home / "PG_VERSION").exists()
    except OSError as exc:
        raise unwritable(home, exc) from exc
    if foreign:
        raise EmbeddedPostgresError(
            f"{home} is a Postgres cluster of its own, not a data directory of Corbits Memory. "
            "Name another directory with --data-dir, or run that cluster yourself and set DATABASE_URL."
        )


def unwritable(path: Path, exc: OSError) -> EmbeddedPostgresError:
    """The error that says why ``path`` can't hold the data, and what to do."""
    if exc.errno == errno.ENOSPC:
        return disk_full(path)
    where = f": {exc.filename}" if exc.filename and str(exc.filename) != str(path) else ""
    return EmbeddedPostgresError(
        f"The data directory {path} can't be created or written by the user with id {os.geteuid()} "
        f"({exc.strerror}{where}). Name another directory with --data-dir, or change the owner of this one."
    )


def disk_full(path: Path) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"The disk that holds {path} is full. Free some space (a new data directory takes about 100 MB), "
        "or name a directory on another disk with --data-dir."
    )


def open_log(layout: Layout, account: Account) -> BinaryIO:
    """Open the server's log for appending; a large one is put aside first."""
    with contextlib.suppress(FileNotFoundError):
        if layout.log.stat().st_size > LOG_BYTES_MAX:
            layout.log.replace(layout.log.with_suffix(".log.1"))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.fdopen(os.open(layout.log, flags, 0o600), "ab")
    account.give_to_owner_of(layout.home, log.fileno())
    return log


def log_tail(layout: Layout, *, since: int = 0) -> str:
    """The log's last lines, of those written after byte ``since``."""
    try:
        with layout.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(min(since, size), size - 16_384))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
