"""Starting the server, and waiting until it answers."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from psycopg.pq import Ping

from corbits_memory.engine.embedded import guardian, settings, sockets
from corbits_memory.engine.embedded.access import Passage
from corbits_memory.engine.embedded.account import Account
from corbits_memory.engine.embedded.binaries import Binaries
from corbits_memory.engine.embedded.initdb import server_environment
from corbits_memory.engine.embedded.layout import Layout, disk_full, log_tail, open_log
from corbits_memory.engine.embedded.locks import FileLock
from corbits_memory.engine.embedded.pidfile import read_pid_file, runs_on
from corbits_memory.engine.embedded.urls import ping
from corbits_memory.errors import EmbeddedPostgresError

SILENCE_SECONDS = 60
"""How long a starting server may say nothing. One that replays its log after a crash says so, and has all the
time it needs."""

_POLL_SECONDS = 0.01
_GUARDIAN_SECONDS = 60

_REMEDIES = {
    "Address already in use": "The TCP port is taken: choose another one.",
    "already in use": "Processes of an earlier server still run: end them, then start again.",
    "still in use": "Processes of an earlier server still run: end them, then start again.",
    "Cannot allocate memory": "There is too little memory: give the machine or the container more.",
    "Permission denied": "The server's user may not read its files: make the cluster folder and all in it theirs.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, as whom, and how."""

    layout: Layout
    binaries: Binaries
    account: Account
    tcp_port: int | None
    options: Mapping[str, str]

    @property
    def port(self) -> int:
        return sockets.PORT if self.tcp_port is None else self.tcp_port


def launch_server(launch: Launch, server_lock: FileLock) -> None:
    """Start the server under a guardian and wait until it takes connections.

    ``server_lock`` must be held exclusively; the server inherits it.

    :raises EmbeddedPostgresError: it didn't start; the message ends with the last lines of its log.
    """
    _refuse_strangers(launch.layout)
    socket_dir = sockets.make_socket_dir(launch.layout, launch.account, port=launch.port)
    guardian.remove_sockets(str(socket_dir))
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(Passage.into(launch.layout.cluster, launch.account))
        log = stack.enter_context(open_log(launch.layout, launch.account))
        reports, reporter = (stack.enter_context(end) for end in _pipe())
        log_start = os.fstat(log.fileno()).st_size
        order = _order(launch, server_lock, data, socket_dir=socket_dir, report_fd=reporter.fileno())
        _spawn(order, launch.layout, log=log, fds=(server_lock.fd, reporter.fileno(), *data.fds))
        # Only the guardian has this end now: reading ends when it dies.
        reporter.close()
        trouble = _wait_until_ready(launch.layout, reports)
    if trouble is not None:
        sockets.remove_short_socket_dir(launch.layout)
        raise _start_error(launch.layout, trouble, log_tail(launch.layout, since=log_start))


def _refuse_strangers(layout: Layout) -> None:
    record = read_pid_file(layout.cluster)
    if record is not None and runs_on(record.pid, layout.cluster):
        raise EmbeddedPostgresError(
            f"A Postgres server that was started by other means (pid {record.pid}) runs on {layout.cluster}. "
            f"Stop it with: kill -INT {record.pid}"
        )


def _pipe() -> tuple[FileIO, FileIO]:
    reading, writing = os.pipe()
    return FileIO(reading, "r"), FileIO(writing, "w")


def _order(
    launch: Launch, server_lock: FileLock, data: Passage, *, socket_dir: Path, report_fd: int
) -> guardian.Order:
    layout, account = launch.layout, launch.account
    options = settings.start_options(socket_dir=str(socket_dir), tcp_port=launch.tcp_port) | dict(
        launch.options
    )
    settings_given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return guardian.Order(
        command=[str(launch.binaries.postgres), "-D", data.path, *settings_given],
        environment=server_environment(),
        uid=account.uid if account.switch else None,
        gid=account.gid if account.switch else None,
        pid_file=str(layout.cluster / "postmaster.pid"),
        lease_lock=str(layout.lease_lock),
        server_lock=str(layout.server_lock),
        server_lock_fd=server_lock.fd,
        data_fd=data.fd,
        report_fd=report_fd,
        socket_dir=str(socket_dir),
        scratch_dir=None if socket_dir == layout.run else str(socket_dir),
    )


def _spawn(order: guardian.Order, layout: Layout, *, log: BinaryIO, fds: tuple[int, ...]) -> None:
    # The home folder is there for whoever reads the process list.
    command = [sys.executable, "-I", "-S", guardian.__file__, str(layout.home)]
    try:
        subprocess.run(  # noqa: S603 - our own script
            command,
            input=order.to_json().encode(),
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=server_environment(),
            cwd="/",
            pass_fds=fds,
            start_new_session=True,
            timeout=_GUARDIAN_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise EmbeddedPostgresError(
            f"The process that watches over Postgres can't be started with {sys.executable}: {exc}. "
            f"Its log is {layout.log}."
        ) from exc


def _wait_until_ready(layout: Layout, reports: FileIO) -> str | None:
    """None once the server takes connections, else what went wrong."""
    heard = time.monotonic()
    while time.monotonic() - heard < SILENCE_SECONDS:
        if select.select([reports], [], [], _POLL_SECONDS)[0]:
            said = (reports.read(4096) or b"").decode(errors="replace").strip()
            return said.replace("\n", ", ") or "its guardian was killed"
        # The record alone won't do: a dead server's may still say that it is ready.
        answer = ping(read_pid_file(layout.cluster))
        if answer == Ping.OK:
            return None
        if answer == Ping.REJECT:
            heard = time.monotonic()
    return f"it has not answered for {SILENCE_SECONDS} s"


def _is_full(folder: Path) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize < settings.MIB


def _start_error(layout: Layout, trouble: str, tail: str) -> EmbeddedPostgresError:
    if "No space left on device" in tail or _is_full(layout.home):
        # Then the log may not even hold the reason.
        return disk_full(layout.home)
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in f"{trouble}\n{tail}"), None)
    message = f"The embedded Postgres in {layout.home} did not start ({trouble})."
    if remedy is not None:
        message += f" {remedy}"
    shown = "\n".join(f"  {line}" for line in tail.splitlines()) or "  (nothing)"
    return EmbeddedPostgresError(f"{message} The end of its log, {layout.log}:\n{shown}")
