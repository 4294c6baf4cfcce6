"""One Postgres server for all processes that use a data directory."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql
from psycopg.pq import Ping

from corbits_memory.engine.embedded import checks, initdb, sockets
from corbits_memory.engine.embedded.account import server_account
from corbits_memory.engine.embedded.binaries import Binaries, find_binaries, reachable_binaries
from corbits_memory.engine.embedded.launch import Launch, launch_server
from corbits_memory.engine.embedded.layout import Layout, log_tail, make_home, unwritable
from corbits_memory.engine.embedded.locks import FileLock
from corbits_memory.engine.embedded.passwords import set_password
from corbits_memory.engine.embedded.pidfile import PidFile, read_pid_file, runs_on
from corbits_memory.engine.embedded.urls import MAINTENANCE_DATABASE, ping, socket_url, tcp_url
from corbits_memory.errors import EmbeddedPostgresError

logger = logging.getLogger("corbits_memory.engine.embedded")

DATABASE = "corbits_memory"

START_LOCK_SECONDS = 660.0
STOP_SECONDS = 120.0
ANSWER_SECONDS = 60.0
"""How long a server that runs already may take to answer."""

_POLL_SECONDS = 0.02
_CONNECT_SECONDS = 10
_ATTEMPTS = 3


class EmbeddedPostgres:
    """A share in the server of one data directory.

    The server runs while anybody holds a share. A process that dies gives its share back: the kernel drops
    its lock. Make one with :func:`start_embedded_postgres`; all methods block, so that asynchronous callers
    run them in a thread.
    """

    def __init__(
        self, layout: Layout, *, database: str, tcp_port: int | None, options: Mapping[str, str]
    ) -> None:
        self.fresh = False
        """Whether this start made the cluster."""
        self._layout = layout
        self._database = database
        self._tcp_port = tcp_port
        self._options = dict(options)
        self._lease: FileLock | None = None
        self._account = server_account((layout.cluster, layout.home))
        self._url = ""
        self._tcp_url: str | None = None

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        database: str = DATABASE,
        tcp_port: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Self:
        """Use the server of ``data_dir``; start it when none runs, make the cluster when there is none.

        ``tcp_port`` opens TCP on localhost as well, with a password. ``options`` are Postgres settings; both
        count only for who starts the server, and asking for TCP from one that runs without is an error.

        :raises EmbeddedPostgresError: the message says why and what to do; that of a failed start ends with
            the last lines of the server's log.
        """
        checks.refuse_unsupported(data_dir)
        layout = Layout.of(data_dir)
        make_home(layout)
        server = cls(layout, database=database, tcp_port=tcp_port, options=options or {})
        try:
            server._attach()
        except BaseException:
            server._drop_lease()
            raise
        return server

    @property
    def data_dir(self) -> Path:
        return self._layout.home

    @property
    def log_file(self) -> Path:
        return self._layout.log

    @property
    def url(self) -> str:
        """Connection URI by Unix socket, without a password."""
        return self._url

    @property
    def tcp_url(self) -> str | None:
        """Connection URI by TCP, with the password, when TCP was asked for."""
        return self._tcp_url

    @property
    def pid(self) -> int | None:
        """The server's process now; None while it is down."""
        record = read_pid_file(self._layout.cluster)
        return record.pid if record is not None else None

    def ensure_running(self) -> None:
        """Return once the server answers; start it again when it is gone.

        :raises EmbeddedPostgresError: it can't be started, or this share was given back.
        """
        if self._lease is None:
            raise EmbeddedPostgresError(
                f"This share of the server in {self.data_dir} was stopped: start a new one."
            )
        if self._ping() != Ping.OK:
            self._attach()

    def stop(self) -> None:
        """Give the share back; the last one stops the server and waits until it is down. May be repeated."""
        if self._lease is None:
            return
        self._drop_lease()
        # Somebody removed the data directory: the guardian has its own hold on the lock, and stops the server.
        with contextlib.suppress(FileNotFoundError), self._lock(self._layout.lease_lock) as lease:
            if lease.try_exclusive():
                self._stop_server()
            elif lease.try_shared():
                return
            # Neither way: the guardian was faster and is stopping the server.
            elif not lease.wait_shared(seconds=STOP_SECONDS):
                logger.warning("The server in %s is still stopping after %s s", self.data_dir, STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._lease is None else "in use"
        return f"<EmbeddedPostgres {str(self.data_dir)!r} {state}>"

    # --- joining -------------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Hold a share and have a server that answers, whoever started it."""
        try:
            self._join()
        except OSError as exc:
            raise unwritable(self.data_dir, exc) from exc

    def _join(self) -> None:
        with self._lock(self._layout.start_lock) as start_lock:
            if not start_lock.wait_exclusive(seconds=START_LOCK_SECONDS):
                raise EmbeddedPostgresError(
                    f"Another process has been starting the server in {self.data_dir} for "
                    f"{START_LOCK_SECONDS:.0f} s. Look at {self._layout.log}, or end that process."
                )
            self._take_lease()
            for attempts_left in reversed(range(_ATTEMPTS)):
                self._find_or_start()
                try:
                    self._connect()
                except psycopg.Error as exc:
                    # It may have been killed in this very moment.
                    if not attempts_left or not isinstance(exc, psycopg.OperationalError):
                        raise self._unusable(exc) from exc
                else:
                    return

    def _take_lease(self) -> None:
        if self._lease is not None:
            return
        lease = self._lock(self._layout.lease_lock)
        # Held exclusively while the last server is being stopped.
        if not lease.wait_shared(seconds=STOP_SECONDS):
            lease.close()
            raise EmbeddedPostgresError(
                f"The server in {self.data_dir} has been stopping for {STOP_SECONDS:.0f} s. "
                f"Look at {self._layout.log}, then start again."
            )
        self._lease = lease

    def _find_or_start(self) -> None:
        with self._lock(self._layout.server_lock) as server_lock:
            if server_lock.try_exclusive() or self._find_running(server_lock):
                self._start_server(server_lock)

    def _find_running(self, server_lock: FileLock) -> bool:
        """Wait for the running server to answer; True when it ended meanwhile, and its lock is ours."""
        heard = time.monotonic()
        while (answer := self._ping()) != Ping.OK:
            if server_lock.try_exclusive():
                return True
            if answer == Ping.REJECT:
                # It is coming up, perhaps with a long log to replay after a crash.
                heard = time.monotonic()
            elif time.monotonic() - heard >= ANSWER_SECONDS:
                raise self._unreachable()
            time.sleep(_POLL_SECONDS)
        return False

    def _unreachable(self) -> EmbeddedPostgresError:
        record = read_pid_file(self._layout.cluster)
        return EmbeddedPostgresError(
            f"A server of {self.data_dir} runs (pid {record.pid if record else 'unknown'}) but has not answered "
            f"for {ANSWER_SECONDS:.0f} s. It may be in another container, or overloaded, or processes of a dead "
            f"one are left: stop those, or use another data directory. The end of {self._layout.log}:\n"
            f"{log_tail(self._layout)}"
        )

    def _unusable(self, exc: psycopg.Error) -> EmbeddedPostgresError:
        return EmbeddedPostgresError(
            f"The server in {self.data_dir} can't be used: {exc}. "
            f"The end of {self._layout.log}:\n{log_tail(self._layout)}"
        )

    def _start_server(self, server_lock: FileLock) -> None:
        initdb.remove_leftovers(self._layout)
        binaries = reachable_binaries(find_binaries(os.environ), self._account)
        self._ensure_cluster(binaries)
        launch_server(
            Launch(
                layout=self._layout,
                binaries=binaries,
                account=self._account,
                tcp_port=self._tcp_port,
                options=self._options,
            ),
            server_lock,
        )
        logger.info("Started Postgres in %s", self.data_dir)

    def _ensure_cluster(self, binaries: Binaries) -> None:
        if self._layout.cluster.exists():
            initdb.check_version(self._layout, binaries)
            return
        initdb.create_cluster(self._layout, binaries, self._account)
        self.fresh = True

    # --- talking -------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Make the database when it is missing, and set the URLs."""
        record = read_pid_file(self._layout.cluster)
        if record is None or record.socket_dir is None:
            raise psycopg.OperationalError("it has just ended")
        with _open(socket_url(record, MAINTENANCE_DATABASE)) as conn:
            _create_database(conn, self._database)
            if self._tcp_port is not None:
                self._check_tcp(record, self._tcp_port)
                password = set_password(conn, self._layout, self._account)
                self._tcp_url = tcp_url(self._tcp_port, password, self._database)
        self._url = socket_url(record, self._database)

    def _check_tcp(self, record: PidFile, port: int) -> None:
        if record.host is None or record.port != port:
            raise EmbeddedPostgresError(
                f"The server in {self.data_dir} runs already, without TCP port {port}. "
                "Stop the processes that use it, then start again."
            )

    def _ping(self) -> Ping:
        return ping(read_pid_file(self._layout.cluster))

    # --- leaving -------------------------------------------------------------------------------------

    def _drop_lease(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _stop_server(self) -> None:
        """Stop the server and wait until it is down. The lease must be held exclusively."""
        interrupted: int | None = None
        deadline = time.monotonic() + STOP_SECONDS
        with self._lock(self._layout.server_lock) as server_lock:
            while not server_lock.try_exclusive():
                # Again and again: whoever started it may have died before its pid was on record.
                record = read_pid_file(self._layout.cluster)
                if (
                    record is not None
                    and record.pid != interrupted
                    and runs_on(record.pid, self._layout.cluster)
                ):
                    _interrupt(record.pid)
                    interrupted = record.pid
                if time.monotonic() >= deadline:
                    logger.warning("The server in %s is still up after %s s", self.data_dir, STOP_SECONDS)
                    return
                time.sleep(_POLL_SECONDS)
        sockets.remove_short_socket_dir(self._layout)

    def _lock(self, path: Path) -> FileLock:
        return FileLock(path, account=self._account)


def start_embedded_postgres(
    data_dir: Path,
    *,
    database: str = DATABASE,
    tcp_port: int | None = None,
    options: Mapping[str, str] | None = None,
) -> EmbeddedPostgres:
    """See :meth:`EmbeddedPostgres.start`."""
    return EmbeddedPostgres.start(data_dir, database=database, tcp_port=tcp_port, options=options)


def default_data_dir() -> Path:
    """Where the server's data lies when nobody says otherwise: the user's folder for application data."""
    import platformdirs

    return Path(platformdirs.user_data_dir("corbits-memory", appauthor=False)) / "postgres"


def _interrupt(pid: int) -> None:
    """Ask for a fast shutdown: sessions end, everything is written."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)


def _open(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS)


def _create_database(conn: psycopg.Connection, name: str) -> None:
    found = conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
    if found is None:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
