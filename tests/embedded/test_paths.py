import os
import stat
import sys
from pathlib import Path

import pytest

from corbits_memory.engine.embedded import sockets
from corbits_memory.engine.embedded.account import Account, server_account
from corbits_memory.engine.embedded.layout import Layout, make_home
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.errors import EmbeddedPostgresError
from tests.embedded.support import kill_all, query, servers

OURSELVES = Account(uid=os.geteuid(), gid=os.getegid(), name="me", switch=False)


ODD = ["with space", "'\" $0 `ls`;%s+c=d&e?f#%20 記", "a,b", "two\nlines"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names(open_dir: Path, name: str) -> None:
    home = open_dir / name
    with EmbeddedPostgres.start(home) as server:
        assert query(server.url, "SELECT 1") == 1
        assert (home / "run" / ".s.PGSQL.5432").exists() is not bool({",", "\n"} & set(name))


@pytest.mark.parametrize(
    "parts", [4, pytest.param(12, marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux"))]
)
def test_very_long_paths(data_dir: Path, parts: int) -> None:
    home = data_dir.joinpath(*["long name " * 10] * parts)
    home.mkdir(parents=True)
    try:
        with EmbeddedPostgres.start(home) as server:
            folder = Path(query(server.url, "SHOW unix_socket_directories"))
            assert len(str(folder)) < 60
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not folder.exists()
    finally:
        kill_all(home)


def test_a_symbolic_link_leads_to_the_same_server(made_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(made_dir)
    with EmbeddedPostgres.start(made_dir) as server, EmbeddedPostgres.start(tmp_path / "link") as other:
        assert server.pid == other.pid


def test_a_moved_directory_keeps_its_data(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        query(server.url, "CREATE TABLE kept AS SELECT 42 AS number")
    moved = made_dir / "moved"
    moved.mkdir()
    for path in made_dir.iterdir():
        if path != moved:
            path.rename(moved / path.name)
    with EmbeddedPostgres.start(moved) as server:
        assert query(server.url, "SELECT number FROM kept") == 42


def test_a_short_path_has_its_socket_in_the_data_directory(open_dir: Path) -> None:
    home = open_dir / "d"
    with EmbeddedPostgres.start(home) as server:
        folder = Path(query(server.url, "SHOW unix_socket_directories"))
        assert folder == home / "run"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == server_account([home / "cluster"]).uid


def socket_dir(home: Path, short: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    return sockets.make_socket_dir(Layout(home), OURSELVES, port=5432, short=short)


def test_the_socket_moves_when_the_path_is_one_byte_too_long(open_dir: Path) -> None:
    short = open_dir / "s"
    short.mkdir()
    room = sockets.PATH_BYTES_MAX - len(str(open_dir / "x" / "run" / ".s.PGSQL.5432")) + 1
    fits, too_long = open_dir / ("a" * room), open_dir / ("a" * (room + 1))
    assert socket_dir(fits, short) == fits / "run"
    assert socket_dir(too_long, short).parent == short


def test_the_short_folder_is_the_same_each_time_and_another_for_another_path(tmp_path: Path) -> None:
    homes = [tmp_path / ("a" * 200), tmp_path / ("b" * 200)]
    first = [socket_dir(home, tmp_path) for home in homes]
    assert [socket_dir(home, tmp_path) for home in homes] == first
    assert first[0] != first[1]


@pytest.mark.parametrize("taken_by", ["open folder", "link", "file"])
def test_a_taken_short_folder_is_passed_over(tmp_path: Path, taken_by: str) -> None:
    home = tmp_path / ("a" * 200)
    taken = sockets.short_socket_dir(Layout(home), short=tmp_path)
    if taken_by == "open folder":
        taken.mkdir()
        taken.chmod(0o777)
    elif taken_by == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        taken.symlink_to(tmp_path / "elsewhere")
    else:
        taken.write_text("")
    found = socket_dir(home, tmp_path)
    assert found != taken
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_all_names_taken_is_said(tmp_path: Path) -> None:
    home = tmp_path / ("a" * 200)
    first = sockets.short_socket_dir(Layout(home), short=tmp_path)
    for attempt in range(20):
        first.with_name(f"{first.name}-{attempt}" if attempt else first.name).write_text("")
    with pytest.raises(EmbeddedPostgresError, match=first.name):
        socket_dir(home, tmp_path)


def test_a_foreign_cluster_is_not_touched(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedPostgresError, match="a Postgres cluster of its own"):
        EmbeddedPostgres.start(data_dir)
    assert [path.name for path in data_dir.iterdir()] == ["PG_VERSION"]


def test_a_file_in_the_way_is_said(data_dir: Path) -> None:
    data_dir.write_text("")
    for path in (data_dir, data_dir / "below"):
        with pytest.raises(EmbeddedPostgresError, match="can't be created or written"):
            EmbeddedPostgres.start(path)


def test_what_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_home(Layout(tmp_path))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750
    make_home(Layout(tmp_path / "new"))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) in {0o700, 0o711}


def test_links_in_the_data_directory_are_not_followed(data_dir: Path, tmp_path: Path) -> None:
    data_dir.mkdir()
    (tmp_path / "precious").write_text("kept")
    for name in ("start.lock", "server.log"):
        (data_dir / name).symlink_to(tmp_path / "precious")
        with pytest.raises(EmbeddedPostgresError):
            EmbeddedPostgres.start(data_dir)
        (data_dir / name).unlink()
    assert (tmp_path / "precious").read_text() == "kept"
    assert not servers(data_dir)
