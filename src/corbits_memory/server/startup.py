"""Bringing a host up: configuration, database, migrations, memory, first token, web server."""

import asyncio
import gc
import json
import os
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import resources

import stamina
from stamina.instrumentation import LoggingOnRetryHook

from corbits_memory import create_memory, load_memory_config, run_memory_migrations
from corbits_memory.access.conditions import BUILT_IN_CONDITIONS
from corbits_memory.access.postgres import PostgresGrantStore
from corbits_memory.config import LOCAL_BASE_URL, EngineConfig, MemoryConfig
from corbits_memory.engine import audit
from corbits_memory.engine.migrate import Migration, read_migrations
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.engine.store import PostgresDocumentStore
from corbits_memory.errors import MigrationError
from corbits_memory.plane import Memory
from corbits_memory.server.banner import Started, print_banner
from corbits_memory.server.health import SECOND_LOCK_OFF
from corbits_memory.server.places import DATABASE_URL, Choice, Place, choose_database, open_place
from corbits_memory.server.settings import HostSettings
from corbits_memory.server.tokens import NewToken, Tokens

HOST_SCHEMA = "memory_host"
HOST_CONNECTIONS = 4
GRANT_CONNECTIONS = 4
PRESET_CHARS_SAFE = 24

_ANYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """An open memory, and the store under it for what the plane has no verb for."""

    memory: Memory
    store: PostgresDocumentStore
    config: EngineConfig


def host_migrations() -> list[Migration]:
    return read_migrations(resources.files("corbits_memory.server").joinpath("migrations"))


def check_configuration(environ: Mapping[str, str] = os.environ) -> None:
    """Tell what is wrong with the configuration before anything is started. Raises ``ConfigError``."""
    load_memory_config(environ, database_url="postgresql:///unused")


def memory_config(place: Place, environ: Mapping[str, str] = os.environ) -> MemoryConfig:
    """The engine's configuration on this place, whatever ``DATABASE_URL`` says. Raises ``ConfigError``."""
    return load_memory_config({**environ, DATABASE_URL: place.url})


async def migrate(config: EngineConfig) -> list[str]:
    """Bring the memory's and the host's schemas up to date; what was applied now."""
    applied = await run_memory_migrations(config.database_url, fts_language=config.fts_language)
    applied += [
        f"{HOST_SCHEMA}/{name}"
        for name in await run_memory_migrations(
            config.database_url, migrations=host_migrations(), schema=HOST_SCHEMA
        )
    ]
    return applied


@asynccontextmanager
async def open_plane(config: MemoryConfig, *, run_worker: bool) -> AsyncIterator[Plane]:
    """A memory over the configured database, with the grants that it keeps, open while in the block."""
    # Imported here: only an opened memory needs its models.
    from corbits_memory.extract import FileTextExtractor
    from corbits_memory.models.factory import ConfiguredModels, build_embedder, build_reranker

    # Retries belong in the logs; by default the library prints them where it likes.
    stamina.instrumentation.set_on_retry_hooks([LoggingOnRetryHook])
    engine = replace(config.memory, run_worker=run_worker)
    store = PostgresDocumentStore(
        engine,
        embedder=build_embedder(engine.embed),
        reranker=build_reranker(engine.rerank),
        models=ConfiguredModels(),
    )
    # Of their own, so that a request never waits for its grants behind those that are searching.
    grants = Database(engine.database_url, pool_max=GRANT_CONNECTIONS)
    memory = create_memory(
        replace(config, memory=engine),
        document_store=store,
        grant_store=PostgresGrantStore(grants, conditions=BUILT_IN_CONDITIONS, audit=audit.record),
        text_extractor=FileTextExtractor(),
    )
    # The memory first: it checks that the tables are there.
    async with memory, opened(grants):
        # What stands by now stays, and the collector of cycles need not walk it again and again.
        gc.freeze()
        try:
            yield Plane(memory=memory, store=store, config=engine)
        finally:
            gc.unfreeze()


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Database]:
    """Connections that are open while in the block."""
    try:
        await database.open()
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def open_host_database(url: str) -> AsyncIterator[Database]:
    """The host's own few connections. Raises ``MigrationError`` when its tables are not there."""
    async with opened(Database(url, pool_max=HOST_CONNECTIONS)) as database:
        async with database.autocommit() as conn:
            if not await has_host_tables(conn):
                raise MigrationError("The host's tables are missing. Run: corbits-memory db migrate")
        yield database


