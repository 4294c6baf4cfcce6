"""Settings for a server that lives on a laptop or in a small container."""

import os
import sys
from pathlib import Path

MIB = 1024 * 1024

SHM_ENOUGH = 1024 * MIB
"""Free bytes in /dev/shm from which parallel workers may share memory there. Containers get 64 MB."""

_SHM = Path("/dev/shm")  # noqa: S108 - looked at, never written
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def cluster_defaults(*, memory: int) -> dict[str, str]:
    """What initdb writes into ``postgresql.conf``, where the operator may change it; ``memory`` in bytes."""
    maintenance = min(max(memory // 16, 64 * MIB), 512 * MIB)
    # A search in 100,000 chunks reads from some 400 MB: what isn't kept here is copied from the system's cache.
    shared = min(max(memory // 16, 128 * MIB), 1024 * MIB)
    return {
        "shared_buffers": f"{shared // MIB}MB",
        "max_connections": "100",
        "maintenance_work_mem": f"{maintenance // MIB}MB",
        "max_parallel_maintenance_workers": "2",
        "max_parallel_workers_per_gather": "1",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_checkpoints": "off",
        # Statements and details of errors hold the text of documents, which no log may.
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }


def start_options(*, socket_dir: str, tcp_port: int | None) -> dict[str, str]:
    """What each start decides anew, on the command line."""
    options = {
        "listen_addresses": "" if tcp_port is None else "localhost",
        "unix_socket_directories": socket_dir,
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    if tcp_port is not None:
        options["port"] = str(tcp_port)
    if shm_free() < SHM_ENOUGH:
        # A parallel index build shares maintenance_work_mem: more than a container's /dev/shm holds.
        options["dynamic_shared_memory_type"] = "mmap"
    return options


def shm_free(folder: Path = _SHM) -> int:
    """Free bytes in /dev/shm; other systems than Linux keep shared memory elsewhere and have enough."""
    try:
        status = os.statvfs(folder)
    except FileNotFoundError:
        return 0 if sys.platform == "linux" else SHM_ENOUGH
    return status.f_bavail * status.f_frsize


def usable_memory() -> int:
    """The machine's memory or the container's limit, whichever is less, in bytes."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        # "max" means no limit.
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)
