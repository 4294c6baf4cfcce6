"""``corbits-memory mcp``: the memory as an MCP server on standard input and output."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from corbits_memory.cli.backend import Target, remote_of
from corbits_memory.cli.options import DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.run import run_async

if TYPE_CHECKING:
    from corbits_memory.client import MemoryClient


def mcp(
    tool: Annotated[
        list[str] | None,
        typer.Option(help="Only this tool, like memory_search; may be repeated.", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
) -> None:
    """Serve agents over MCP on standard input and output, from a database or (--url) from a server."""
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    run_async(_serve(target, tool or None))


async def _serve(target: Target, names: list[str] | None) -> None:
    import stamina
    from stamina.instrumentation import LoggingOnRetryHook

    from corbits_memory.tools import MemoryTools
    from corbits_memory.tools.mcp import serve_stdio

    # Its own default would print each retry.
    stamina.instrumentation.set_on_retry_hooks([LoggingOnRetryHook])
    async with _client(target, os.environ) as client:
        await serve_stdio(MemoryTools(client, names=names))


@asynccontextmanager
async def _client(target: Target, environ: Mapping[str, str]) -> AsyncIterator["MemoryClient"]:
    from corbits_memory.client import MemoryClient

    remote = remote_of(target, environ)
    if remote is not None:
        async with MemoryClient(remote.url, tenant=target.tenant, token=remote.token) as client:
            yield client
        return
    import httpx2

    from corbits_memory.cli.direct import open_memory
    from corbits_memory.core.enums import Capability
    from corbits_memory.http import memory_app
    from corbits_memory.ports import Caller

    caller = Caller(target.tenant, target.principal, frozenset(Capability))
    async with open_memory(target, environ, run_worker=True) as memory:
        routes = memory_app(memory, identity=lambda _: caller)
        async with MemoryClient(
            "http://memory.internal",
            tenant=target.tenant,
            token="-",  # noqa: S106 - whoever runs the command may read the database anyway
            timeout=None,
            transport=httpx2.ASGITransport(app=routes),
        ) as client:
            yield client
