import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from corbits_memory.engine.embedded.account import server_account
from corbits_memory.engine.embedded.binaries import find_binaries, reachable_binaries
from corbits_memory.engine.embedded.pidfile import read_pid_file
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.errors import EmbeddedPostgresError
from tests.embedded.conftest import NewUser
from tests.embedded.support import fake_programs, free_port, guardians, kill_all, query, servers, wait_until


@pytest.fixture
def server(made_dir: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.start(made_dir) as server:
        query(server.url, "CREATE TABLE kept AS SELECT 42 AS number")
        yield server


def kill_postmaster(server: EmbeddedPostgres) -> int:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_killed_server_is_back_for_the_next_use(server: EmbeddedPostgres) -> None:
    for _ in range(2):
        old = kill_postmaster(server)
        server.ensure_running()
        assert server.pid != old
        assert query(server.url, "SELECT number FROM kept") == 42


def test_a_killed_server_comes_back_unasked(server: EmbeddedPostgres) -> None:
    url, old = server.url, kill_postmaster(server)
    wait_until(lambda: server.pid not in {None, old} and can_connect(url))
    assert query(url, "SELECT number FROM kept") == 42


def test_a_server_killed_with_open_sessions_recovers(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url) as conn:
        conn.execute("INSERT INTO kept VALUES (43)")
        kill_postmaster(server)
        server.ensure_running()
        # What was not committed is gone; what was is there.
        assert query(server.url, "SELECT sum(number) FROM kept") == 42
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")


def test_a_killed_server_without_guardian_is_back_for_the_next_use(
    made_dir: Path, server: EmbeddedPostgres
) -> None:
    for guardian in guardians(made_dir):
        guardian.kill()
    kill_postmaster(server)
    server.ensure_running()
    assert query(server.url, "SELECT number FROM kept") == 42
    assert len(guardians(made_dir)) == 1


def test_a_server_that_keeps_dying_is_given_up_and_starts_on_the_next_use(
    made_dir: Path, server: EmbeddedPostgres
) -> None:
    def killed_again() -> bool:
        for guardian in guardians(made_dir):
            for child in guardian.children():
                child.kill()
        return not guardians(made_dir)

    wait_until(killed_again)
    server.ensure_running()
    assert query(server.url, "SELECT number FROM kept") == 42


def test_ensure_running_leaves_a_running_server_alone(server: EmbeddedPostgres) -> None:
    pid = server.pid
    server.ensure_running()
    assert server.pid == pid


def test_a_server_stopped_by_hand_starts_again(server: EmbeddedPostgres, made_dir: Path) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGINT)
    wait_until(lambda: not servers(made_dir))
    server.ensure_running()
    assert query(server.url, "SELECT number FROM kept") == 42


@pytest.fixture
def crashed(made_dir: Path) -> Path:
    """A data directory whose server, guardian and user were killed; ``postmaster.pid`` is still there."""
    server = EmbeddedPostgres.start(made_dir)
    query(server.url, "CREATE TABLE kept AS SELECT 42 AS number")
    kill_all(made_dir)
    server.stop()
    assert (made_dir / "cluster" / "postmaster.pid").exists()
    return made_dir


def rewrite_pid(data_dir: Path, pid: int) -> None:
    path = data_dir / "cluster" / "postmaster.pid"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([str(pid), *lines[1:]]) + "\n")


def assert_starts(data_dir: Path) -> None:
    with EmbeddedPostgres.start(data_dir) as server:
        assert query(server.url, "SELECT number FROM kept") == 42


def test_starts_over_a_stale_pid(crashed: Path) -> None:
    assert_starts(crashed)


def test_starts_over_a_stale_pid_that_is_somebody_elses_now(crashed: Path) -> None:
    account = server_account([crashed / "cluster"])
    # The same user's, so that Postgres on its own would take it for the old server.
    with subprocess.Popen(["sleep", "60"], **account.popen_options()) as stranger:
        rewrite_pid(crashed, stranger.pid)
        assert_starts(crashed)
        assert stranger.poll() is None
        stranger.kill()


def test_starts_over_a_stale_pid_that_is_our_own(crashed: Path) -> None:
    rewrite_pid(crashed, os.getpid())
    assert_starts(crashed)


