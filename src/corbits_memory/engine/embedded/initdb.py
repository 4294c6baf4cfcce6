"""Making a new cluster, whole or not at all."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from corbits_memory.engine.embedded import settings
from corbits_memory.engine.embedded.access import Passage
from corbits_memory.engine.embedded.account import Account
from corbits_memory.engine.embedded.binaries import Binaries
from corbits_memory.engine.embedded.layout import Layout, disk_full, unwritable
from corbits_memory.errors import EmbeddedPostgresError

SUPERUSER = "postgres"

LOCALES = ("C.UTF-8", "en_US.UTF-8")
"""The system's locales to try. Under plain C, the text search parser takes “quoted” words, dashes and
``，。`` for parts of words."""

_SECONDS = 300


def create_cluster(layout: Layout, binaries: Binaries, account: Account) -> None:
    """Run initdb under a temporary name and rename the result. The start lock must be held.

    :raises EmbeddedPostgresError: initdb failed; nothing of it is left.
    """
    remove_leftovers(layout)
    staging = _make_staging(layout, account)
    try:
        _run_initdb(staging, binaries, account)
        staging.rename(layout.cluster)
        _sync_folder(layout.home)
    except BaseException:
        # Interrupted as well: the next start must not find half a cluster.
        shutil.rmtree(staging, ignore_errors=True)
        raise


def remove_leftovers(layout: Layout) -> None:
    """Remove what interrupted attempts left behind."""
    for leftover in layout.home.glob(f"{layout.staging_prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def check_version(layout: Layout, binaries: Binaries) -> None:
    """:raises EmbeddedPostgresError: the cluster is another major version's, or not readable as one."""
    try:
        found = (layout.cluster / "PG_VERSION").read_text().strip()
    except OSError as exc:
        raise EmbeddedPostgresError(
            f"{layout.cluster} is not a whole Postgres cluster: its PG_VERSION can't be read ({exc.strerror}). "
            "Bring it back from a backup, or name another directory with --data-dir."
        ) from exc
    ours = binaries.major()
    if found != str(ours):
        raise EmbeddedPostgresError(
            f"{layout.cluster} was made by Postgres {found}, and the programs in {binaries.folder} are "
            f"Postgres {ours}. Let PG_BIN name the programs of Postgres {found}; or dump the data with their "
            f"pg_dump and restore it into a new data directory with Postgres {ours}."
        )


def _make_staging(layout: Layout, account: Account) -> Path:
    try:
        staging = Path(tempfile.mkdtemp(prefix=layout.staging_prefix, dir=layout.home))
    except OSError as exc:
        raise unwritable(layout.home, exc) from exc
    account.take(staging)
    return staging


def _run_initdb(staging: Path, binaries: Binaries, account: Account) -> None:
    said = ""
    for locale in LOCALES:
        with Passage.into(staging, account) as passage:
            done = _run(_command(binaries, passage.path, locale), account, passage)
        if done.returncode == 0:
            return
        said = (done.stderr or done.stdout).strip()
        if "invalid locale" not in said:
            break
    raise _failure(staging, account, said)


def _command(binaries: Binaries, path: str, locale: str) -> list[str]:
    command = [
        str(binaries.initdb),
        f"--pgdata={path}",
        f"--username={SUPERUSER}",
        "--encoding=UTF8",
        f"--locale={locale}",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        # The socket's folder lets in only the server's user and root.
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--no-instructions",
    ]
    defaults = settings.cluster_defaults(memory=settings.usable_memory())
    return [*command, *(f"--set={name}={value}" for name, value in defaults.items())]


def _run(command: list[str], account: Account, passage: Passage) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the operator's own program
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=server_environment(),
            cwd="/",
            pass_fds=passage.fds,
            timeout=_SECONDS,
            check=False,
            **account.popen_options(),
        )
    except subprocess.TimeoutExpired as exc:
        raise EmbeddedPostgresError(
            f"initdb took more than {_SECONDS} s. Put the data directory on a faster disk with --data-dir."
        ) from exc
    except (OSError, subprocess.SubprocessError) as exc:
        raise EmbeddedPostgresError(
            f"{command[0]} can't be run as the user {account.name!r}: {exc}. "
            "Start Corbits Memory as an ordinary user, or set DATABASE_URL."
        ) from exc


def _failure(staging: Path, account: Account, said: str) -> EmbeddedPostgresError:
    if "No space left on device" in said:
        return disk_full(staging.parent)
    if "could not look up effective user ID" in said:
        remedy = (
            f"Give {account.name} a line in /etc/passwd, start as a user who has one, or set DATABASE_URL."
        )
    else:
        remedy = "Mend what it names, or set DATABASE_URL to a Postgres of your own."
    tail = "\n".join(said.splitlines()[-10:])
    return EmbeddedPostgresError(
        f"initdb can't make a database in {staging.parent}. {remedy} It says:\n{tail}"
    )


def server_environment() -> dict[str, str]:
    """What Postgres' programs see of our environment: no PG* variable, and messages in English."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": os.defpath} | kept | {"LC_MESSAGES": "C", "TZ": "UTC"}


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
