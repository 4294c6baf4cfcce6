"""What can be known before, or beside, starting a server."""

import difflib
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from corbits_memory.errors import EmbeddedPostgresError

NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "drvfs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "orangefs", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf",
})  # fmt: skip
"""Where locks or ``fsync`` may not mean what they say, so that a database can be damaged."""

MEMORY_FILE_SYSTEMS = frozenset({"ramfs", "tmpfs"})
LAYER_FILE_SYSTEMS = frozenset({"aufs", "overlay"})

_MOUNTS = Path("/proc/mounts")
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

_RIGHT_NAME = "DATABASE_URL"
_NOT_MISSPELT = frozenset({_RIGHT_NAME, "DATABASE_READ_URL"})
_SYNONYMS = frozenset({
    "CORBITS_MEMORY_DATABASE_URL", "DATABASE_DSN", "DATABASE_URI", "DATABASE", "DB_DSN", "DB_URI", "DB_URL",
    "PGURL", "PG_DSN", "PG_URI", "PG_URL", "POSTGRESQL_DSN", "POSTGRESQL_URI", "POSTGRESQL_URL",
    "POSTGRES_DSN", "POSTGRES_URI", "POSTGRES_URL",
})  # fmt: skip
_ALIKE = 0.85
_POSTGRES_SCHEMES = ("postgres:", "postgresql:", "postgresql+")


@dataclass(frozen=True, slots=True)
class Mount:
    point: Path
    kind: str


def parse_mounts(text: str) -> list[Mount]:
    """The mounts of ``/proc/mounts``, in which spaces and the like are octal escapes."""
    mounts = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3:
            mounts.append(Mount(Path(_unescape(fields[1])), fields[2]))
    return mounts


def mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that holds ``path`` (absolute): the deepest, and of several on one point the last."""
    found: Mount | None = None
    for mount in mounts:
        deeper = found is None or len(mount.point.parts) >= len(found.point.parts)
        if deeper and path.is_relative_to(mount.point):
            found = mount
    return found


def refuse_unsupported(data_dir: Path) -> None:
    """:raises EmbeddedPostgresError: this system or the directory's file system can't carry the server."""
    if sys.platform == "win32":
        raise EmbeddedPostgresError(
            "The embedded Postgres does not run on Windows yet. Set DATABASE_URL to a Postgres 15 or newer "
            "with pgvector, or use WSL."
        )
    if not os.environ.get("PG_BIN", "").strip():
        refuse_musl(platform.libc_ver()[0], str(sysconfig.get_config_var("HOST_GNU_TYPE")))
    refuse_network(data_dir.expanduser().resolve(), _system_mounts())


def refuse_musl(libc: str, host_type: str) -> None:
    """:raises EmbeddedPostgresError: the C library is musl, for which there are no bundled programs."""
    if libc == "musl" or host_type.endswith("musl"):
        raise EmbeddedPostgresError(
            "The bundled Postgres needs glibc, and this system (Alpine?) has musl. Use a Debian-based image; "
            "or install Postgres and pgvector here and let PG_BIN name the folder with initdb and postgres; "
            "or set DATABASE_URL."
        )


def refuse_network(data_dir: Path, mounts: Iterable[Mount]) -> None:
    """:raises EmbeddedPostgresError: ``data_dir`` lies on a network file system."""
    mount = mount_of(data_dir, mounts)
    if mount is not None and mount.kind in NETWORK_FILE_SYSTEMS:
        raise EmbeddedPostgresError(
            f"The data directory {data_dir} is on a network file system ({mount.kind}, mounted at "
            f"{mount.point}), where a database can be damaged. Name a directory on a local disk with "
            "--data-dir, or run Postgres on the machine that has the disk and set DATABASE_URL."
        )


def persistence_warning(
    path: Path, *, mounts: Iterable[Mount] | None = None, in_container: bool | None = None
) -> str | None:
    """Why data under ``path`` won't last, when it won't: memory, or a container's throw-away layer."""
    path = path.expanduser().resolve()
    mount = mount_of(path, _system_mounts() if mounts is None else mounts)
    if mount is None:
        return None
    if mount.kind in MEMORY_FILE_SYSTEMS:
        return (
            f"{path} is kept in memory ({mount.kind}) and gone after a restart. "
            "Name a directory on a disk with --data-dir."
        )
    if in_container is None:
        in_container = any(mark.exists() for mark in _CONTAINER_MARKS)
    if mount.kind in LAYER_FILE_SYSTEMS or (in_container and mount.point == Path("/")):
        return (
            f"{path} is on the container's own layer and gone when the container is removed. "
            "Mount a volume there, or name a directory on a volume with --data-dir."
        )
    return None


def misspelt_database_url(environ: Mapping[str, str]) -> str | None:
    """The name of a variable that was probably meant to be ``DATABASE_URL``, when that is not set."""
    if environ.get(_RIGHT_NAME, "").strip():
        return None
    candidates = [name for name, value in environ.items() if _is_meant(name, value.strip())]
    return max(candidates, key=_likeness, default=None)


def _is_meant(name: str, value: str) -> bool:
    if not value or name in _NOT_MISSPELT:
        return False
    # Other names are common for other databases too: there the value must say Postgres.
    if name.upper() in _SYNONYMS:
        return value.lower().startswith(_POSTGRES_SCHEMES)
    return _likeness(name) >= _ALIKE and ("://" not in value or value.lower().startswith(_POSTGRES_SCHEMES))


def _likeness(name: str) -> float:
    return difflib.SequenceMatcher(None, name.upper(), _RIGHT_NAME).ratio()


def _system_mounts() -> list[Mount]:
    try:
        return parse_mounts(_MOUNTS.read_text(errors="replace"))
    except OSError:
        # Not Linux.
        return []


def _unescape(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
