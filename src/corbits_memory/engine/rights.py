"""What the application's role may do: the tables' rights, given anew on each migration.

The role can't bypass the policies, may only add to what is a record, and can't change whose a document is.
"""

import logging

import psycopg
from psycopg import sql

from corbits_memory.engine.pool import APP_ROLE, Connection, holds
from corbits_memory.engine.queries import load_queries

logger = logging.getLogger("corbits_memory.migrate")

APPEND_ONLY = ("audit_event", "erasure")
"""Tables whose rows the application may add and read, and never change."""
FIXED = {"document": ("owner_principal_id",), "version": ("owner_principal_id",)}
"""By table, columns that are written with the row and never changed."""

# Not partitions: reached directly, a partition would be a way around the policy of its table.
_TABLES = (
    "SELECT c.relname, has_table_privilege(%s, c.oid, 'UPDATE') FROM pg_class c "
    "WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
    "AND c.relname <> '_migrations' ORDER BY c.relname"
)
_CHANGEABLE = (
    "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = format('memory.%%I', %s::text)::regclass "
    "AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attname <> ALL (%s) ORDER BY a.attnum"
)


async def ensure_app_role(conn: Connection, *, extensions: str) -> None:
    """Create the role and give it its rights; ``extensions``: the schemas of the extensions, quoted.

    Without the right to create or take it, the second lock stays off. The rights are given whenever the role
    exists: an operator who creates it, or grants it, later needs no more.
    """
    role = sql.Identifier(APP_ROLE)
    if not await _role_exists(conn):
        await _try(conn, sql.SQL("CREATE ROLE {} NOLOGIN NOBYPASSRLS").format(role))
    if not await _role_exists(conn):
        return
    # A role's creator may not take it until it is granted.
    await _try(conn, sql.SQL("GRANT {} TO CURRENT_USER").format(role))
    for schema in (sql.Identifier("memory"), sql.SQL(extensions)):
        await _try(conn, sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role))
    await _give_tables(conn, whole=await holds(conn, load_queries("distribution")["citus"]))
    await _try(conn, sql.SQL("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA memory TO {}").format(role))


async def give_whole_tables(conn: Connection) -> None:
    """Rights on whole tables alone: Citus gives the other nodes no rights on columns, in versions that are about."""
    if await _role_exists(conn):
        await _give_tables(conn, whole=True)


async def _give_tables(conn: Connection, *, whole: bool) -> None:
    role = sql.Identifier(APP_ROLE)
    tables = await (await conn.execute(_TABLES, [APP_ROLE])).fetchall()
    for name, changes_all in tables:
        table = sql.Identifier("memory", name)
        rights: sql.Composable = sql.SQL("SELECT, INSERT, UPDATE, DELETE")
        if name in APPEND_ONLY:
            rights = sql.SQL("SELECT, INSERT")
        elif name in FIXED and not whole:
            columns = await (await conn.execute(_CHANGEABLE, [name, list(FIXED[name])])).fetchall()
            changeable = sql.SQL(", ").join(sql.Identifier(column) for (column,) in columns)
            rights = sql.SQL("SELECT, INSERT, DELETE, UPDATE ({})").format(changeable)
        grant = sql.SQL("GRANT {} ON {} TO {}").format(rights, table, role)
        if name in FIXED and changes_all != whole:
            # In one transaction with the grant, so that whoever works meanwhile is never without the right.
            grant = sql.SQL("REVOKE UPDATE ON {} FROM {}; {}").format(table, role, grant)
        await _try(conn, grant)


async def _role_exists(conn: Connection) -> bool:
    found = await conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [APP_ROLE])
    return await found.fetchone() is not None


async def _try(conn: Connection, statement: sql.Composed) -> None:
    """Run a statement that this login, or a race with another database of the cluster, may not allow."""
    try:
        await conn.execute(statement)
    except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        logger.debug("another database of this cluster was first")
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InternalError_) as error:
        logger.warning("row-level security may stay off: %s", str(error).strip())