async def has_host_tables(conn: Connection) -> bool:
    row = await (await conn.execute("SELECT to_regclass('memory_host.token') IS NOT NULL")).fetchone()
    return bool(row and row[0])


def serve(
    settings: HostSettings, choice: Choice, *, environ: Mapping[str, str] = os.environ, as_json: bool = False
) -> None:
    """Run the host until Ctrl-C or SIGTERM. Raises ``ConfigError`` saying what to mend."""
    from corbits_memory.server.listen import bind

    check_configuration(environ)
    # First of all: a port that is taken should not cost the start of a database.
    with bind(settings.host, settings.port) as listener, open_place(choice, environ) as place:
        options = _options(choice, place, environ)
        asyncio.run(_serve(settings, place, listener, environ, options=options, as_json=as_json))


async def _serve(
    settings: HostSettings,
    place: Place,
    listener: socket.socket,
    environ: Mapping[str, str],
    *,
    options: str,
    as_json: bool,
) -> None:
    from corbits_memory.server.app import host_app
    from corbits_memory.server.identity import TokenIdentity
    from corbits_memory.server.listen import HostServer, server_config
    from corbits_memory.server.rates import TokenBuckets

    config = memory_config(place, environ)
    await migrate(config.memory)
    async with (
        open_host_database(place.url) as database,
        open_plane(config, run_worker=True) as plane,
    ):
        tokens = Tokens(database)
        preset = settings.token.get_secret_value() if settings.token is not None else None
        first = await tokens.ensure_first(preset)
        started = Started(
            url=_url(settings.host, listener),
            place=place,
            model=describe_model(plane.config),
            token=first.secret if first is not None and preset is None else None,
            preset=preset is not None,
            options=options,
            warnings=tuple(await _warnings(settings, database, tokens, preset, first)),
        )
        per_minute = settings.requests_per_minute
        identity = TokenIdentity(
            tokens,
            failures=TokenBuckets(settings.failures_per_minute),
            requests=None if per_minute is None else TokenBuckets(per_minute),
        )
        app = host_app(
            plane.memory,
            identity=identity,
            database=database,
            replica=plane.store.replica,
            trusted_proxies=settings.trusted_proxies,
            public_url=settings.public_url,
            authorization_servers=settings.authorization_servers,
        )
        server = HostServer(
            server_config(app, max_connections=settings.max_connections),
            on_start=lambda: _announce(started, as_json=as_json),
            on_stop=plane.memory.stop_following,
        )
        async with app.state.mcp.running():
            await server.serve(sockets=[listener])


def _announce(started: Started, *, as_json: bool) -> None:
    if not as_json:
        print_banner(started)
        return
    sys.stdout.write(json.dumps(started.to_json()) + "\n")
    sys.stdout.flush()


def describe_model(config: EngineConfig) -> str:
    """The embedding model for people."""
    embed = config.embed
    if embed is None:
        return "none (search by words alone)"
    return f"{embed.model} ({'in this process' if embed.base_url == LOCAL_BASE_URL else embed.api_style})"


async def _warnings(
    settings: HostSettings, database: Database, tokens: Tokens, preset: str | None, first: NewToken | None
) -> Sequence[str]:
    found = []
    if not database.second_lock:
        found.append(SECOND_LOCK_OFF)
    if settings.host not in _LOOPBACK:
        found.append(
            "other machines can reach this server, and it speaks plain HTTP: put a proxy with TLS in front of it."
        )
    if preset is not None:
        if len(preset) < PRESET_CHARS_SAFE:
            found.append(
                f"CORBITS_MEMORY_TOKEN has fewer than {PRESET_CHARS_SAFE} characters: use a long random one."
            )
        if first is None and await tokens.verify(preset) is None:
            found.append("the token in CORBITS_MEMORY_TOKEN was revoked or has expired: set another one.")
    return found


def _options(choice: Choice, place: Place, environ: Mapping[str, str]) -> str:
    if choice == choose_database(data_dir=None, database_url=None, environ=environ):
        return ""
    # A URL may hold a password, which has no place on a screen.
    return f" --data-dir {shlex.quote(place.location)}" if place.embedded else " --database-url URL"


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
