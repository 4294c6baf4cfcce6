"""A host that runs in the test's own process, on a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import httpx2

from corbits_memory.core.enums import Capability
from corbits_memory.ports import Caller
from corbits_memory.server.listen import HostServer, PatientProtocol, bind, server_config
from corbits_memory.server.tokens import Tokens

MEMORY = "/api/tenants/{tenant}/memory"


@asynccontextmanager
async def running(
    app: Any, *, protocol: type[PatientProtocol] = PatientProtocol, max_connections: int = 100
) -> AsyncIterator[str]:
    """Serve an ASGI app; its URL."""
    started = asyncio.Event()
    config = server_config(app, max_connections=max_connections)
    config.http = protocol
    server = HostServer(config, on_start=started.set)
    with bind("127.0.0.1", 0) as listener:
        task = asyncio.create_task(_serve(app, server, listener))
        await asyncio.wait_for(started.wait(), 10)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def _serve(app: Any, server: HostServer, listener: socket.socket) -> None:
    door = getattr(getattr(app, "state", None), "mcp", None)
    async with nullcontext() if door is None else door.running():
        await server.serve(sockets=[listener])


@dataclass(frozen=True, slots=True)
class Host:
    url: str
    tokens: Tokens
    client: httpx2.AsyncClient

    async def token(self, caller: Caller) -> dict[str, str]:
        """The headers of a new token for ``caller``."""
        made = await self.tokens.create(
            tenant_id=caller.tenant_id,
            principal_id=caller.principal_id,
            capabilities=caller.capabilities or frozenset(Capability),
        )
        return bearer(made.secret)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def route(tenant: str, verb: str) -> str:
    return f"{MEMORY.format(tenant=tenant)}/{verb}"
