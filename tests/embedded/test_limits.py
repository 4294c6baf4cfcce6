"""Small disks, small shared memory, read-only disks: each in a mount namespace of its own."""

import os
import signal
from pathlib import Path

import pytest

from corbits_memory.engine.embedded import settings
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.errors import EmbeddedPostgresError
from tests.embedded.conftest import NewUser
from tests.embedded.support import kill_all, query, with_tmpfs


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_is_said_and_leaves_nothing(data_dir: Path, new_user: NewUser) -> None:
    data_dir.mkdir()
    user = new_user(prefix=with_tmpfs(data_dir, "size=20m"))
    answer = user.hear()
    assert "is full" in answer["error"]
    assert str(data_dir) in answer["error"]
    assert user.close() == 1


@pytest.mark.usefixtures("own_mounts")
def test_a_disk_that_is_full_later_is_said(made_dir: Path, new_user: NewUser) -> None:
    with EmbeddedPostgres.start(made_dir):
        pass
    full = made_dir / "full"
    full.mkdir()
    script = (
        'mount -t tmpfs -o size=60m none "$1" && cp -a "$2/cluster" "$1/" '
        '&& { cat /dev/zero > "$1/ballast" 2>/dev/null; shift 2; exec "$@"; }'
    )
    user = new_user(full, prefix=["unshare", "--mount", "sh", "-c", script, "sh", str(full), str(made_dir)])
    answer = user.hear()
    assert f"{full} is full" in answer["error"]


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_disk_is_said(data_dir: Path, new_user: NewUser) -> None:
    data_dir.mkdir()
    answer = new_user(prefix=with_tmpfs(data_dir, "ro")).hear()
    assert "Read-only file system" in answer["error"]
    assert "--data-dir" in answer["error"]


def test_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only disk stands for it")
    tmp_path.chmod(0o500)
    with pytest.raises(EmbeddedPostgresError, match="Permission denied"):
        EmbeddedPostgres.start(tmp_path / "data")
    with pytest.raises(EmbeddedPostgresError, match="Permission denied"):
        EmbeddedPostgres.start(tmp_path)


BUILD = """
DO $$ BEGIN
  CREATE EXTENSION vector;
  CREATE TABLE v AS SELECT i, ARRAY[random(), random(), i]::vector(3) AS e, repeat(md5(i::text), 4) AS t
    FROM generate_series(1, 60000) AS i;
  ALTER TABLE v SET (parallel_workers = 2);
  SET LOCAL maintenance_work_mem = '200MB';
  CREATE INDEX ON v USING hnsw (e vector_l2_ops) WITH (m = 4, ef_construction = 8);
  CREATE INDEX ON v (t);
END $$
"""


@pytest.mark.usefixtures("own_mounts")
def test_64_mb_of_shared_memory_are_enough_for_parallel_index_builds(
    made_dir: Path, new_user: NewUser
) -> None:
    user = new_user(prefix=with_tmpfs("/dev/shm", "size=64m"))
    assert "url" in user.hear()
    assert user.ask("SHOW dynamic_shared_memory_type") == [["mmap"]]
    assert user.ask(" ".join(BUILD.split())) == "DO"
    assert user.ask("SELECT count(*) FROM pg_index WHERE indrelid = 'v'::regclass AND indisvalid") == [[2]]


def test_shared_memory_settings_follow_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, expected in {settings.SHM_ENOUGH - 1: "mmap", settings.SHM_ENOUGH: None}.items():
        monkeypatch.setattr(settings, "shm_free", lambda free=free: free)
        options = settings.start_options(socket_dir="/s", tcp_port=None)
        assert options.get("dynamic_shared_memory_type") == expected


def test_index_memory_follows_the_machine_within_bounds() -> None:
    for megabytes, expected in {
        256: "64MB",
        1024: "64MB",
        1040: "65MB",
        8192: "512MB",
        65536: "512MB",
    }.items():
        assert settings.cluster_defaults(memory=megabytes * settings.MIB)["maintenance_work_mem"] == expected


def test_shared_memory_follows_the_machine_within_bounds() -> None:
    for megabytes, expected in {
        256: "128MB",
        2048: "128MB",
        2064: "129MB",
        16384: "1024MB",
        65536: "1024MB",
    }.items():
        assert settings.cluster_defaults(memory=megabytes * settings.MIB)["shared_buffers"] == expected


def test_usable_memory_is_known() -> None:
    assert settings.usable_memory() > 64 * settings.MIB


def test_settings_can_be_changed_by_the_operator_and_stay(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        expected = settings.cluster_defaults(memory=settings.usable_memory())["shared_buffers"]
        assert (
            query(server.url, "SELECT pg_size_bytes(current_setting('shared_buffers')) / 1048576 || 'MB'")
            == expected
        )
        assert query(server.url, "SHOW max_connections") == "100"
        assert query(server.url, "SHOW fsync") == "on"
        query(server.url, "ALTER SYSTEM SET max_connections = 120")
    with EmbeddedPostgres.start(made_dir) as server:
        assert query(server.url, "SHOW max_connections") == "120"


def test_a_large_log_is_put_aside(made_dir: Path) -> None:
    with EmbeddedPostgres.start(made_dir) as server:
        log = server.log_file
    with log.open("ab") as file:
        file.truncate(9 * settings.MIB)
    with EmbeddedPostgres.start(made_dir):
        assert log.stat().st_size < settings.MIB
        assert log.with_suffix(".log.1").stat().st_size == 9 * settings.MIB
    kill_all(made_dir)


def test_ctrl_c_does_not_reach_the_server(made_dir: Path, new_user: NewUser) -> None:
    user = new_user(start_new_session=True)
    pid = user.hear()["pid"]
    with EmbeddedPostgres.start(made_dir) as server:
        # What a terminal does: interrupt the whole process group in the foreground.
        os.killpg(user.process.pid, signal.SIGINT)
        user.close()
        assert server.pid == pid
        assert query(server.url, "SELECT 1") == 1
