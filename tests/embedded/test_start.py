import os
import shutil
import socket
import stat
from pathlib import Path

import psycopg
import pytest

from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres, default_data_dir
from corbits_memory.errors import EmbeddedPostgresError
from tests.embedded.support import free_port, guardians, query, servers, wait_until


def test_first_start_makes_a_cluster_and_the_next_one_keeps_it(data_dir: Path) -> None:
    with EmbeddedPostgres.start(data_dir) as server:
        assert server.fresh
        assert query(server.url, "SELECT current_database()") == "corbits_memory"
        query(server.url, "CREATE TABLE kept AS SELECT 42 AS number")
    with EmbeddedPostgres.start(data_dir) as server:
        assert not server.fresh
        assert query(server.url, "SELECT number FROM kept") == 42


def test_nothing_runs_after_the_last_stop(made_dir: Path) -> None:
    server = EmbeddedPostgres.start(made_dir)
    socket_dir = Path(query(server.url, "SHOW unix_socket_directories"))
    assert servers(made_dir)
    server.stop()
    server.stop()
    assert not servers(made_dir)
    assert server.pid is None
    wait_until(lambda: not guardians(made_dir))
    assert not list(socket_dir.glob(".s.PGSQL*"))


def test_stop_after_the_directory_was_removed(made_dir: Path) -> None:
    server = EmbeddedPostgres.start(made_dir)
    shutil.rmtree(made_dir)
    server.stop()
    wait_until(lambda: not guardians(made_dir))


def test_shares_in_one_process_are_counted(made_dir: Path) -> None:
    first = EmbeddedPostgres.start(made_dir)
    second = EmbeddedPostgres.start(made_dir)
    assert first.pid == second.pid
    first.stop()
    assert query(second.url, "SELECT 1") == 1
    second.stop()
    assert not servers(made_dir)


def test_a_stopped_share_refuses_to_go_on(made_dir: Path) -> None:
    server = EmbeddedPostgres.start(made_dir)
    server.stop()
    with pytest.raises(EmbeddedPostgresError, match="was stopped"):
        server.ensure_running()


def test_several_databases_with_any_name(made_dir: Path) -> None:
    name = 'Ü "quoted" / 100%'
    with EmbeddedPostgres.start(made_dir) as plain, EmbeddedPostgres.start(made_dir, database=name) as odd:
        assert query(plain.url, "SELECT current_database()") == "corbits_memory"
        assert query(odd.url, "SELECT current_database()") == name


def test_no_port_is_open_unless_asked(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        assert query(server.url, "SHOW listen_addresses") == ""
        assert server.tcp_url is None


def test_tcp_needs_the_password(made_dir: Path) -> None:
    port = free_port()
    with EmbeddedPostgres.start(made_dir, tcp_port=port) as server:
        assert server.tcp_url is not None
        assert query(server.tcp_url, "SELECT 1") == 1
        password = (made_dir / "password").read_text()
        assert password not in repr(server) + server.url
        assert password not in server.log_file.read_text()
        assert stat.S_IMODE((made_dir / "password").stat().st_mode) == 0o600
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            query(server.tcp_url.replace(password, "wrong"), "SELECT 1")
        old = server.tcp_url
    with EmbeddedPostgres.start(made_dir, tcp_port=port) as server:
        assert server.tcp_url == old


def test_tcp_is_refused_from_a_server_that_runs_without(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir), pytest.raises(EmbeddedPostgresError, match="without TCP port"):
        EmbeddedPostgres.start(made_dir, tcp_port=free_port())


def test_a_taken_port_is_named(made_dir: Path) -> None:
    with (
        socket.create_server(("localhost", 0)) as taken,
        pytest.raises(EmbeddedPostgresError, match="is taken"),
    ):
        EmbeddedPostgres.start(made_dir, tcp_port=taken.getsockname()[1])
    assert not servers(made_dir)


def test_text_is_unicode_whatever_the_environment(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with EmbeddedPostgres.start(data_dir) as server:
        assert query(server.url, "SHOW server_encoding") == "UTF8"
        provider = (
            "SELECT datlocprovider::text || datlocale FROM pg_database WHERE datname = current_database()"
        )
        assert query(server.url, provider) == "bC.UTF-8"
        assert query(server.url, "SELECT upper('é') || lower('À')") == "Éà"
        words = "SELECT string_agg(token, '|') FROM ts_parse('default', '“quoted” a—b 你好，世界') WHERE tokid = 2"
        assert query(server.url, words) == "你好|世界"


def test_extensions_are_there(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        for extension in ("vector", "pg_trgm", "unaccent"):
            query(server.url, f"CREATE EXTENSION {extension}")
        assert query(server.url, "SELECT '[1,2]'::vector <-> '[1,4]'") == 2.0


def test_the_log_holds_no_text_of_statements(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        query(server.url, "CREATE TABLE t (body text UNIQUE CHECK (body <> 'secret one'))")
        query(server.url, "INSERT INTO t VALUES ('secret two')")
        for body in ("secret one", "secret two"):
            with pytest.raises(psycopg.IntegrityError):
                query(server.url, f"INSERT INTO t VALUES ('{body}')")
        log = server.log_file.read_text()
        assert "violates" in log
        assert "secret" not in log


def test_options_reach_the_server(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir, options={"fsync": "off", "application_name": "a b"}) as server:
        assert query(server.url, "SHOW fsync") == "off"
    with EmbeddedPostgres.start(made_dir) as server:
        assert query(server.url, "SHOW fsync") == "on"


def test_the_server_is_in_a_session_of_its_own(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        assert server.pid is not None
        # A terminal's Ctrl-C goes to a process group of its own session.
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_a_failed_start_shows_the_log(made_dir: Path) -> None:
    with pytest.raises(EmbeddedPostgresError) as failure:
        EmbeddedPostgres.start(made_dir, options={"shared_buffers": "lots"})
    assert 'invalid value for parameter "shared_buffers": "lots"' in failure.value.message
    assert str(made_dir / "server.log") in failure.value.message
    assert not servers(made_dir)
    with EmbeddedPostgres.start(made_dir) as server:
        assert query(server.url, "SELECT 1") == 1


def test_the_default_folder_is_the_users() -> None:
    assert default_data_dir().name == "postgres"
    assert default_data_dir().parent.name == "corbits-memory"
