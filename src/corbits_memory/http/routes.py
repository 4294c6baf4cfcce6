"""Mounts the memory on a web app."""

from collections import defaultdict

from starlette.applications import Starlette
from starlette.routing import Route

from corbits_memory.errors import ConfigError
from corbits_memory.http.calls import Operation
from corbits_memory.http.endpoint import Endpoint
from corbits_memory.http.identity import CallerResolver, Identity, identity_of
from corbits_memory.http.operations import OPERATIONS
from corbits_memory.plane import Memory

DEFAULT_PREFIX = "/api/tenants/{tenant_id:path}/memory"
"""A tenant's name may hold a slash, and servers decode ``%2F`` before they route: hence ``:path``. Each route has
an end of its own, so that a path still has one meaning."""


def memory_routes(
    memory: Memory,
    *,
    identity: Identity | None = None,
    caller_resolver: CallerResolver | None = None,
    prefix: str = DEFAULT_PREFIX,
    strict_tenant_path: bool = True,
) -> list[Route]:
    """The memory's routes, to put into any Starlette router.

    ``identity`` says who asks (see :data:`~corbits_memory.http.identity.Identity`); for machine callers,
    ``caller_resolver`` may stand in its place. The tenant that the prefix names as ``{tenant_id}`` must be the
    caller's, unless ``strict_tenant_path`` is off: then the path is not looked at. A prefix may also name no
    tenant. Raises ``ConfigError`` unless exactly one of the two is given.
    """
    if caller_resolver is not None and identity is None:
        identity = identity_of(caller_resolver)
    elif identity is None or caller_resolver is not None:
        raise ConfigError("pass exactly one of identity and caller_resolver: they say who asks")
    by_path: defaultdict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        by_path[operation.path][operation.method] = operation
    return [
        Route(
            prefix.rstrip("/") + path,
            Endpoint(
                memory=memory,
                identity=identity,
                operations=operations,
                strict_tenant_path=strict_tenant_path,
            ),
            name="_".join(operation.id for operation in operations.values()),
        )
        for path, operations in by_path.items()
    ]


def register_memory_routes(
    app: Starlette,
    memory: Memory,
    *,
    identity: Identity | None = None,
    caller_resolver: CallerResolver | None = None,
    prefix: str = DEFAULT_PREFIX,
    strict_tenant_path: bool = True,
) -> None:
    """Add the memory's routes to a Starlette or FastAPI app; see :func:`memory_routes`.

    The app must open the memory: pass ``lifespan=memory.lifespan`` to it, or enter that in its own.
    """
    app.router.routes.extend(
        memory_routes(
            memory,
            identity=identity,
            caller_resolver=caller_resolver,
            prefix=prefix,
            strict_tenant_path=strict_tenant_path,
        )
    )
