"""``corbits-memory tenant``: whom a database serves."""

from pathlib import Path
from typing import Any

import typer

from corbits_memory.cli.access import open_grants
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir
from corbits_memory.cli.output import print_json, print_table
from corbits_memory.cli.run import run_async

app = typer.Typer(no_args_is_help=True)

_QUERY = """
SELECT t.tenant_id AS tenant, coalesce(s.document_count, 0) AS documents,
  (SELECT count(*) FROM memory."grant" g WHERE g.tenant_id = t.tenant_id) AS grants,
  (SELECT count(*) FROM memory.role r WHERE r.tenant_id = t.tenant_id) AS roles,
  (SELECT count(*) FROM memory_host.token k WHERE k.tenant_id = t.tenant_id AND k.revoked_at IS NULL
    AND (k.expires_at IS NULL OR k.expires_at > now())) AS tokens
FROM (SELECT tenant_id FROM memory.tenant_state UNION SELECT tenant_id FROM memory.access_state
      UNION SELECT tenant_id FROM memory_host.token) AS t
LEFT JOIN memory.tenant_state s ON s.tenant_id = t.tenant_id
ORDER BY t.tenant_id
"""
"""A tenant needs no making: it is there with its first document, grant or token."""


@app.command("list")
def list_tenants(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show every tenant with what it has. Needs the login that owns the tables."""
    tenants = run_async(_list(data_dir, database_url))
    if as_json:
        print_json({"tenants": tenants})
        return
    headings = ("tenant", "documents", "grants", "roles", "tokens")
    print_table(headings, [[str(tenant[name]) for name in headings] for tenant in tenants])


@app.callback()
def tenant() -> None:
    """Show the tenants that there are."""
    # With it, `list` stays a word of its own, though it is the only one.


async def _list(data_dir: Path | None, database_url: str | None) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row

    async with open_grants(data_dir, database_url) as grants, grants.database.operator() as conn:
        cursor = conn.cursor(row_factory=dict_row)
        await cursor.execute(_QUERY)
        return await cursor.fetchall()
