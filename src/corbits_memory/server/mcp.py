"""``/mcp`` on the reference host: the same memory, the same tokens, over MCP's streamable HTTP.

A request's token says who acts, here as on every other route; what it asks goes through the mounted routes within
this process, so that MCP has the same guard, validation and limits, and no door of its own.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import httpx2
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from corbits_memory.client import MemoryClient
from corbits_memory.core.enums import Capability
from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.errors import UnauthorizedError, UnavailableError
from corbits_memory.http import Identity, memory_app
from corbits_memory.http.errors import REQUEST_ID, error_answer, request_id_of
from corbits_memory.http.identity import resolve_caller
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.tools import MemoryTools
from corbits_memory.tools.mcp.server import Context, memory_mcp_server

PATH = "/mcp"
METADATA_PATH = f"/.well-known/oauth-protected-resource{PATH}"
_CALLER = "corbits_memory.caller"
_PREFIX = "/memory"
"""Of the routes within the process; it names no tenant, since the caller does."""


class McpDoor:
    """The endpoint and what clients discover it by. Stateless: any process answers any request."""

    def __init__(
        self,
        memory: Memory,
        *,
        identity: Identity,
        public_url: str | None = None,
        authorization_servers: Sequence[str] = (),
    ) -> None:
        """``public_url``: the origin under which clients reach this host, where a proxy stands in front;
        ``authorization_servers``: whose OAuth tokens that proxy takes, so that clients find out by themselves."""
        self._authorization_servers = list(authorization_servers)
        self._identity = identity
        self._public_url = public_url.rstrip("/") if public_url else None
        self._acting: ContextVar[Caller] = ContextVar("caller")
        routes = memory_app(memory, identity=lambda _: self._acting.get(), prefix=_PREFIX)
        self._client = MemoryClient(
            "http://memory.internal",
            tenant="-",
            token="-",  # noqa: S106 - nobody looks at it: the caller was let in already
            prefix=_PREFIX,
            # The routes have limits of their own.
            timeout=None,
            attempts=1,
            trust_env=False,
            transport=httpx2.ASGITransport(app=routes),
        )
        self._tools = MemoryTools(self._client)
        self._sessions: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers while in the block; may be entered again."""
        sessions = StreamableHTTPSessionManager(
            memory_mcp_server(self._tools_of),
            stateless=True,
            max_request_body_size=BODY_BYTES,
            # No check of Host: what that protects against is a page of another site that calls without a credential.
            security_settings=None,
        )
        async with sessions.run():
            self._sessions = sessions
            try:
                yield
            finally:
                self._sessions = None

    def routes(self) -> Sequence[Route]:
        return [
            Route(PATH, self),
            Route(METADATA_PATH, self.describe),
            Route(METADATA_PATH.removesuffix(PATH), self.describe),
        ]

    async def describe(self, request: Request) -> Response:
        """OAuth protected-resource metadata (RFC 9728): how to authenticate here.

        Without issuers tokens are the operator's to give, and the member is left out: to name one that gives none
        would send clients astray.
        """
        issuers = self._authorization_servers
        origin = self._origin(request)
        return JSONResponse(
            {
                "resource": origin + PATH,
                **({"authorization_servers": issuers} if issuers else {}),
                "resource_name": "Corbits Memory",
                "resource_documentation": f"{origin}/docs",
                "bearer_methods_supported": ["header"],
                "scopes_supported": [str(capability) for capability in Capability],
            },
            headers={REQUEST_ID: request_id_of(request), "access-control-allow-origin": "*"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if request.method != "POST":
                # No stream of the server's own, and no session to end.
                raise HTTPException(405, headers={"allow": "POST"})
            scope[_CALLER] = await resolve_caller(request, self._identity)
            if self._sessions is None:
                raise UnavailableError
        except Exception as error:  # noqa: BLE001 - the last door: what is unforeseen is logged and told as 500
            response = error_answer(request, error)
            if isinstance(error, UnauthorizedError):
                where = self._origin(request) + METADATA_PATH
                response.headers["www-authenticate"] = f'Bearer resource_metadata="{where}"'
            await response(scope, receive, send)
            return

        async def identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id_of(request)
            await send(message)

        await self._sessions.handle_request(scope, receive, identified)

    def _tools_of(self, ctx: Context) -> MemoryTools:
        """The tools, and from here on whoever sent the request acts. Each request is answered in a task of its own."""
        request: Any = ctx.request
        self._acting.set(request.scope[_CALLER])
        return self._tools

    def _origin(self, request: Request) -> str:
        return self._public_url or f"{request.url.scheme}://{request.url.netloc}"
