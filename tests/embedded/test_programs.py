"""Which programs are used, and which clusters they can serve."""

import importlib.util
from pathlib import Path

import pytest

from corbits_memory.engine.embedded.binaries import Binaries, find_binaries
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from corbits_memory.errors import EmbeddedPostgresError
from tests.embedded.support import fake_programs, servers


def test_the_wheels_programs_are_found() -> None:
    binaries = find_binaries({"PG_BIN": "  "})
    assert binaries.bundled
    assert binaries.major() == 18


def test_chosen_programs_win(tmp_path: Path) -> None:
    folder = fake_programs(tmp_path / "bin", version="17.5 (Debian 17.5-1)")
    binaries = find_binaries({"PG_BIN": str(folder)})
    assert binaries == Binaries(folder, bundled=False)
    assert binaries.major() == 17


def test_a_folder_without_programs_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"postgres is missing.*PG_BIN"):
        find_binaries({"PG_BIN": str(tmp_path)})


def test_no_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedPostgresError, match=r"DATABASE_URL.*corbits-memory\[embedded\]"):
        find_binaries({})


@pytest.mark.parametrize("version", ["?", "eighteen"])
def test_a_program_that_tells_no_version_is_named(tmp_path: Path, version: str) -> None:
    folder = fake_programs(tmp_path / "bin", version=version)
    with pytest.raises(EmbeddedPostgresError, match="doesn't run here"):
        find_binaries({"PG_BIN": str(folder)}).major()


def test_a_program_of_another_machine_is_named(tmp_path: Path) -> None:
    folder = fake_programs(tmp_path / "bin")
    (folder / "postgres").write_bytes(b"\x7fELF for another machine")
    with pytest.raises(EmbeddedPostgresError, match="doesn't run here"):
        find_binaries({"PG_BIN": str(folder)}).major()


@pytest.mark.parametrize("version", ["17", "19", "9.6"])
def test_a_cluster_of_another_major_version_is_refused(data_dir: Path, version: str) -> None:
    (data_dir / "cluster").mkdir(parents=True)
    (data_dir / "cluster" / "PG_VERSION").write_text(f"{version}\n")
    with pytest.raises(EmbeddedPostgresError) as failure:
        EmbeddedPostgres.start(data_dir)
    for part in (f"Postgres {version}", "Postgres 18", "PG_BIN", "pg_dump"):
        assert part in failure.value.message
    assert not servers(data_dir)


def test_a_cluster_without_version_is_refused(data_dir: Path) -> None:
    (data_dir / "cluster").mkdir(parents=True)
    with pytest.raises(EmbeddedPostgresError, match="not a whole Postgres cluster"):
        EmbeddedPostgres.start(data_dir)


def test_a_system_without_the_first_locale_takes_the_next(
    data_dir: Path, open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = open_dir / "asked"
    asked.touch()
    asked.chmod(0o666)
    script = f"echo \"$*\" >> {asked}; echo 'initdb: error: invalid locale name' >&2; exit 1"
    monkeypatch.setenv("PG_BIN", str(fake_programs(open_dir / "bin", initdb=script)))
    with pytest.raises(EmbeddedPostgresError, match="invalid locale name"):
        EmbeddedPostgres.start(data_dir)
    lines = asked.read_text().splitlines()
    assert ["--locale=C.UTF-8" in line for line in lines] == [True, False]
    assert "--locale=en_US.UTF-8" in lines[1]
