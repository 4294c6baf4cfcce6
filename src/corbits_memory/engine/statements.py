"""Named queries of one file, within one transaction and for one tenant."""

from typing import Any

import orjson
from psycopg import AsyncCursor
from psycopg.rows import TupleRow, dict_row

from corbits_memory.engine.drafts import Row
from corbits_memory.engine.pool import Connection
from corbits_memory.engine.queries import load_queries


def dump_rows(rows: list[Row]) -> str:
    """Rows as the JSON that statements read them from."""
    return orjson.dumps(rows).decode()


class Statements:
    """Binds the tenant, whatever else is ``bound``, and ``rows`` as JSON."""

    def __init__(self, conn: Connection, tenant_id: str, file: str, **bound: Any) -> None:
        self.conn = conn
        self.tenant_id = tenant_id
        self._queries = load_queries(file)
        self._bound = {"tenant": tenant_id, **bound}

    async def run(self, query: str, **parameters: Any) -> AsyncCursor[TupleRow]:
        return await self.conn.execute(self._queries[query], self._bind(parameters))

    async def send(self, query: str, **parameters: Any) -> AsyncCursor[Row]:
        """For rows that are fetched later: in a pipeline, another statement may follow at once."""
        cursor = self.conn.cursor(row_factory=dict_row)
        return await cursor.execute(self._queries[query], self._bind(parameters))

    async def fetch(self, query: str, **parameters: Any) -> list[Row]:
        return await (await self.send(query, **parameters)).fetchall()

    def _bind(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if "rows" in parameters:
            parameters["rows"] = dump_rows(parameters["rows"])
        return {**self._bound, **parameters}
