"""The schema on a Citus cluster: every table of tenants is spread by ``tenant_id``, all of them alike.

A tenant's rows of all tables are on one node, so each statement that names its tenant is one node's business. What
has no tenant (the ledgers of migrations, jobs, tokens) stays on the coordinator.

Whatever makes a table or a function later calls :func:`follow`: it knows whether the schema is spread.
"""

import logging
from dataclasses import dataclass

import psycopg

from corbits_memory.engine.pool import APP_ROLE, Connection, holds, is_distributed
from corbits_memory.engine.queries import load_queries
from corbits_memory.engine.rights import give_whole_tables
from corbits_memory.errors import ConfigError, MigrationError

logger = logging.getLogger("corbits_memory.distribution")

FIRST = "memory.tenant_state"
"""All other tables lie beside this one."""

NO_CITUS = (
    "This database has no Citus: install it on every node, put citus into shared_preload_libraries, run "
    "CREATE EXTENSION citus, and add the nodes with citus_add_node. It is not a part of Corbits Memory."
)
ROLE_MAY_NOT_LOG_IN = (
    f"Citus connects to its nodes as the role at work, and {APP_ROLE} may not log in: run "
    f"ALTER ROLE {APP_ROLE} LOGIN, and let the coordinator in as that role on every node (pg_hba.conf, and "
    "pg_dist_authinfo or a certificate where it asks for a password)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributed:
    """Tables and functions that were spread now, in that order; ``left``: what an operator has to do, as sentences."""

    tables: tuple[str, ...]
    functions: tuple[str, ...]
    left: tuple[str, ...] = ()


async def distribute(conn: Connection, *, dry_run: bool = False) -> Distributed:
    """Spread every table that is not spread yet; twice is as good as once. ``dry_run``: only tell which.

    ``conn`` in autocommit, of the tables' owner, on the coordinator. Each table is a transaction of its own, in
    which its writers wait; an interrupted run is ended by running it again. Raises ``ConfigError`` without Citus,
    ``MigrationError`` with what Citus says.
    """
    queries = load_queries("distribution")
    if not await holds(conn, queries["citus"]):
        raise ConfigError(NO_CITUS)
    await conn.execute(queries["lock_session"])
    try:
        tables, functions = await _missing(conn)
        if not dry_run:
            await give_whole_tables(conn)
            await _spread(conn, tables, functions)
            await _forget_local_rows(conn)
    finally:
        await conn.execute(queries["unlock_session"])
    left = () if await _role_may_log_in(conn) else (ROLE_MAY_NOT_LOG_IN,)
    return Distributed(tables=tables, functions=functions, left=left)


async def follow(conn: Connection) -> None:
    """Spread what has been created since, if the schema is spread at all; in the transaction that created it."""
    queries = load_queries("distribution")
    if not await holds(conn, queries["citus"]):
        return
    # Whoever spreads the schema now either sees what was created here, or is waited for.
    await conn.execute(queries["lock"])
    if await is_distributed(conn):
        await _spread(conn, *await _missing(conn))


async def _missing(conn: Connection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    queries = load_queries("distribution")
    tables = await (await conn.execute(queries["local_tables"])).fetchall()
    functions = await (await conn.execute(queries["local_functions"])).fetchall()
    return tuple(name for (name,) in tables), tuple(name for (name,) in functions)


async def _spread(conn: Connection, tables: tuple[str, ...], functions: tuple[str, ...]) -> None:
    queries = load_queries("distribution")
    name = ""
    try:
        for name in functions:
            await conn.execute(queries["distribute_function"], {"function": name})
        for name in tables:
            await conn.execute(
                queries["distribute_first" if name == FIRST else "distribute_beside"], {"table": name}
            )
            logger.info("%s is distributed by tenant", name)
    except psycopg.Error as error:
        raise MigrationError(
            f"{name} could not be distributed: {str(error).strip()}. Mend that and run it again; what was distributed "
            "before stays so."
        ) from error


async def _forget_local_rows(conn: Connection) -> None:
    """Citus leaves the rows where they were, unseen: what is erased later would stay in them.

    Of all tables, since a run may have been interrupted just before this.
    """
    queries = load_queries("distribution")
    for (table,) in await (await conn.execute(queries["spread_tables"])).fetchall():
        await conn.execute(queries["forget_local_rows"], {"table": table})


async def _role_may_log_in(conn: Connection) -> bool:
    row = await (
        await conn.execute(load_queries("distribution")["role_may_log_in"], {"role": APP_ROLE})
    ).fetchone()
    # Without the role, transactions work as the login itself.
    return row is None or bool(row[0])
