"""Where the server's Unix socket lies."""

import contextlib
import hashlib
import os
import socket
from pathlib import Path

from corbits_memory.engine.embedded.access import is_private
from corbits_memory.engine.embedded.account import Account
from corbits_memory.engine.embedded.layout import Layout
from corbits_memory.errors import EmbeddedPostgresError

PORT = 5432
"""Part of the socket's name; no port is opened."""

PATH_BYTES_MAX = 103
"""Longest path of a socket: 107 bytes on Linux, 103 on macOS."""

# Not $TMPDIR or $XDG_RUNTIME_DIR: they differ between a service and a shell, and both must find the folder.
_SHORT = Path("/tmp")  # noqa: S108 - the folder in it is ours, private, and checked
_NAMES = 8


def socket_name(port: int) -> str:
    return f".s.PGSQL.{port}"


def make_socket_dir(layout: Layout, account: Account, *, port: int, short: Path = _SHORT) -> Path:
    """A private folder for the socket: in the data directory when the path is short enough and the server
    can reach it, else a short one below /tmp, named after a hash of the data directory.

    :raises EmbeddedPostgresError: somebody else has taken all the names.
    """
    if _fits(layout.run, port) and account.can_reach(layout.home):
        _make_private(layout.run, account)
        if is_private(layout.run, account.uid) and _holds_sockets(layout.run):
            return layout.run
    first = short_socket_dir(layout, short=short)
    for attempt in range(_NAMES):
        folder = first.with_name(f"{first.name}-{attempt}") if attempt else first
        _make_private(folder, account)
        if is_private(folder, account.uid):
            return folder
    raise EmbeddedPostgresError(
        f"The folder for the database's socket, {first}, belongs to somebody else or is "
        "open to others. Remove it, or name another directory with --data-dir."
    )


def short_socket_dir(layout: Layout, *, short: Path = _SHORT) -> Path:
    """The short folder's name, unless somebody else has taken it."""
    digest = hashlib.sha256(os.fsencode(layout.home)).hexdigest()[:16]
    return short / f"corbits-memory-{digest}"


def remove_short_socket_dir(layout: Layout) -> None:
    """Remove the short folder after use. Missing, not ours, or not empty: then it is none of our business."""
    with contextlib.suppress(OSError):
        short_socket_dir(layout).rmdir()


def _fits(folder: Path, port: int) -> bool:
    # Clients take a comma for the end of the path, and the server records it on one line.
    return (
        not {",", "\n"} & set(str(folder)) and len(os.fsencode(folder / socket_name(port))) <= PATH_BYTES_MAX
    )


def _make_private(folder: Path, account: Account) -> None:
    # What exists is judged by the caller, never changed.
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        account.take(folder)


def _holds_sockets(folder: Path) -> bool:
    # Folders that a container borrows from its host often can't.
    probe = folder / ".s.probe"
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(probe))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True
