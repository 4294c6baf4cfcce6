"""Who asks: the token in ``Authorization: Bearer`` says the tenant and the principal; nothing else does."""

from starlette.requests import Request

from corbits_memory.ports import Caller
from corbits_memory.server.tokens import Tokens

CREDENTIAL_CHARS_MAX = 1_024


class TokenIdentity:
    """The host's answer to :func:`corbits_memory.register_memory_routes`."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def __call__(self, request: Request) -> Caller | None:
        secret = bearer(request)
        token = await self._tokens.verify(secret) if secret is not None else None
        if token is None:
            return None
        return Caller(token.tenant_id, token.principal_id, token.capabilities)


def bearer(request: Request) -> str | None:
    """The token of the one ``Authorization`` header; None without one, or when two disagree about who asks."""
    given = request.headers.getlist("authorization")
    if len(given) != 1:
        return None
    scheme, _, secret = given[0].partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not 0 < len(secret) <= CREDENTIAL_CHARS_MAX:
        return None
    return secret
