import sys
from pathlib import Path

import pytest

from corbits_memory.engine.embedded import checks
from corbits_memory.engine.embedded.checks import (
    Mount,
    misspelt_database_url,
    mount_of,
    parse_mounts,
    persistence_warning,
    refuse_musl,
    refuse_network,
)
from corbits_memory.engine.embedded.pidfile import PidFile, parse_pid_file
from corbits_memory.errors import EmbeddedPostgresError

MOUNTS = parse_mounts(
    "overlay / overlay rw,relatime 0 0\n"
    "proc /proc proc rw 0 0\n"
    "/dev/sda1 /srv ext4 rw 0 0\n"
    "server:/export /srv/shared nfs4 rw 0 0\n"
    "//nas/share /mnt/my\\040share cifs rw 0 0\n"
    "tmpfs /tmp tmpfs rw 0 0\n"
    "/dev/sdb1 /tmp ext4 rw 0 0\n"
    "tmpfs /run tmpfs rw 0 0\n"
    "broken line\n"
)


def test_the_deepest_and_latest_mount_holds_a_path() -> None:
    found = {
        path: mount_of(Path(path), MOUNTS)
        for path in ("/etc", "/srv/data", "/srv/shared/x", "/srvx", "/tmp/x")
    }
    kinds = {path: mount.kind for path, mount in found.items() if mount is not None}
    assert kinds == {
        "/etc": "overlay", "/srv/data": "ext4", "/srv/shared/x": "nfs4", "/srvx": "overlay", "/tmp/x": "ext4",
    }  # fmt: skip
    assert mount_of(Path("/x"), []) is None


def test_escapes_in_mount_points_are_read() -> None:
    assert Mount(Path("/mnt/my share"), "cifs") in MOUNTS


@pytest.mark.parametrize("path", ["/srv/shared", "/srv/shared/a/b", "/mnt/my share/x"])
def test_network_file_systems_are_refused(path: str) -> None:
    with pytest.raises(EmbeddedPostgresError, match="network file system"):
        refuse_network(Path(path), MOUNTS)


@pytest.mark.parametrize("path", ["/srv/data", "/home/x", "/tmp/x"])
def test_local_file_systems_are_fine(path: str) -> None:
    refuse_network(Path(path), MOUNTS)


@pytest.mark.parametrize(
    ("libc", "host"), [("musl", ""), ("", "x86_64-pc-linux-musl"), ("", "aarch64-alpine-linux-musl")]
)
def test_musl_is_refused(libc: str, host: str) -> None:
    with pytest.raises(EmbeddedPostgresError, match="PG_BIN"):
        refuse_musl(libc, host)


@pytest.mark.parametrize(
    ("libc", "host"), [("glibc", "x86_64-pc-linux-gnu"), ("", "arm64-apple-darwin"), ("", "None")]
)
def test_other_c_libraries_are_fine(libc: str, host: str) -> None:
    refuse_musl(libc, host)


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedPostgresError, match="DATABASE_URL"):
        checks.refuse_unsupported(tmp_path)


@pytest.mark.parametrize(
    ("path", "in_container", "expected"),
    [
        ("/home/me/data", True, "container's own layer"),
        ("/home/me/data", False, "container's own layer"),
        ("/srv/data", True, None),
        ("/run/data", False, "kept in memory"),
    ],
)
def test_throw_away_places_are_warned_of(path: str, in_container: bool, expected: str | None) -> None:
    warning = persistence_warning(Path(path), mounts=MOUNTS, in_container=in_container)
    if expected is None:
        assert warning is None
    else:
        assert warning is not None
        assert expected in warning
        assert path in warning


def test_the_root_of_a_container_is_throw_away_whatever_carries_it() -> None:
    mounts = [Mount(Path("/"), "btrfs")]
    assert persistence_warning(Path("/data"), mounts=mounts, in_container=True) is not None
    assert persistence_warning(Path("/data"), mounts=mounts, in_container=False) is None
    assert persistence_warning(Path("/data"), mounts=[], in_container=True) is None


PG = "postgresql://u:p@h/d"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"DATABASE_URL": PG, "DATABSE_URL": PG}, None),
        ({"DATABASE_URL": " ", "DATABSE_URL": PG}, "DATABSE_URL"),
        ({"DATABSE_URL": PG}, "DATABSE_URL"),
        ({"DATABASE_URI": PG}, "DATABASE_URI"),
        ({"DATABASEURL": "host=h dbname=d"}, "DATABASEURL"),
        ({"database_url": PG}, "database_url"),
        ({"DB_URL": "postgres://h/d"}, "DB_URL"),
        ({"POSTGRES_URL": PG}, "POSTGRES_URL"),
        ({"POSTGRES_URL": PG, "DATABASE_UR": PG}, "DATABASE_UR"),
        ({"DB_URL": "mysql://h/d"}, None),
        ({"DATABASE_URI": "sqlite:///x.db"}, None),
        ({"DATABASE_URLS": "mysql://h/d"}, None),
        ({"DATABSE_URL": ""}, None),
        ({"DATABASE_READ_URL": PG}, None),
        ({"PATH": "/bin", "HOME": "/root", "EMBED_BASE_URL": "http://h"}, None),
    ],
)
def test_misspelt_variables_are_found(environ: dict[str, str], expected: str | None) -> None:
    assert misspelt_database_url(environ) == expected


def test_pid_files_are_read() -> None:
    whole = "4242\n/data dir\n1700000000\n5432\n/run/x\n\n  123 456\nready   \n"
    assert parse_pid_file(whole) == PidFile(pid=4242, port=5432, socket_dir="/run/x", host=None, ready=True)
    starting = whole.replace("ready   ", "starting")
    assert parse_pid_file(starting) == PidFile(pid=4242, port=5432, socket_dir="/run/x", host=None)
    assert parse_pid_file("-17\n") == PidFile(pid=17)
    for text in ("", "\n", "abc\n", "0\n", "--3x\n"):
        assert parse_pid_file(text) is None
