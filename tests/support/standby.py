"""A streaming replica of a test's own server."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from corbits_memory.engine.embedded.account import Account, server_account
from corbits_memory.engine.embedded.binaries import find_binaries, reachable_binaries
from corbits_memory.engine.embedded.initdb import SUPERUSER, server_environment
from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres
from tests.support.postgres import FAST, database_url

SECONDS = 30.0


class Standby:
    """A server that replays what the primary writes. ``folder`` is one that the server's user may enter."""

    def __init__(self, primary: EmbeddedPostgres, folder: Path) -> None:
        self._folder = folder
        self._account: Account = server_account((primary.data_dir / "cluster", folder))
        self._programs = reachable_binaries(find_binaries(os.environ), self._account).folder
        if not (self._programs / "pg_basebackup").exists():
            pytest.skip("these Postgres programs have no pg_basebackup to make a replica with")
        self._data, self._sockets = folder / "data", folder / "run"
        for path in (self._data, self._sockets):
            path.mkdir(mode=0o700)
            self._account.take(path)
        self._process: subprocess.Popen[bytes] | None = None
        self._run("pg_basebackup", "-d", primary.url, "-D", str(self._data), "-R", "-c", "fast")

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self._sockets}&port=5432"

    def start(self) -> None:
        settings = {
            **FAST,
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets),
            "port": "5432",
            "hot_standby_feedback": "on",
            "dynamic_shared_memory_type": "mmap",
        }
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=server_environment(),
                cwd="/",
                **self._account.popen_options(),
            )
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                self.ask("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline, "the replica did not start"
                time.sleep(0.05)

    def stop(self) -> None:
        """At once, whatever is being read."""
        if self._process is not None:
            self._run("pg_ctl", "stop", "-D", str(self._data), "-m", "immediate")
            self._process.wait(SECONDS)
            self._process = None

    def pause(self) -> None:
        """From now on it stays where it is."""
        self.ask("SELECT pg_wal_replay_pause()")
        deadline = time.monotonic() + SECONDS
        while self.ask("SELECT pg_get_wal_replay_pause_state()") != "paused":
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def resume(self) -> None:
        self.ask("SELECT pg_wal_replay_resume()")

    def ask(self, statement: str) -> object:
        with psycopg.connect(self.url("postgres"), autocommit=True) as conn:
            row = conn.execute(statement.encode()).fetchone()
        return row and row[0]

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            capture_output=True,
            env=server_environment(),
            cwd="/",
            timeout=SECONDS,
            **self._account.popen_options(),
        )


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[str, Standby]]:
    """A primary and its replica while in the block: the URL of the maintenance database, and the replica."""
    with EmbeddedPostgres.start(folder / "primary", options=FAST) as primary:
        standby = Standby(primary, folder)
        standby.start()
        try:
            yield database_url(primary.url, "postgres"), standby
        finally:
            standby.stop()


def until_replayed(primary_url: str, standby: Standby) -> None:
    """Wait for the replica to have everything that is written now."""
    with psycopg.connect(primary_url, autocommit=True) as conn:
        row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    deadline = time.monotonic() + SECONDS
    while not standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{row[0]}'"):
        # At the border of a page, the place behind it is only reached with the next record.
        with psycopg.connect(primary_url, autocommit=True) as conn:
            conn.execute("SELECT pg_log_standby_snapshot()")
        assert time.monotonic() < deadline, "the replica did not catch up"
        time.sleep(0.05)
