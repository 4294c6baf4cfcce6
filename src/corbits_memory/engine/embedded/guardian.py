"""The server's parent process: restarts it when it was killed, stops it when nobody uses it any more.

Run as a script, with nothing but the standard library and in its own session, so that neither the
terminal's Ctrl-C nor the death of whoever started it reaches the server. Standard input holds an
:class:`Order` as JSON; standard error is the server's log.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

RESTARTS_MAX = 3
RESTARTS_SECONDS = 60.0
ORPHANS_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run. Descriptors are inherited; ``scratch_dir`` is removed in the end."""

    command: list[str]
    environment: dict[str, str]
    uid: int | None
    gid: int | None
    pid_file: str
    lease_lock: str
    server_lock: str
    server_lock_fd: int
    data_fd: int | None
    report_fd: int
    socket_dir: str
    scratch_dir: str | None

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Guardian:
    """One server's guardian. The main thread waits for the server, another for the lease."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.stopping = threading.Event()
        self.alone = False
        self.mutex = threading.Lock()
        self.server: subprocess.Popen[bytes] | None = None
        self.deaths: deque[float] = deque(maxlen=RESTARTS_MAX + 1)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self.on_signal)
        signal.signal(signal.SIGINT, self.on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        lock_fd: int | None = self.order.server_lock_fd
        lease_fd = open_lock(self.order.lease_lock)
        threading.Thread(target=self.wait_for_lease, args=(lease_fd,), daemon=True).start()
        while lock_fd is not None and not self.stopping.is_set():
            code = self.serve(lock_fd)
            # Only a server that something killed comes back. One that ended by itself had its reasons.
            if code >= 0 or self.dies_too_often():
                break
            lock_fd = self.wait_for_orphans()
        self.clean_up()

    def serve(self, lock_fd: int) -> int:
        """Run the server until it ends; its exit code, negative when a signal killed it."""
        with self.mutex:
            self.server = self.launch(lock_fd)
        # From here on only the server and its children hold the lock.
        os.close(lock_fd)
        if self.stopping.is_set():
            self.stop_server()
        code = self.server.wait()
        self.report(f"exited {code}")
        return code

    def launch(self, lock_fd: int) -> subprocess.Popen[bytes]:
        order = self.order
        environment = dict(order.environment)
        if stale := stale_pid(Path(order.pid_file)):
            # The lock says that the recorded server is dead, so this pid is a zombie's or a stranger's;
            # Postgres passes over its grandparent's pid. It still checks the shared memory.
            environment["PG_GRANDPARENT_PID"] = stale
        fds = [lock_fd] if order.data_fd is None else [lock_fd, order.data_fd]
        return subprocess.Popen(  # noqa: S603 - the supervisor's order
            order.command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=fds,
            user=order.uid,
            group=order.gid,
            extra_groups=None if order.uid is None else [],
        )

    def wait_for_lease(self, lease_fd: int) -> None:
        """Get the lease alone, which means that nobody uses the server, and stop it.

        The lease is kept until this process ends: whoever comes now waits, and then starts anew.
        """
        fcntl.flock(lease_fd, fcntl.LOCK_EX)
        self.alone = True
        self.stopping.set()
        self.stop_server()

    def stop_server(self) -> None:
        """Ask for a fast shutdown: sessions end, everything is written."""
        with self.mutex:
            if self.server is not None:
                self.server.send_signal(signal.SIGINT)

    def on_signal(self, number: int, frame: object) -> None:
        self.stopping.set()
        # Not stop_server(): the main thread, which runs this, may hold the mutex.
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)

    def dies_too_often(self) -> bool:
        self.deaths.append(time.monotonic())
        return len(self.deaths) > RESTARTS_MAX and self.deaths[-1] - self.deaths[0] < RESTARTS_SECONDS

    def wait_for_orphans(self) -> int | None:
        """Take the server's lock when the dead server's children are gone too; None when they stay."""
        fd = open_lock(self.order.server_lock)
        deadline = time.monotonic() + ORPHANS_SECONDS
        while time.monotonic() < deadline and not self.stopping.is_set():
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
                continue
            remove_sockets(self.order.socket_dir)
            return fd
        os.close(fd)
        return None

    def report(self, line: str) -> None:
        # Nobody listens any more once the start is over.
        with contextlib.suppress(OSError):
            os.write(self.order.report_fd, f"{line}\n".encode())

    def clean_up(self) -> None:
        # Without the lease, somebody may be starting a server there again.
        if self.order.scratch_dir is not None and self.alone:
            with contextlib.suppress(OSError):
                Path(self.order.scratch_dir).rmdir()


def open_lock(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)


def stale_pid(pid_file: Path) -> str | None:
    """The pid that a dead server left; a file without one is removed, because Postgres would refuse it."""
    try:
        lines = pid_file.read_text(errors="replace").split()
    except FileNotFoundError:
        return None
    if lines and lines[0].lstrip("-").isdecimal() and int(lines[0]) != 0:
        return lines[0].lstrip("-")
    pid_file.unlink()
    return None


def remove_sockets(folder: str) -> None:
    for leftover in Path(folder).glob(".s.PGSQL.*"):
        leftover.unlink(missing_ok=True)


def main() -> None:
    order = Order(**json.loads(sys.stdin.read()))
    # The starter waits for this process only; the guardian goes on as a child of init.
    if os.fork() != 0:
        os._exit(0)
    guardian = Guardian(order)
    try:
        guardian.run()
    except OSError as exc:
        guardian.report(f"failed {exc}")
        raise


if __name__ == "__main__":
    main()
