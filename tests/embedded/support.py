"""Processes and system facts that the tests of the embedded server need."""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg

from corbits_memory.engine.embedded import sockets
from corbits_memory.engine.embedded.layout import Layout

REPO = Path(__file__).parents[2]
SECONDS = 30.0


class User:
    """A process that runs :mod:`tests.embedded.user`."""

    def __init__(
        self,
        data_dir: Path,
        *,
        prefix: Sequence[str] = (),
        python: str = sys.executable,
        environ: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        path = os.pathsep.join([str(REPO), *(entry for entry in sys.path if entry)])
        self.process = subprocess.Popen(
            [*prefix, python, "-m", "tests.embedded.user", str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(environ or {})},
            **popen,
        )

    def hear(self) -> Any:
        """The process's next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with code {self.process.wait()}"
        return json.loads(line)

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self) -> None:
        """End it as the kernel would, without a chance to tidy up."""
        self.process.kill()
        self.close()

    def close(self) -> int:
        """Let it come to its end; its exit code."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return self.process.wait(SECONDS)


def query(url: str, statement: str) -> Any:
    """The first value that ``statement`` answers."""
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def wait_until(condition: Callable[[], object], *, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def fake_programs(folder: Path, *, initdb: str = "exit 0", version: str = "18.6") -> Path:
    """A folder for ``PG_BIN`` whose initdb is a shell script, and whose postgres only tells its version."""
    folder.mkdir()
    for name, script in {"initdb": initdb, "postgres": f"echo 'postgres (PostgreSQL) {version}'"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


def servers(data_dir: Path) -> list[psutil.Process]:
    """The Postgres processes that work in ``data_dir``."""
    return [p for p in psutil.process_iter() if _cwd(p).is_relative_to(data_dir)]


def account(process: psutil.Process) -> int | None:
    """The user id that a process works as; None where it has ended meanwhile, as autovacuum's do."""
    try:
        return int(process.uids().effective)
    except psutil.NoSuchProcess:
        return None


def guardians(data_dir: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter() if _is_guardian(p, data_dir)]


def kill_all(data_dir: Path) -> None:
    """Kill every server and guardian of ``data_dir``, the guardians first: they would restart the server."""
    for process in [*guardians(data_dir), *servers(data_dir)]:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    wait_until(lambda: not servers(data_dir))
    shutil.rmtree(sockets.short_socket_dir(Layout.of(data_dir)), ignore_errors=True)


def _cwd(process: psutil.Process) -> Path:
    try:
        return Path(process.cwd() or "/")
    except psutil.Error:
        return Path("/")


def _is_guardian(process: psutil.Process, data_dir: Path) -> bool:
    try:
        words = process.cmdline()
        alive = process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
    return (
        alive
        and any(word.startswith(str(data_dir)) for word in words)
        and any(word.endswith("guardian.py") for word in words)
    )


@functools.cache
def can_mount() -> bool:
    """Whether a mount namespace of our own may be made."""
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def with_tmpfs(folder: Path | str, options: str) -> list[str]:
    """Words before a command that run it where a tmpfs with ``options`` lies over ``folder``."""
    script = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", options, str(folder)]
