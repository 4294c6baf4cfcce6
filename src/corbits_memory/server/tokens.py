"""Tokens: who may talk to the host, and as whom.

A token is 256 random bits, so its SHA-256 is kept as it is: there is nothing to guess that a slow or salted
hash would protect, and a fast one can be looked up by an index on every request. Only the start of a token can
be shown again. Nothing is cached, so a revocation counts from the next request on.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from psycopg.rows import dict_row

from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget, Capability
from corbits_memory.engine import audit
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.pool import Connection, Database
from corbits_memory.errors import InvalidInputError, NotFoundError
from corbits_memory.validation import check_caller

FIRST_TENANT = "default"
FIRST_PRINCIPAL = "owner"
OPERATOR = "operator"
"""Who the audit says it was where nobody is named."""

TOKEN_PREFIX = "cmt_"  # noqa: S105 - how tokens begin, so that scanners for secrets can find them
SHOWN_CHARS = 10
_GENERATED = re.compile(TOKEN_PREFIX + r"[A-Za-z0-9_-]{43}")
USED_EVERY = timedelta(minutes=1)
"""How exact ``last_used_at`` is: not a write a request."""

State = Literal["active", "expired", "revoked"]

_COLUMNS = "id, tenant_id, principal_id, capabilities, prefix, label, created_at, expires_at, revoked_at, last_used_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What may be known of a token after it was shown."""

    id: str
    tenant_id: str
    principal_id: str
    capabilities: frozenset[Capability]
    prefix: str
    label: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def state(self, now: datetime) -> State:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token at its birth, the only time that its secret is known."""

    token: Token
    secret: str = field(repr=False)


def utc_now() -> datetime:
    return datetime.now(UTC)


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="surrogateescape")).digest()


def is_generated(secret: str) -> bool:
    """Whether this looks like a token of :meth:`Tokens.create`, which can't be guessed; a preset one may be."""
    return _GENERATED.fullmatch(secret) is not None


def parse_capabilities(names: Collection[str]) -> frozenset[Capability]:
    """``add`` or ``memory:add``, …; raises ``InvalidInputError`` naming those that there are."""
    known = {word.value: word for word in Capability} | {
        word.value.split(":")[1]: word for word in Capability
    }
    wanted = [name.strip().lower() for name in names if name.strip()]
    unknown = sorted(set(wanted) - known.keys())
    if unknown or not wanted:
        words = ", ".join(word.value.split(":")[1] for word in Capability)
        raise InvalidInputError(f"capabilities must be some of {words}")
    return frozenset(known[name] for name in wanted)