def test_starts_over_a_stale_pid_that_is_a_zombie(crashed: Path) -> None:
    account = server_account([crashed / "cluster"])
    with subprocess.Popen(["true"], **account.popen_options()) as zombie:
        wait_until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE)
        rewrite_pid(crashed, zombie.pid)
        assert_starts(crashed)


@pytest.mark.parametrize("content", ["", "\n", "what?\n", "0\n/nowhere\n"])
def test_starts_over_a_pid_file_cut_short(crashed: Path, content: str) -> None:
    (crashed / "cluster" / "postmaster.pid").write_text(content)
    assert_starts(crashed)


def test_stop_spares_a_stranger_with_the_servers_pid(crashed: Path, new_user: NewUser) -> None:
    user = new_user()
    user.hear()
    for guardian in guardians(crashed):
        guardian.kill()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        rewrite_pid(crashed, stranger.pid)
        kill_all(crashed)
        user.ask("stop")
        assert stranger.poll() is None
        stranger.kill()


@pytest.fixture
def slow_server(open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that take half a second to begin."""
    binaries = reachable_binaries(find_binaries({}), server_account([open_dir]))
    folder = fake_programs(open_dir / "slow")
    for name, pause in {"postgres": 0.5, "initdb": 0}.items():
        (folder / name).write_text(f'#!/bin/sh\nsleep {pause}\nexec "{binaries.folder / name}" "$@"\n')
    monkeypatch.setenv("PG_BIN", str(folder))


@pytest.mark.usefixtures("slow_server")
def test_a_stale_record_of_a_ready_server_is_not_believed(crashed: Path) -> None:
    assert "ready" in (crashed / "cluster" / "postmaster.pid").read_text()
    assert_starts(crashed)


@pytest.mark.usefixtures("slow_server")
def test_a_server_that_is_coming_back_can_be_stopped(server: EmbeddedPostgres, made_dir: Path) -> None:
    kill_postmaster(server)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 10
    wait_until(lambda: not servers(made_dir) and not guardians(made_dir))


def test_a_server_started_by_other_means_is_named_not_harmed(open_dir: Path) -> None:
    data_dir = open_dir / "data"
    EmbeddedPostgres.start(data_dir).stop()
    account = server_account([data_dir / "cluster"])
    binaries = reachable_binaries(find_binaries(os.environ), account)
    command = [str(binaries.postgres), "-D", str(data_dir / "cluster"), "-p", str(free_port()), "-k", ""]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **account.popen_options()) as other:
        wait_until(lambda: (record := read_pid_file(data_dir / "cluster")) and record.ready)
        with pytest.raises(EmbeddedPostgresError, match=rf"kill -INT {other.pid}"):
            EmbeddedPostgres.start(data_dir)
        assert other.poll() is None
        other.send_signal(signal.SIGINT)
    EmbeddedPostgres.start(data_dir).stop()


def test_an_interrupted_first_start_leaves_no_half_cluster(data_dir: Path, new_user: NewUser) -> None:
    user = new_user()
    wait_until(lambda: list(data_dir.glob("cluster.init-*/base")))
    user.kill()
    assert not (data_dir / "cluster").exists()
    with EmbeddedPostgres.start(data_dir) as server:
        assert server.fresh
        assert query(server.url, "SELECT 1") == 1
    assert not list(data_dir.glob("cluster.init-*"))


def test_a_failed_first_start_leaves_no_half_cluster(
    data_dir: Path, open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'initdb: error: no luck today' >&2; exit 1"
    monkeypatch.setenv("PG_BIN", str(fake_programs(open_dir / "bin", initdb=script)))
    with pytest.raises(EmbeddedPostgresError, match="no luck today"):
        EmbeddedPostgres.start(data_dir)
    assert not list(data_dir.glob("cluster*"))


def can_connect(url: str) -> bool:
    try:
        return bool(query(url, "SELECT true"))
    except psycopg.OperationalError:
        return False


def test_the_python_that_runs_the_guardian_is_named_when_it_is_missing(
    made_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EmbeddedPostgresError, match="/nowhere/python"):
        EmbeddedPostgres.start(made_dir)
