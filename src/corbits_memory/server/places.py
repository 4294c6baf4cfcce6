"""Which database: a Postgres of our own in a data directory, or one that somebody runs."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corbits_memory.errors import ConfigError

DATA_DIR = "CORBITS_MEMORY_DATA_DIR"
DATABASE_URL = "DATABASE_URL"


class AmbiguousDatabaseError(ConfigError):
    """Two databases are named; name one."""

    code = "ambiguous_database"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was asked for. Exactly one is set."""

    data_dir: Path | None = None
    database_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database that can be used now."""

    url: str
    embedded: bool
    location: str
    """The data directory, or host, port and name of the database; never a password."""
    fresh: bool = False
    """Whether the embedded cluster was made just now."""
    warnings: tuple[str, ...] = ()

    @property
    def lasts(self) -> bool:
        return not self.warnings or not self.embedded


def choose_database(*, data_dir: Path | None, database_url: str | None, environ: Mapping[str, str]) -> Choice:
    """From the options of a command and from the environment.

    ``DATABASE_URL`` beats ``CORBITS_MEMORY_DATA_DIR``. An option that contradicts a variable is refused: going
    by either could write into a database that nobody meant. Raises :class:`AmbiguousDatabaseError`.
    """
    named = environ.get(DATABASE_URL, "").strip() or None
    if data_dir is not None and database_url is not None:
        raise AmbiguousDatabaseError(
            "--data-dir and --database-url name two databases: leave one of them out."
        )
    if data_dir is not None and named is not None:
        raise AmbiguousDatabaseError(
            f"--data-dir asks for an embedded Postgres, but {DATABASE_URL} is set: unset {DATABASE_URL}, "
            "or leave --data-dir out."
        )
    if data_dir is not None:
        return Choice(data_dir=data_dir)
    if database_url or named:
        return Choice(database_url=database_url or named)
    configured = environ.get(DATA_DIR, "").strip()
    return Choice(data_dir=Path(configured) if configured else _default_data_dir())


@contextmanager
def open_place(choice: Choice, environ: Mapping[str, str] = os.environ) -> Iterator[Place]:
    """The place, with its embedded server running (shared with whoever else uses it) while in the block.

    Raises ``EmbeddedPostgresError``.
    """
    if choice.database_url is not None:
        yield Place(url=choice.database_url, embedded=False, location=describe_url(choice.database_url))
        return
    if choice.data_dir is None:
        raise ConfigError("No database is named.")
    from corbits_memory.engine.embedded.supervisor import EmbeddedPostgres

    with EmbeddedPostgres.start(choice.data_dir) as server:
        yield Place(
            url=server.url,
            embedded=True,
            location=str(server.data_dir),
            fresh=server.fresh,
            warnings=_warnings(server.data_dir, environ),
        )


def describe_url(url: str) -> str:
    """Host, port and database of a URL, for people; nothing that is secret."""
    from psycopg import ProgrammingError, conninfo

    try:
        parts = conninfo.conninfo_to_dict(url)
    except ProgrammingError:
        # The driver's message quotes the URL, and that may hold a password.
        raise ConfigError(
            f"{DATABASE_URL} is not a Postgres URL: write postgresql://user:password@host:port/database"
        ) from None
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    port = parts.get("port")
    return f"{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"


def _warnings(data_dir: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    from corbits_memory.engine.embedded.checks import misspelt_database_url, persistence_warning

    found = []
    if (passing := persistence_warning(data_dir)) is not None:
        found.append(passing)
    if (name := misspelt_database_url(environ)) is not None:
        found.append(
            f"{name} is set, but the variable is called {DATABASE_URL}: the embedded Postgres is used. "
            f"Set {DATABASE_URL} if you meant your own."
        )
    return tuple(found)


def _default_data_dir() -> Path:
    from corbits_memory.engine.embedded.supervisor import default_data_dir

    return default_data_dir()