class Tokens:
    """The tokens of one database. All times come from ``clock``."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._clock = clock

    async def create(
        self,
        *,
        tenant_id: str,
        principal_id: str,
        capabilities: Collection[Capability],
        expires_at: datetime | None = None,
        label: str | None = None,
        by: str = OPERATOR,
    ) -> NewToken:
        """A new token, made ``by`` whom the audit names. Raises ``InvalidInputError``."""
        check_caller(tenant_id, principal_id)
        if not capabilities:
            raise InvalidInputError("a token needs at least one capability")
        if expires_at is not None and expires_at <= self._clock():
            raise InvalidInputError("expires_at lies in the past; give a later time")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        async with self._database.operator() as conn:
            token = await self._insert(
                conn,
                secret,
                prefix=secret[:SHOWN_CHARS],
                tenant_id=tenant_id,
                principal_id=principal_id,
                capabilities=capabilities,
                expires_at=expires_at,
                label=label,
                by=by,
            )
        if token is None:
            raise RuntimeError("two random tokens were equal")
        return NewToken(token=token, secret=secret)

    async def ensure_first(self, preset: str | None = None) -> NewToken | None:
        """The first token, when this call made it; processes that start together make one.

        With a ``preset``, that one is made unless it is known already (a revoked one stays revoked). Without,
        one is made when there is none at all.
        """
        secret = preset or TOKEN_PREFIX + secrets.token_urlsafe(32)
        async with self._database.operator() as conn:
            await conn.execute("SELECT pg_advisory_xact_lock(hashtext('memory_host.token'))")
            if preset is None:
                found = await (await conn.execute("SELECT 1 FROM memory_host.token LIMIT 1")).fetchone()
                if found is not None:
                    return None
            token = await self._insert(
                conn,
                secret,
                prefix=secret[:SHOWN_CHARS] if preset is None else "(preset)",
                tenant_id=FIRST_TENANT,
                principal_id=FIRST_PRINCIPAL,
                capabilities=frozenset(Capability),
                expires_at=None,
                label="preset" if preset else "first",
                by=OPERATOR,
            )
        return None if token is None else NewToken(token=token, secret=secret)

    async def list(self, tenant_id: str | None = None) -> list[Token]:
        """All tokens, or a tenant's, oldest first; the revoked and expired ones too."""
        async with self._database.autocommit() as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(
                f"SELECT {_COLUMNS} FROM memory_host.token "
                "WHERE %(tenant)s::text IS NULL OR tenant_id = %(tenant)s ORDER BY created_at, id",
                {"tenant": tenant_id},
            )
            return [_token(row) for row in await cursor.fetchall()]

    async def revoke(self, token_id: str, *, by: str = OPERATOR) -> Token:
        """Have a token refused from now on; again changes nothing. Raises ``NotFoundError``."""
        async with self._database.operator() as conn:
            cursor = conn.cursor(row_factory=dict_row)
            now = self._clock()
            await cursor.execute(
                "UPDATE memory_host.token SET revoked_at = coalesce(revoked_at, %(now)s) WHERE id = %(id)s "
                f"RETURNING {_COLUMNS}",
                {"now": now, "id": token_id},
            )
            row = await cursor.fetchone()
            if row is None:
                raise NotFoundError(
                    "there is no token with this id; `corbits-memory token list` shows the ids"
                )
            token = _token(row)
            outcome = AuditOutcome.DONE if token.revoked_at == now else AuditOutcome.UNCHANGED
            await _tell(conn, token, AuditAction.REVOKE_TOKEN, by, outcome)
        return token

    async def verify(self, secret: str) -> Token | None:
        """The token that this is, when it is one and active."""
        presented = hash_secret(secret)
        now = self._clock()
        async with self._database.autocommit() as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(
                f"SELECT {_COLUMNS}, token_hash FROM memory_host.token WHERE token_hash = %s", [presented]
            )
            row = await cursor.fetchone()
            # What the index compares is a hash, whose bytes nobody can steer; the decision takes constant time.
            if row is None or not hmac.compare_digest(bytes(row.pop("token_hash")), presented):
                return None
            token = _token(row)
            if token.state(now) != "active":
                return None
            if token.last_used_at is None or now - token.last_used_at >= USED_EVERY:
                await self._touch(conn, token.id, now)
        return token

    async def _touch(self, conn: Connection, token_id: str, now: datetime) -> None:
        # Concurrent requests don't queue on the row: one of them notes the time, the others go on.
        await conn.execute(
            "UPDATE memory_host.token SET last_used_at = %(now)s WHERE id = "
            "(SELECT id FROM memory_host.token WHERE id = %(id)s FOR UPDATE SKIP LOCKED)",
            {"now": now, "id": token_id},
        )

    async def _insert(self, conn: Connection, secret: str, *, by: str, **values: Any) -> Token | None:
        """The new row, with its event in the audit; None when the secret is known already."""
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(
            "INSERT INTO memory_host.token (id, tenant_id, principal_id, capabilities, token_hash, prefix, label, "
            "created_at, expires_at) VALUES (%(id)s, %(tenant_id)s, %(principal_id)s, %(capabilities)s, %(hash)s, "
            f"%(prefix)s, %(label)s, %(now)s, %(expires_at)s) ON CONFLICT (token_hash) DO NOTHING RETURNING {_COLUMNS}",
            {
                **values,
                "id": new_id("tok"),
                "capabilities": sorted(values["capabilities"]),
                "hash": hash_secret(secret),
                "now": self._clock(),
            },
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        token = _token(row)
        await _tell(conn, token, AuditAction.CREATE_TOKEN, by, AuditOutcome.DONE)
        return token


async def _tell(
    conn: Connection, token: Token, action: AuditAction, actor: str, outcome: AuditOutcome
) -> None:
    await audit.record(
        conn,
        token.tenant_id,
        actor_id=actor,
        action=action,
        target_type=AuditTarget.TOKEN,
        target_id=token.id,
        outcome=outcome,
    )


def _token(row: dict[str, Any]) -> Token:
    # A capability that a newer release knows is left out, not guessed.
    known = {word.value for word in Capability}
    capabilities = frozenset(Capability(word) for word in row["capabilities"] if word in known)
    return Token(**{**row, "capabilities": capabilities})
