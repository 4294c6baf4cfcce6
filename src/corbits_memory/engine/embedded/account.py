"""The operating system's user that the server runs as.

Postgres refuses to run as root. Started by root, it runs as an unprivileged user that exists already.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corbits_memory.errors import EmbeddedPostgresError

STAND_INS = ("postgres", "nobody")
"""Users to run as when root starts the server on a directory that is root's, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """``switch`` is true when we are root and the server must become this user."""

    uid: int
    gid: int
    name: str
    switch: bool

    def popen_options(self) -> Mapping[str, Any]:
        """Keyword arguments that make :class:`subprocess.Popen` run a program as this user."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def take(self, path: Path) -> None:
        """Make ``path`` this user's own."""
        if not self.switch:
            return
        try:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)
        except PermissionError as exc:
            raise EmbeddedPostgresError(
                f"This root can't give {path} to the user {self.name!r} (CAP_CHOWN is missing), and Postgres "
                "doesn't run as root. Start Corbits Memory as an ordinary user, or set DATABASE_URL."
            ) from exc

    def give_to_owner_of(self, folder: Path, fd: int) -> None:
        """What root creates in somebody's folder becomes theirs, so that they can use it later without root."""
        if not self.switch:
            return
        owner = folder.stat()
        if owner.st_uid != 0:
            os.fchown(fd, owner.st_uid, owner.st_gid)

    def can_reach(self, path: Path) -> bool:
        """Whether this user may enter ``path`` and every folder above it, by their mode bits.

        Access lists are not looked at: whoever only they let in counts as kept out.
        """
        if not self.switch:
            return True
        return all(self.may(folder, stat.S_IXOTH) for folder in (path, *path.parents))

    def may(self, path: Path, bits: int) -> bool:
        """Whether the mode of ``path`` grants this user ``bits``, given as those of "others"."""
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        wanted = bits << shift
        return status.st_mode & wanted == wanted


def server_account(folders: Sequence[Path]) -> Account:
    """Who runs the server: ourselves; when we are root, the first owner of ``folders`` who is not root, else
    a stand-in.

    :raises EmbeddedPostgresError: we are root and there is no such user.
    """
    import pwd

    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), name=_name(os.geteuid()), switch=False)
    for folder in folders:
        if folder.exists() and (owner := folder.stat()).st_uid != 0:
            return Account(uid=owner.st_uid, gid=owner.st_gid, name=_name(owner.st_uid), switch=True)
    for name in STAND_INS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=name, switch=True)
    raise EmbeddedPostgresError(
        f"Postgres doesn't run as root, and none of the users {', '.join(STAND_INS)} exists to run it as. "
        "Start Corbits Memory as an ordinary user, or set DATABASE_URL."
    )


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
