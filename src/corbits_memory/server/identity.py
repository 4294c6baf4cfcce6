"""Who asks: the token in ``Authorization: Bearer`` says the tenant and the principal; nothing else does."""

from collections import OrderedDict
from dataclasses import dataclass, field

from starlette.requests import Request

from corbits_memory.ports import Caller
from corbits_memory.server.rates import TokenBuckets, client_of, too_many
from corbits_memory.server.settings import FAILURES_PER_MINUTE
from corbits_memory.server.tokens import Token, Tokens, hash_secret, is_generated

CREDENTIAL_CHARS_MAX = 1_024
SEEN_MAX = 10_000


class SeenSecrets:
    """Which secrets were valid once, as hashes; of more than ``size`` the oldest are forgotten.

    No verdict: whether one still is, is asked each time.
    """

    def __init__(self, *, size: int = SEEN_MAX) -> None:
        self._size = size
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, secret: str) -> bool:
        return hash_secret(secret) in self._hashes

    def add(self, secret: str) -> None:
        key = hash_secret(secret)
        self._hashes[key] = None
        self._hashes.move_to_end(key)
        if len(self._hashes) > self._size:
            self._hashes.popitem(last=False)


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The host's answer to :func:`corbits_memory.register_memory_routes`.

    Wrong credentials are limited for each client address: beyond, guesses are answered 429 and not looked at.
    Tokens that this host made (nobody guesses 256 random bits) and those that were valid before are looked at
    always, so that nobody is kept out by a neighbour behind the same address.
    """

    tokens: Tokens
    failures: TokenBuckets = field(default_factory=lambda: TokenBuckets(FAILURES_PER_MINUTE))
    requests: TokenBuckets | None = None
    """Of each tenant and principal; None: no limit."""
    _seen: SeenSecrets = field(default_factory=SeenSecrets, init=False, repr=False)

    async def __call__(self, request: Request) -> Caller | None:
        if "authorization" not in request.headers:
            return None
        token = await self._known(request)
        if token is None:
            return None
        wait = self.requests.take((token.tenant_id, token.principal_id)) if self.requests is not None else 0
        if wait:
            raise too_many(wait)
        return Caller(token.tenant_id, token.principal_id, token.capabilities)

    async def _known(self, request: Request) -> Token | None:
        """The valid token; None when there is room for a wrong one, else 429."""
        secret, client = bearer(request), client_of(request)
        if secret is not None and (is_generated(secret) or secret in self._seen):
            token = await self.tokens.verify(secret)
            if token is not None:
                self._seen.add(secret)
                return token
            secret = None
        # Taken before the look: guesses that come all at once are no more than those that come one by one.
        wait = self.failures.take(client)
        if wait:
            raise too_many(wait)
        token = await self.tokens.verify(secret) if secret is not None else None
        if token is not None and secret is not None:
            self.failures.give_back(client)
            self._seen.add(secret)
        return token


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
