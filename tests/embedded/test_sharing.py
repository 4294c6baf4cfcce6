from pathlib import Path

import pytest

from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from tests.embedded.conftest import NewUser
from tests.embedded.support import guardians, query, servers, wait_until


@pytest.mark.parametrize("victim", [0, 1], ids=["who started", "who joined"])
def test_a_killed_process_takes_nothing_from_the_other(
    data_dir: Path, new_user: NewUser, victim: int
) -> None:
    users = [new_user()]
    first = users[0].hear()
    users.append(new_user())
    second = users[1].hear()
    assert first["pid"] == second["pid"]
    assert (first["fresh"], second["fresh"]) == (True, False)
    users[victim].kill()
    survivor = users[1 - victim]
    assert survivor.ask("SELECT pg_sleep(0.2), 7") == [["", 7]]
    assert survivor.ask("stop") == "stopped"
    assert not servers(data_dir)


def test_the_last_process_killed_leaves_nothing_running(made_dir: Path, new_user: NewUser) -> None:
    users = [new_user(), new_user()]
    for user in users:
        user.hear()
    users[0].kill()
    assert servers(made_dir)
    users[1].kill()
    wait_until(lambda: not servers(made_dir) and not guardians(made_dir))
    assert "database system is shut down" in (made_dir / "server.log").read_text()


def test_processes_that_start_at_once_share_one_server(data_dir: Path, new_user: NewUser) -> None:
    users = [new_user() for _ in range(3)]
    answers = [user.hear() for user in users]
    assert len({answer["pid"] for answer in answers}) == 1
    assert sum(answer["fresh"] for answer in answers) == 1


def test_starting_while_the_server_stops_waits_and_starts_anew(made_dir: Path, new_user: NewUser) -> None:
    user = new_user()
    old = user.hear()["pid"]
    user.process.kill()
    with EmbeddedPostgres.start(made_dir) as server:
        assert query(server.url, "SELECT 1") == 1
        # Whichever was faster: the same server, or a new one after the old had gone.
        assert len([p for p in servers(made_dir) if p.pid in {old, server.pid}]) == 1
    assert not servers(made_dir)


def test_many_short_uses_never_collide(made_dir: Path, new_user: NewUser) -> None:
    new_user().hear()
    for _ in range(3):
        user = new_user()
        assert "url" in user.hear()
        user.kill()


def test_without_its_guardian_the_server_goes_on_and_the_last_user_stops_it(
    made_dir: Path, new_user: NewUser
) -> None:
    user = new_user()
    pid = user.hear()["pid"]
    for guardian in guardians(made_dir):
        guardian.kill()
    assert user.ask("SELECT 1") == [[1]]
    assert user.ask("stop") == "stopped"
    assert pid not in [p.pid for p in servers(made_dir)]


def test_a_server_that_outlived_guardian_and_users_is_adopted(made_dir: Path, new_user: NewUser) -> None:
    user = new_user()
    pid = user.hear()["pid"]
    for guardian in guardians(made_dir):
        guardian.kill()
    user.kill()
    with EmbeddedPostgres.start(made_dir) as server:
        assert server.pid == pid
        assert query(server.url, "SELECT 1") == 1
    assert not servers(made_dir)
