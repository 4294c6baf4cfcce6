"""The memory as an ASGI app of its own."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from corbits_memory.http.errors import REQUEST_ID, error_answer, request_id_of
from corbits_memory.http.identity import CallerResolver, Identity
from corbits_memory.http.openapi import memory_openapi
from corbits_memory.http.routes import DEFAULT_PREFIX, memory_routes
from corbits_memory.plane import Memory


def memory_app(
    memory: Memory,
    *,
    identity: Identity | None = None,
    caller_resolver: CallerResolver | None = None,
    prefix: str = DEFAULT_PREFIX,
    strict_tenant_path: bool = True,
) -> Starlette:
    """The routes of :func:`~corbits_memory.http.routes.memory_routes` and ``/openapi.json``, as one app.

    Served by itself, it opens and closes the memory. Mounted in another app it can't (a mounted app's
    lifespan doesn't run): there the host enters ``memory.lifespan``.
    """
    document = memory_openapi(prefix=prefix)

    async def openapi(request: Request) -> Response:
        return JSONResponse(document, headers={REQUEST_ID: request_id_of(request)})

    async def fail(request: Request, error: Exception) -> Response:
        return error_answer(request, error)

    app = Starlette(
        routes=[
            Route("/openapi.json", openapi),
            *memory_routes(
                memory,
                identity=identity,
                caller_resolver=caller_resolver,
                prefix=prefix,
                strict_tenant_path=strict_tenant_path,
            ),
        ],
        exception_handlers={HTTPException: fail},
        lifespan=memory.lifespan,
    )
    # A redirect to the path without its slash would come from the framework, not in our shape.
    app.router.redirect_slashes = False
    return app
