"""Postgres' own record of its running server: ``postmaster.pid``."""

from dataclasses import dataclass
from pathlib import Path

NAME = "postmaster.pid"


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    """``socket_dir`` is None until the server listens; ``ready`` once it takes connections."""

    pid: int
    port: int | None = None
    socket_dir: str | None = None
    host: str | None = None
    ready: bool = False


def read_pid_file(cluster: Path) -> PidFile | None:
    """What ``postmaster.pid`` says; None when it is missing or says nothing usable (a crash cut it short)."""
    try:
        text = (cluster / NAME).read_text(errors="replace")
    except FileNotFoundError:
        return None
    return parse_pid_file(text)


def parse_pid_file(text: str) -> PidFile | None:
    """Lines: pid, data directory, start time, port, socket folder, TCP address, shared memory, status."""
    lines = [line.strip() for line in text.splitlines()] + [""] * 8
    # A stand-alone backend writes its pid as a negative number.
    if not lines[0].lstrip("-").isdecimal() or int(lines[0]) == 0:
        return None
    return PidFile(
        pid=abs(int(lines[0])),
        port=int(lines[3]) if lines[3].isdecimal() else None,
        socket_dir=lines[4] or None,
        host=lines[5] or None,
        ready=lines[7] == "ready",
    )


def runs_on(pid: int, cluster: Path) -> bool:
    """Whether process ``pid`` is a Postgres server on ``cluster``: every one works in its data directory."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.name() == "postgres" and Path(process.cwd()) == cluster
    except psutil.Error:
        # Gone, a zombie, or somebody else's: then not ours.
        return False
