"""Starting, ending, dying, starting again."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.support import EXAMPLES, NO_MODEL, SECONDS, Server, corbits_memory, one_json, start
from tests.embedded.support import guardians, servers, wait_until
from tests.support.postgres import NewDatabase

MIB = 1024 * 1024
RSS_MAX = 400 * MIB
START_CPU_SECONDS = 6.0
"""Two on an idle machine. Not the time on the clock, since tests share theirs."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "memory"
    yield home
    # Whatever a test left running has lost its last user by now.
    wait_until(lambda: not servers(home) and not guardians(home))


def test_killed_and_started_again_everything_is_still_there_and_it_leaves_nothing_behind(home: Path) -> None:
    with Server("--data-dir", home) as first:
        token = first.told["Token"]
        with first.client(token) as client:
            body = {"title": "Crane", "text": "The crane is painted turquoise.", "external_ref": "crane"}
            assert client.post("/api/tenants/default/memory/add", json=body).status_code == 200
        first.stop(signal.SIGKILL)
    with Server("--data-dir", home) as second:
        times = psutil.Process(second.process.pid).cpu_times()
        assert times.user + times.system < START_CPU_SECONDS
        assert token not in second.text
        assert "token create" in second.told["Token"]
        assert second.search(token, "turquoise")["items"][0]["externalRef"] == "crane"
        children = psutil.Process(second.process.pid).children(recursive=True)
        assert second.stop(signal.SIGTERM) == 0
        assert not servers(home), "whoever leaves last waits until the database is down"
        assert not [line for line in second.errors if "Traceback" in line]
    wait_until(lambda: not guardians(home) and not [child for child in children if child.is_running()])


def test_ctrl_c_during_the_start_ends_it_without_a_traceback(home: Path) -> None:
    process = start("serve", "--port", 0, "--data-dir", home, **NO_MODEL)
    wait_until(home.exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode in {0, 130}
    assert "Traceback" not in errors


def test_with_the_local_model_everything_is_embedded_within_its_memory(home: Path) -> None:
    with Server("--data-dir", home, extra={}) as server:
        done = corbits_memory(
            "import", EXAMPLES / "conversations.jsonl", "--data-dir", home, "--no-wait", "--json"
        )
        assert one_json(done.stdout)["created"] == 60
        waited = corbits_memory("import", EXAMPLES / "conversations.jsonl", "--data-dir", home, "--json")
        assert one_json(waited.stdout)["pendingVectors"] == 0
        found = server.search(server.told["Token"], "Which foods are dangerous for Tomas?")
        assert found["items"][0]["externalRef"] == "kitchen-02"
        assert "dense" in found["items"][0]["attribution"]["channels"]
        pythons = [psutil.Process(server.process.pid), *guardians(home)]
        assert sum(process.memory_info().rss for process in pythons) <= RSS_MAX


def test_a_database_url_never_starts_an_embedded_server(tmp_path: Path, new_database: NewDatabase) -> None:
    unused = tmp_path / "unused"
    url = new_database()
    environ = {**NO_MODEL, "DATABASE_URL": url, "CORBITS_MEMORY_DATA_DIR": str(unused)}
    with Server(extra={**environ, "CORBITS_MEMORY_TOKEN": "preset-by-the-operator"}) as server:
        assert server.told["Database"].startswith("external Postgres at ")
        assert server.told["Token"] == "the one in CORBITS_MEMORY_TOKEN"
        assert "preset-by-the-operator" not in server.text
        added = corbits_memory("add", "Herons nest here.", "--json", **environ)
        assert one_json(added.stdout)["status"] == "created"
        assert server.search("preset-by-the-operator", "herons")["items"]
        assert server.stop() == 0
    assert not unused.exists()


def test_a_broken_configuration_is_told_whole_before_anything_is_started(home: Path) -> None:
    broken = corbits_memory("serve", "--data-dir", home, EMBED_PROVIDER="sometimes", FTS_LANGUAGE="No!")
    assert broken.returncode == 1
    assert "EMBED_PROVIDER" in broken.stderr
    assert "FTS_LANGUAGE" in broken.stderr
    assert "sometimes" not in broken.stderr
    assert not home.exists()


def test_help_is_quick() -> None:
    began = time.monotonic()
    done = corbits_memory("--help")
    assert done.returncode == 0
    assert "serve" in done.stdout
    # 0.4 s on an idle machine; tests share theirs.
    assert time.monotonic() - began < 2.0
