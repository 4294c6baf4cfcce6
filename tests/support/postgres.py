"""One Postgres for the whole test run, shared by all its workers, and databases of a test's own."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from corbits_memory.engine.embedded.settings import shm_free
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres

FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_connections": "300",
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
}
"""Settings for data that nobody will miss."""

MEMORY_DIR = "CORBITS_MEMORY_TEST_DIR"
_SHM = Path("/dev/shm")
_ROOM = 4 * 1024**3
"""Bytes that have to be free. A run takes less than one gigabyte."""
_OURS = "corbits-memory-test-"

NewDatabase = Callable[..., str]


def open_memory_dir() -> None:
    """Let the run's server live in memory: a database has 670 files, and to make them takes a disk far longer."""
    if MEMORY_DIR in os.environ or shm_free(_SHM) < _ROOM or not _SHM.is_dir():
        return
    for left in _SHM.glob(f"{_OURS}*-*"):
        # What a killed run left. Its processes carry the number in the folder's name.
        number = left.name.removeprefix(_OURS).partition("-")[0]
        if number.isdecimal() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(left, ignore_errors=True)
    os.environ[MEMORY_DIR] = tempfile.mkdtemp(prefix=f"{_OURS}{os.getpid()}-", dir=_SHM)


def close_memory_dir() -> None:
    """Of whoever opened it."""
    folder = os.environ.get(MEMORY_DIR, "")
    if Path(folder).name.startswith(f"{_OURS}{os.getpid()}-"):
        del os.environ[MEMORY_DIR]
        shutil.rmtree(folder, ignore_errors=True)


def run_dir(factory: pytest.TempPathFactory) -> Path:
    """A folder of this test run, the same in each of its workers; in memory where there is room."""
    if in_memory := os.environ.get(MEMORY_DIR):
        return Path(in_memory)
    base = factory.getbasetemp()
    # Each xdist worker has its own folder in the run's.
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def create_database(cluster_url: str, name: str, template: str | None = None) -> str:
    """Make a database, a copy of ``template`` when given (nobody may be connected to that); its URL."""
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template is not None:
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
    _run(cluster_url, statement)
    return database_url(cluster_url, name)


def drop_database(cluster_url: str, name: str) -> None:
    """Drop a database, its sessions included; none is fine."""
    _run(cluster_url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def database_url(cluster_url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(cluster_url)._replace(path=f"/{quote(name, safe='')}"))


@pytest.fixture(scope="session")
def pg_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the maintenance database, as superuser, of the run's one server."""
    with EmbeddedPostgres.start(run_dir(tmp_path_factory) / "postgres", options=FAST) as server:
        yield database_url(server.url, "postgres")


@pytest.fixture(scope="session")
def database_names() -> Iterator[str]:
    """Names for databases that no other worker of this run uses."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return (f"test_{worker}_{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def new_module_database(pg_cluster: str, database_names: Iterator[str]) -> Iterator[NewDatabase]:
    """``new_module_database(template=None)`` makes a database that lives as long as the test module."""
    yield from _databases(pg_cluster, database_names)


@pytest.fixture
def new_database(pg_cluster: str, database_names: Iterator[str]) -> Iterator[NewDatabase]:
    """``new_database(template=None)`` makes an empty database, dropped after the test; answers its URL."""
    yield from _databases(pg_cluster, database_names)


def _databases(cluster_url: str, names: Iterator[str]) -> Iterator[NewDatabase]:
    made: list[str] = []

    def make(template: str | None = None) -> str:
        name = next(names)
        made.append(name)
        return create_database(cluster_url, name, template)

    yield make
    for name in made:
        drop_database(cluster_url, name)


def _run(url: str, statement: sql.SQL | sql.Composed) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement)
