"""Grants and roles in Postgres, in the memory's own schema (``corbits-memory db migrate`` makes the tables)."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from corbits_memory.access.queries import load_queries
from corbits_memory.access.rules import check_grant, check_names
from corbits_memory.core.enums import AuditAction, AuditOutcome, AuditTarget, Effect, GrantOrigin
from corbits_memory.errors import ConflictError, InvalidInputError, NotFoundError
from corbits_memory.ports import ConditionRegistry, GrantRule

PAGE, PAGE_MAX = 100, 1_000
ROLE_DEPTH = 16
"""How many roles may lie in each other. Refused when written: to cut a chain when reading could lose a deny."""

UNNAMED = "operator"
"""Who the audit says it was where nobody is named: an operator, or the memory after a share or an erasure."""

Connection = psycopg.AsyncConnection[Any]
_MemberKind = Literal["principal", "role"]


class TenantDatabase(Protocol):
    """What opens transactions: ``corbits_memory.engine.pool.Database`` is one."""

    def tenant(self, tenant_id: str, /) -> AbstractAsyncContextManager[Connection]:
        """A transaction that sees one tenant, committed at the end and rolled back on an error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPage:
    """Some grants, and what to pass as ``after`` for the next ones; None at the end."""

    grants: tuple[GrantRule, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role, and who holds it directly: principals, and all holders of other roles."""

    id: str
    description: str | None
    principals: tuple[str, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePage:
    """As :class:`GrantPage`."""

    roles: tuple[Role, ...]
    next: str | None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Auditor(Protocol):
    """What writes an act into the audit, in the transaction of ``conn``: ``corbits_memory.engine.audit.record``."""

    async def __call__(
        self,
        conn: Connection,
        tenant_id: str,
        /,
        *,
        actor_id: str,
        action: AuditAction,
        target_type: AuditTarget,
        target_id: str,
        outcome: AuditOutcome,
        amount: int | None = None,
    ) -> None: ...


class PostgresGrantStore:
    """Grants and roles of many tenants: writable, revocable, versioned.

    Every change raises the tenant's version in its own transaction, so that whoever keeps collected grants
    knows at once, and is told to ``audit`` there. ``conditions``: with them, a grant that names another
    condition is refused.
    """

    def __init__(
        self,
        database: TenantDatabase,
        *,
        conditions: ConditionRegistry | None = None,
        audit: Auditor | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._database = database
        self._audit = audit
        self._conditions = conditions
        self._clock = clock

    # --- grants ---

    async def collect_grants(self, principal_id: str, tenant_id: str) -> list[GrantRule]:
        """The principal's unexpired rules and those of every role that it holds, directly or through a role."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await _all(
                conn, "grants", "collect", tenant=tenant_id, principal=principal_id, now=self._clock()
            )
        return [_rule(row) for row in rows]

    async def grants_version(self, tenant_id: str) -> int:
        """Rises with every change of the tenant's grants and roles; 0 before the first."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await _all(conn, "grants", "version", tenant=tenant_id)
        return int(rows[0]["version"]) if rows else 0

    async def put_grant(self, rule: GrantRule) -> None:
        """Insert, or replace by tenant and id.

        Raises ``InvalidInputError`` for a rule that :func:`~corbits_memory.access.rules.check_grant` refuses or
        that names no tenant, and ``NotFoundError`` for a role that there isn't.
        """
        tenant_id = rule.tenant_id
        check_grant(rule, now=self._clock(), conditions=self._conditions)
        if tenant_id is None:
            raise InvalidInputError("tenant_id is required")
        async with self._change(tenant_id) as conn:
            await _run(
                conn,
                "grants",
                "put",
                tenant=tenant_id,
                id=rule.id,
                principal=rule.principal_id,
                role=rule.role_id,
                resource=rule.resource,
                action=rule.action,
                effect=str(rule.effect),
                origin=str(rule.origin),
                conditions=None if rule.conditions is None else Jsonb(dict(rule.conditions)),
                expires_at=rule.expires_at,
                created_by=rule.created_by,
            )
            await self._tell(
                conn, tenant_id, rule.created_by, AuditAction.GRANT, AuditTarget.GRANT, rule.id, changed=1
            )

    async def delete_grant(self, tenant_id: str, grant_id: str, *, by: str | None = None) -> bool:
        """Whether there was such a grant."""
        async with self._change(tenant_id) as conn:
            gone = await _run(conn, "grants", "delete", tenant=tenant_id, id=grant_id)
            await self._tell(
                conn, tenant_id, by, AuditAction.REVOKE_GRANT, AuditTarget.GRANT, grant_id, changed=gone
            )
        return gone > 0

    async def delete_resource_grants(self, tenant_id: str, resource: str, *, by: str | None = None) -> int:
        """Take back every grant whose resource is exactly this, as a purged document's tag; how many."""
        async with self._change(tenant_id) as conn:
            gone = await _run(conn, "grants", "delete_resource", tenant=tenant_id, resource=resource)
            if gone:
                await self._tell(
                    conn,
                    tenant_id,
                    by,
                    AuditAction.REVOKE_GRANT,
                    AuditTarget.TAG,
                    resource,
                    changed=gone,
                    amount=gone,
                )
        return gone

    async def readers_of(self, tenant_id: str, resource: str, limit: int) -> list[str]:
        """At most so many principals whom a grant on exactly this resource allows ``search``, by name or role."""
        async with self._database.tenant(tenant_id) as conn:
            rows = await _all(
                conn, "grants", "readers", tenant=tenant_id, resource=resource, now=self._clock(), limit=limit
            )
        return [row["principal"] for row in rows]

    async def list_grants(
        self,
        tenant_id: str,
        *,
        principal_id: str | None = None,
        role_id: str | None = None,
        resource: str | None = None,
        after: str | None = None,
        limit: int = PAGE,
    ) -> GrantPage:
        """A page of a tenant's grants by id, the expired ones too. A filter means exactly this value.

        A principal's are its own, not those of its roles. Raises ``InvalidInputError`` for a limit out of range.
        """
        _check_limit(limit)
        async with self._database.tenant(tenant_id) as conn:
            rows = await _all(
                conn,
                "grants",
                "list",
                tenant=tenant_id,
                principal=principal_id,
                role=role_id,
                resource=resource,
                after=after or "",
                limit=limit + 1,
            )
        grants = tuple(_rule(row) for row in rows[:limit])
        return GrantPage(grants=grants, next=grants[-1].id if len(rows) > limit else None)

    # --- roles ---

    async def put_role(
        self, tenant_id: str, role_id: str, *, description: str | None = None, created_by: str | None = None
    ) -> None:
        """Make a role; again changes its description. Raises ``InvalidInputError``."""
        check_names(tenant_id=tenant_id, role_id=role_id)
        if description is not None:
            check_names(description=description)
        async with self._change(tenant_id) as conn:
            await _run(
                conn,
                "roles",
                "put",
                tenant=tenant_id,
                role=role_id,
                description=description,
                created_by=created_by,
            )
            await self._tell(
                conn, tenant_id, created_by, AuditAction.PUT_ROLE, AuditTarget.ROLE, role_id, changed=1
            )

    async def delete_role(self, tenant_id: str, role_id: str, *, by: str | None = None) -> bool:
        """Take a role back from everyone, with its grants; whether there was one."""
        async with self._change(tenant_id) as conn:
            gone = await _run(conn, "roles", "delete", tenant=tenant_id, role=role_id)
            await self._tell(
                conn, tenant_id, by, AuditAction.DELETE_ROLE, AuditTarget.ROLE, role_id, changed=gone
            )
        return gone > 0

    async def list_roles(self, tenant_id: str, *, after: str | None = None, limit: int = PAGE) -> RolePage:
        """A page of a tenant's roles by id, each with its direct members."""
        _check_limit(limit)
        async with self._database.tenant(tenant_id) as conn:
            rows = await _all(conn, "roles", "list", tenant=tenant_id, after=after or "", limit=limit + 1)
        roles = tuple(
            Role(
                id=row["id"],
                description=row["description"],
                principals=tuple(row["principals"]),
                roles=tuple(row["roles"]),
            )
            for row in rows[:limit]
        )
        return RolePage(roles=roles, next=roles[-1].id if len(rows) > limit else None)

    async def assign(
        self, tenant_id: str, role_id: str, principal_id: str, *, created_by: str | None = None
    ) -> None:
        """Give a principal a role; again changes nothing. Raises ``NotFoundError`` for a role that there isn't."""
        check_names(tenant_id=tenant_id, role_id=role_id, principal_id=principal_id)
        async with self._change(tenant_id) as conn:
            await self._assign(conn, tenant_id, role_id, "principal", principal_id, created_by)

    async def unassign(
        self, tenant_id: str, role_id: str, principal_id: str, *, by: str | None = None
    ) -> bool:
        """Whether the principal held the role directly."""
        return await self._unassign(tenant_id, role_id, "principal", principal_id, by)

    async def assign_role(
        self, tenant_id: str, role_id: str, member_role_id: str, *, created_by: str | None = None
    ) -> None:
        """Give a role to all who hold ``member_role_id``, now and later.

        Raises ``NotFoundError`` for a role that there isn't, and ``ConflictError`` when roles would lie in a
        circle, or more than ``ROLE_DEPTH`` deep.
        """
        check_names(tenant_id=tenant_id, role_id=role_id, member_role_id=member_role_id)
        # The tenant's lock is held from here: no other change can close a circle meanwhile.
        async with self._change(tenant_id) as conn:
            cursor = await conn.execute(
                load_queries("roles")["nesting"],
                {"tenant": tenant_id, "role": role_id, "member": member_role_id, "most": ROLE_DEPTH},
            )
            circle, depth = await cursor.fetchone() or (False, 0)
            if circle:
                raise ConflictError("the roles would lie in a circle: the one holds the other already")
            if depth > ROLE_DEPTH:
                raise ConflictError(f"roles may lie at most {ROLE_DEPTH} deep in each other")
            await self._assign(conn, tenant_id, role_id, "role", member_role_id, created_by)

    async def unassign_role(
        self, tenant_id: str, role_id: str, member_role_id: str, *, by: str | None = None
    ) -> bool:
        """Whether the one role held the other directly."""
        return await self._unassign(tenant_id, role_id, "role", member_role_id, by)

    async def _assign(
        self,
        conn: Connection,
        tenant_id: str,
        role_id: str,
        kind: _MemberKind,
        member: str,
        created_by: str | None,
    ) -> None:
        made = await _run(
            conn,
            "roles",
            "assign",
            tenant=tenant_id,
            role=role_id,
            kind=kind,
            member=member,
            created_by=created_by,
        )
        await self._tell(
            conn, tenant_id, created_by, AuditAction.ASSIGN_ROLE, AuditTarget.ROLE, role_id, changed=made
        )

    async def _unassign(
        self, tenant_id: str, role_id: str, kind: _MemberKind, member: str, by: str | None
    ) -> bool:
        async with self._change(tenant_id) as conn:
            gone = await _run(
                conn, "roles", "unassign", tenant=tenant_id, role=role_id, kind=kind, member=member
            )
            await self._tell(
                conn, tenant_id, by, AuditAction.UNASSIGN_ROLE, AuditTarget.ROLE, role_id, changed=gone
            )
        return gone > 0

    async def _tell(
        self,
        conn: Connection,
        tenant_id: str,
        actor: str | None,
        action: AuditAction,
        target_type: AuditTarget,
        target_id: str,
        *,
        changed: int,
        amount: int | None = None,
    ) -> None:
        if self._audit is not None:
            await self._audit(
                conn,
                tenant_id,
                actor_id=actor or UNNAMED,
                action=action,
                target_type=target_type,
                target_id=target_id,
                outcome=AuditOutcome.DONE if changed else AuditOutcome.UNCHANGED,
                amount=amount,
            )

    @asynccontextmanager
    async def _change(self, tenant_id: str) -> AsyncIterator[Connection]:
        """A transaction that holds the tenant's lock on access and has raised its version."""
        async with self._database.tenant(tenant_id) as conn:
            await _run(conn, "grants", "begin_change", tenant=tenant_id)
            try:
                yield conn
            except psycopg.errors.ForeignKeyViolation as error:
                raise NotFoundError(
                    "there is no such role in this tenant; `corbits-memory role add` makes one"
                ) from error


async def _run(conn: Connection, file: str, name: str, **parameters: Any) -> int:
    """Run a named query; the number of rows it changed."""
    cursor = await conn.execute(load_queries(file)[name], parameters)
    return cursor.rowcount


async def _all(conn: Connection, file: str, name: str, **parameters: Any) -> list[dict[str, Any]]:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(load_queries(file)[name], parameters)
    return await cursor.fetchall()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidInputError(f"limit must be an integer between 1 and {PAGE_MAX}")


def _rule(row: dict[str, Any]) -> GrantRule:
    return GrantRule(**{**row, "effect": Effect(row["effect"]), "origin": GrantOrigin(row["origin"])})
