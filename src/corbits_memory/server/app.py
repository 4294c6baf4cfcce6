"""The host's web app: the mounted memory, and what a server of its own needs around it."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from corbits_memory import register_memory_routes
from corbits_memory.engine.pool import Database
from corbits_memory.engine.replica import Replica
from corbits_memory.http import Identity
from corbits_memory.http.errors import error_answer
from corbits_memory.plane import Memory
from corbits_memory.server.docs import docs_routes
from corbits_memory.server.health import Health
from corbits_memory.server.listen import HEAD_BYTES
from corbits_memory.server.mcp import McpDoor
from corbits_memory.server.metrics import Metrics
from corbits_memory.server.middleware import Observed, SafeHeaders, SoundHead, TimelyBody


def host_app(
    memory: Memory,
    *,
    identity: Identity,
    database: Database,
    metrics: Metrics | None = None,
    replica: Replica | None = None,
    trusted_proxies: Sequence[str] = (),
    public_url: str | None = None,
    authorization_servers: Sequence[str] = (),
) -> Starlette:
    """The app. ``memory`` and ``database`` (the host's own connections) are opened by whoever serves it, who also
    enters ``app.state.mcp.running()``.

    ``replica``: what answers the memory's reads, for /readyz to tell of. ``trusted_proxies``: addresses or networks
    that may say in ``X-Forwarded-For`` who the client is. ``public_url``: the origin by which clients know this host.
    ``authorization_servers``: issuers that its OAuth metadata names.
    """
    metrics = metrics or Metrics()
    mcp = McpDoor(
        memory, identity=identity, public_url=public_url, authorization_servers=authorization_servers
    )

    async def fail(request: Request, error: Exception) -> Response:
        return error_answer(request, error)

    app = Starlette(
        routes=[
            Route("/", _home),
            *docs_routes(),
            *mcp.routes(),
            *Health(memory=memory, database=database, metrics=metrics, replica=replica).routes(),
        ],
        exception_handlers={HTTPException: fail},
        middleware=[
            Middleware(Observed, metrics=metrics),
            Middleware(SafeHeaders),
            Middleware(SoundHead, head_bytes=HEAD_BYTES),
            Middleware(TimelyBody),
            *(
                [Middleware(ProxyHeadersMiddleware, trusted_hosts=[*trusted_proxies])]
                if trusted_proxies
                else []
            ),
        ],
    )
    app.router.redirect_slashes = False
    app.state.mcp = mcp
    register_memory_routes(app, memory, identity=identity)
    return app


async def _home(request: Request) -> Response:
    return RedirectResponse("/docs", status_code=307)
