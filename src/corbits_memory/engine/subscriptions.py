"""Subscriptions of a tenant: who is told of its feed, and what could not be delivered."""

import secrets
from collections.abc import Sequence

from psycopg.rows import dict_row

from corbits_memory.core import ids
from corbits_memory.core.enums import AuditAction, AuditTarget, FeedOp
from corbits_memory.core.limits import SUBSCRIPTIONS
from corbits_memory.engine import audit
from corbits_memory.engine.drafts import Row
from corbits_memory.engine.ids import new_id
from corbits_memory.engine.outbound import Outbound
from corbits_memory.engine.pool import READ_SECONDS, Connection, Database
from corbits_memory.engine.queries import load_queries
from corbits_memory.errors import ConflictError, InvalidCursorError, NotFoundError
from corbits_memory.ports import CreatedSubscription, DeadLetter, NewSubscription, Subscription

SECRET_PREFIX = "whsec_"  # noqa: S105 - how secrets begin, so that scanners can find them
UNKNOWN = "subscription not found"


class SubscriptionService:
    def __init__(self, database: Database, outbound: Outbound) -> None:
        self._database = database
        self._outbound = outbound
        self._queries = load_queries("push")

    async def create(
        self, *, tenant_id: str, principal_id: str, given: NewSubscription
    ) -> CreatedSubscription:
        """Raises ``InvalidInputError`` for a URL that may not be called, ``InvalidCursorError``, ``ConflictError``."""
        target = await self._outbound.check(given.url)
        secret = SECRET_PREFIX + secrets.token_urlsafe(32)
        subscription_id = new_id(ids.SUBSCRIPTION)
        async with self._database.tenant(tenant_id) as conn:
            await _check_cursor(conn, tenant_id, given.after)
            made = await conn.execute(
                self._queries["create_subscription"],
                {
                    "tenant": tenant_id,
                    "id": subscription_id,
                    "url": str(target.url),
                    "principal": given.principal_id,
                    "created_by": principal_id,
                    "ops": sorted(given.ops),
                    "excluded": given.exclude_generator,
                    "text": given.include_text,
                    "after": given.after,
                    "limit": SUBSCRIPTIONS,
                },
            )
            if made.rowcount == 0:
                raise ConflictError(
                    f"a tenant may have at most {SUBSCRIPTIONS} subscriptions; remove one first"
                )
            await conn.execute(
                self._queries["keep_secret"], {"tenant": tenant_id, "id": subscription_id, "secret": secret}
            )
            await audit.record(
                conn,
                tenant_id,
                actor_id=principal_id,
                action=AuditAction.SUBSCRIBE,
                target_type=AuditTarget.SUBSCRIPTION,
                target_id=subscription_id,
            )
            (row,) = await self._read(conn, tenant_id, subscription_id)
        return CreatedSubscription(subscription=_subscription(row), secret=secret)

    async def list(self, *, tenant_id: str) -> Sequence[Subscription]:
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            rows = await self._read(conn, tenant_id, None)
        return [_subscription(row) for row in rows]

    async def remove(self, *, tenant_id: str, principal_id: str, subscription_id: str) -> None:
        async with self._database.tenant(tenant_id) as conn:
            gone = await conn.execute(
                self._queries["remove_subscription"], {"tenant": tenant_id, "id": subscription_id}
            )
            if gone.rowcount == 0:
                raise NotFoundError(UNKNOWN)
            await audit.record(
                conn,
                tenant_id,
                actor_id=principal_id,
                action=AuditAction.UNSUBSCRIBE,
                target_type=AuditTarget.SUBSCRIPTION,
                target_id=subscription_id,
            )

    async def dead_letters(
        self, *, tenant_id: str, subscription_id: str, after: int, limit: int
    ) -> Sequence[DeadLetter]:
        async with self._database.tenant(tenant_id, seconds=READ_SECONDS) as conn:
            await self._check_known(conn, tenant_id, subscription_id)
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(
                self._queries["dead_letters"],
                {"tenant": tenant_id, "id": subscription_id, "after": after, "limit": limit},
            )
            rows = await cursor.fetchall()
        return [
            DeadLetter(
                seq=row["seq"],
                op=row["op"] and FeedOp(row["op"]),
                version_id=row["version_id"],
                failures=row["failures"],
                error=row["last_error"],
                failed_at=row["failed_at"],
            )
            for row in rows
        ]

    async def replay(self, *, tenant_id: str, subscription_id: str, seqs: Sequence[int] | None) -> int:
        async with self._database.tenant(tenant_id) as conn:
            await self._check_known(conn, tenant_id, subscription_id)
            done = await conn.execute(
                self._queries["replay"],
                {
                    "tenant": tenant_id,
                    "id": subscription_id,
                    "seqs": None if seqs is None else list(seqs),
                },
            )
        return done.rowcount

    async def _read(self, conn: Connection, tenant_id: str, subscription_id: str | None) -> Sequence[Row]:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(self._queries["subscriptions"], {"tenant": tenant_id, "id": subscription_id})
        return await cursor.fetchall()

    async def _check_known(self, conn: Connection, tenant_id: str, subscription_id: str) -> None:
        if not await self._read(conn, tenant_id, subscription_id):
            raise NotFoundError(UNKNOWN)


async def _check_cursor(conn: Connection, tenant_id: str, after: int | None) -> None:
    if not after:
        return
    rows = await (await conn.execute(load_queries("feed")["newest"], {"tenants": [tenant_id]})).fetchall()
    if not rows or after > rows[0][1]:
        raise InvalidCursorError


def _subscription(row: Row) -> Subscription:
    return Subscription(**{**row, "ops": tuple(FeedOp(op) for op in row["ops"])})
