"""Who asks: the host's answer, checked."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Any

from starlette.requests import Request

from corbits_memory.core.enums import Capability
from corbits_memory.errors import (
    ForbiddenError,
    InvalidInputError,
    PrincipalRequiredError,
    TenantMismatchError,
    UnauthorizedError,
)
from corbits_memory.http.errors import InvalidResolvedCallerError
from corbits_memory.plane import Memory
from corbits_memory.ports import Caller
from corbits_memory.validation import check_caller

Identity = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""The host's function from a request to who asks; None when nobody known does. Sync or async.

It may raise Starlette's ``HTTPException`` or an error of ours to refuse in its own way (429, 503); any other
error becomes a 500 without its text.
"""


CallerResolver = Callable[[Request], Any]
"""For machine callers: from a request to ``{"tenantId": …, "principalId": …}``, or None for nobody. Sync or async.

Nothing else counts: no roles, no capabilities. What the caller may do, the grant store says.
"""


def identity_of(resolver: CallerResolver) -> Identity:
    """An identity hook from a caller resolver. An answer of another shape is an error of the host (500)."""

    async def identity(request: Request) -> Caller:
        found = resolver(request)
        if inspect.isawaitable(found):
            found = await found
        if not found and not isinstance(found, Mapping):
            # The resolver is the only credential there is, whatever headers came along.
            raise UnauthorizedError
        if not isinstance(found, Mapping):
            raise InvalidResolvedCallerError
        tenant_id, principal_id = found.get("tenantId"), found.get("principalId")
        if not isinstance(tenant_id, str) or not isinstance(principal_id, str):
            raise InvalidResolvedCallerError
        return Caller(tenant_id, principal_id)

    return identity


async def resolve_caller(request: Request, identity: Identity) -> Caller:
    """The caller, or 401 (``principal_required`` without a credential, ``unauthorized`` with one)."""
    found: Any = identity(request)
    if inspect.isawaitable(found):
        found = await found
    if found is None:
        if "authorization" in request.headers:
            raise UnauthorizedError
        raise PrincipalRequiredError
    return _checked(found)


def check_tenant(request: Request, caller: Caller) -> None:
    """403 when the path names a tenant that isn't the caller's; a path may also name none."""
    named = request.path_params.get("tenant_id")
    if named is not None and named != caller.tenant_id:
        raise TenantMismatchError


async def check_capability(memory: Memory, caller: Caller, capability: Capability) -> None:
    if not await memory.may(caller, capability):
        raise ForbiddenError


def _checked(found: Any) -> Caller:
    if not isinstance(found, Caller):
        raise InvalidResolvedCallerError
    capabilities: object = found.capabilities
    if capabilities is not None and not isinstance(capabilities, Set):
        raise InvalidResolvedCallerError
    try:
        check_caller(found.tenant_id, found.principal_id)
    except InvalidInputError as error:
        raise InvalidResolvedCallerError from error
    return found
