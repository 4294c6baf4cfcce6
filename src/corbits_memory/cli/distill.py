"""``corbits-memory distill``: a chat model makes claims of what is new in the memory."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corbits_memory.cli.backend import Remote, Target, remote_of
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import clean, note, print_json, print_table
from corbits_memory.cli.run import FAILED, run_async
from corbits_memory.core.limits import FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX, SAFE_INTEGER
from corbits_memory.errors import ConflictError

if TYPE_CHECKING:
    from corbits_memory.client import MemoryClient
    from corbits_memory.distiller import Consumer, CursorStore, Failure, PlaneMemory, ResidentTick

AGENT = "resident-distiller"
INTERVAL = 300.0
HELD = "A distiller works with this cursor; end it first."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the options say, the database or server apart."""

    agent: str
    once: bool
    limit: int
    interval: float
    attempts: int
    begin: int | None
    state: Path | None
    failed: bool
    retry: bool
    as_json: bool


def distill(
    once: Annotated[bool, typer.Option("--once", help="One page of the feed, then end.")] = False,
    agent: Annotated[
        str, typer.Option(help="The name that claims are written under; each distiller has its own.")
    ] = AGENT,
    limit: Annotated[
        int, typer.Option(min=1, max=FEED_LIMIT_MAX, help="Entries of one page.")
    ] = FEED_LIMIT_DEFAULT,
    interval: Annotated[
        float, typer.Option(min=1.0, max=86_400.0, help="Seconds between looks for what is new.")
    ] = INTERVAL,
    attempts: Annotated[
        int, typer.Option(min=1, max=100, help="How often an entry may fail before it is given up.")
    ] = 5,
    begin: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            max=SAFE_INTEGER,
            help="Go on behind this number of the feed, forwards or back. Default: where it was, at first 0.",
            show_default=False,
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only list what was given up, and why.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try what was given up again, too.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            help="With --url: the file that keeps how far it is. Default: one of the user's state folder.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Make claims of what is new, with the chat model that DISTILL_BASE_URL and DISTILL_MODEL name, until Ctrl-C.

    Several may run on one database: one at a time works. --json: a line a page.
    """
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    asked = _Asked(
        agent=agent,
        once=once,
        limit=limit,
        interval=interval,
        attempts=attempts,
        begin=begin,
        state=state,
        failed=failed,
        retry=retry,
        as_json=as_json,
    )
    run_async(_distill(target, asked, os.environ))


async def _distill(target: Target, asked: _Asked, environ: Mapping[str, str]) -> None:
    from corbits_memory.distiller import (
        ChatDistiller,
        Consumer,
        create_resident_distiller,
        load_chat_config,
        related_by_search,
    )

    # Told before a database is started.
    config = None if asked.failed else load_chat_config(environ)
    consumer = Consumer(tenant_id=target.tenant, principal_id=target.principal, agent_id=asked.agent)
    async with _opened(target, asked, consumer, environ) as (memory, cursors):
        if config is None:
            await _list_failures(cursors, consumer, as_json=asked.as_json)
            return
        await _prepare(cursors, consumer, asked)
        async with ChatDistiller(config, related=related_by_search(memory)) as chat:
            resident = create_resident_distiller(
                memory,
                distill=chat,
                cursors=cursors,
                tenant_id=target.tenant,
                principal_id=target.principal,
                agent_id=asked.agent,
                interval=asked.interval,
                attempts=asked.attempts,
                limit=asked.limit,
            )
            if not asked.once:
                note(f"distilling with {config.model}; Ctrl-C ends it")
                await resident.run(on_tick=lambda tick: _tell(tick, asked), stop=_stop_on_signals())
                return
            done = await resident.tick(impatient=True)
            _tell(done, asked)
            if done.problem is not None:
                raise typer.Exit(FAILED)


@asynccontextmanager
async def _opened(
    target: Target, asked: _Asked, consumer: "Consumer", environ: Mapping[str, str]
) -> AsyncIterator[tuple["MemoryClient | PlaneMemory", "CursorStore"]]:
    """The memory, and where the cursor is kept: in its database, or with a server in a file."""
    remote = remote_of(target, environ)
    async with AsyncExitStack() as stack:
        if remote is not None:
            import stamina
            from stamina.instrumentation import LoggingOnRetryHook

            from corbits_memory.client import MemoryClient
            from corbits_memory.distiller.file import FileCursors

            # Its own default would print each retry.
            stamina.instrumentation.set_on_retry_hooks([LoggingOnRetryHook])
            client = MemoryClient(remote.url, tenant=target.tenant, token=remote.token)
            await stack.enter_async_context(client)
            yield client, FileCursors(asked.state or _state_file(remote, consumer))
            return
        from corbits_memory.cli.direct import open_local_plane
        from corbits_memory.distiller import PlaneMemory
        from corbits_memory.distiller.postgres import PostgresCursors
        from corbits_memory.engine.pool import Database
        from corbits_memory.server.startup import opened

        plane = await stack.enter_async_context(open_local_plane(target, environ, run_worker=True))
        database = await stack.enter_async_context(opened(Database(plane.config.database_url, pool_max=2)))
        memory = PlaneMemory(plane.memory, tenant_id=target.tenant, principal_id=target.principal)
        yield memory, PostgresCursors(database)


def _state_file(remote: Remote, consumer: "Consumer") -> Path:
    """One for each server and consumer."""
    from hashlib import sha256

    import platformdirs

    named = "\0".join((remote.url, consumer.tenant_id, consumer.principal_id, consumer.agent_id))
    digest = sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return platformdirs.user_state_path("corbits-memory") / f"distill-{digest}.json"


async def _prepare(cursors: "CursorStore", consumer: "Consumer", asked: _Asked) -> None:
    if asked.begin is not None and not await cursors.move(consumer, asked.begin):
        raise ConflictError(HELD)
    if asked.retry:
        again = await cursors.retry(consumer)
        note(f"{again} to be tried again")


async def _list_failures(cursors: "CursorStore", consumer: "Consumer", *, as_json: bool) -> None:
    found: list[Failure] = []
    after = 0
    while page := await cursors.failures(consumer, after=after):
        found += page
        after = page[-1].seq
    if as_json:
        print_json(
            [
                {
                    "seq": one.seq,
                    "versionId": one.version_id,
                    "attempts": one.attempts,
                    "reason": one.reason,
                    "failedAt": one.failed_at.isoformat(),
                }
                for one in found
            ]
        )
    elif not found:
        note("Nothing was given up.")
    else:
        rows = [
            (str(one.seq), one.version_id, str(one.attempts), f"{one.failed_at:%Y-%m-%d %H:%M}", one.reason)
            for one in found
        ]
        print_table(("number", "version", "attempts", "at", "reason"), rows)


def _tell(done: "ResidentTick", asked: _Asked) -> None:
    tick = done.tick
    if asked.as_json:
        print_json(_json(done))
        # Whoever reads this through a pipe waits for it.
        sys.stdout.flush()
        return
    if done.busy:
        if asked.once:
            note("Nothing was done: another distiller has the cursor.")
        return
    for wrote in tick.wrote:
        note(f"{wrote.seq:>6}  {wrote.answer.document_id}  {clean(str(wrote.claim['title']))}")
    for one in tick.poisoned:
        note(f"{one.seq:>6}  given up: {clean(one.reason)}")
    if tick.processed or asked.once:
        counts = f"{len(tick.wrote)} written, {tick.skipped} skipped, {len(tick.poisoned)} given up"
        note(f"up to {tick.next_cursor}: {counts}")
    if done.problem is not None:
        note(f"{clean(done.problem)} (again in {done.wait_seconds:.0f} s)")


def _json(done: "ResidentTick") -> dict[str, Any]:
    tick = done.tick
    return {
        "nextCursor": tick.next_cursor,
        "processed": tick.processed,
        "skipped": tick.skipped,
        "wrote": [
            {
                "seq": one.seq,
                "documentId": one.answer.document_id,
                "versionId": one.answer.version_id,
                "status": str(one.answer.status),
            }
            for one in tick.wrote
        ],
        "poisoned": [
            {"seq": one.seq, "versionId": one.version_id, "attempts": one.attempts, "reason": one.reason}
            for one in tick.poisoned
        ],
        "hasMore": tick.has_more,
        "busy": done.busy,
        "problem": done.problem,
        "waitSeconds": done.wait_seconds,
    }


def _stop_on_signals() -> Any:
    """Set on Ctrl-C and SIGTERM: the entry in the middle is left for the next start, the lease given back."""
    import anyio

    stop = anyio.Event()
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    return stop
