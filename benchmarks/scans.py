"""The bare index scans that a search can't do without, sent alone by the same (asynchronous) driver and prepared.

Lexical: the candidates of the rare terms and of pairs of the others, from the GIN index, ordered by BM25.
Dense: the nearest vectors from the HNSW index, under the product's planner settings; below the product's limit for
an exact look, all of the tenant's vectors ordered by distance. No access rules, no joins, nothing beside the ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from benchmarks.server import PRINCIPAL
from corbits_memory.core.text import normalise, parse_query
from corbits_memory.engine.search.default import CANDIDATES_MIN
from corbits_memory.engine.search.retrieval import EXACT_ROWS
from corbits_memory.engine.vectors import vector_text

RARE_ROWS, PAIRED_TERMS, PAIRED_DF, MATCHES_MAX = 4_000, 6, 20_000, 20_000
"""The bounds of ``memory.lexical_candidates``."""
SETTINGS = {"hnsw.iterative_scan": "relaxed_order", "hnsw.max_scan_tuples": "40000"}


@dataclass(frozen=True, slots=True)
class Scan:
    """One statement, ready to be sent."""

    statement: sql.Composed
    parameters: dict[str, Any]


class BareScans:
    """Both scans of each question for one tenant."""

    def __init__(
        self, conn: psycopg.Connection, sender: psycopg.AsyncConnection, tenant_id: str, model_key: str
    ) -> None:
        self._conn = conn
        self._sender = sender
        self._tenant_id = tenant_id
        self._table = sql.Identifier("memory", f"embedding_{model_key}")
        row = conn.execute(
            "SELECT chunk_count FROM memory.tenant_state WHERE tenant_id = %s", [tenant_id]
        ).fetchone()
        assert row is not None
        self._small = row[0] <= EXACT_ROWS

    @classmethod
    async def prepare(
        cls, conn: psycopg.Connection, sender: psycopg.AsyncConnection, tenant_id: str, model_key: str
    ) -> "BareScans":
        """``conn`` answers what the statements are made of; ``sender`` sends nothing but the scans."""
        row = conn.execute(
            "SELECT memory.ef_search(%s, chunk_count)::text FROM memory.tenant_state WHERE tenant_id = %s",
            [CANDIDATES_MIN, tenant_id],
        ).fetchone()
        assert row is not None
        for name, value in {**SETTINGS, "hnsw.ef_search": row[0]}.items():
            await sender.execute("SELECT set_config(%s, %s, false)", [name, value])
        return cls(conn, sender, tenant_id, model_key)

    def lexical(self, question: str) -> Scan:
        """The candidates by terms, ordered by BM25."""
        text = normalise(parse_query(question).text)
        rare, common = self._split(text)
        conditions: list[sql.Composable] = [sql.SQL("terms && %(rare)s::integer[]")]
        parameters: dict[str, Any] = {"rare": rare, "query": self._weights(text), "limit": CANDIDATES_MIN}
        for (one, frequency), (other, _) in combinations(common[:PAIRED_TERMS], 2):
            if frequency <= PAIRED_DF:
                name = f"pair{len(conditions)}"
                conditions.append(sql.SQL("terms @> {}::integer[]").format(sql.Placeholder(name)))
                parameters[name] = [one, other]
        statement = sql.SQL(
            "SELECT chunk_id FROM (SELECT chunk_id, lex FROM memory.search_row WHERE tenant_id = {tenant} AND "
            "({conditions}) LIMIT {most}) AS m ORDER BY lex <#> %(query)s::sparsevec, chunk_id LIMIT %(limit)s"
        ).format(
            tenant=sql.Literal(self._tenant_id),
            conditions=sql.SQL(" OR ").join(conditions),
            most=sql.Literal(MATCHES_MAX),
        )
        return Scan(statement, parameters)

    def dense(self, vector: Sequence[float]) -> Scan:
        """The nearest vectors."""
        shape = (
            "WITH v AS MATERIALIZED (SELECT chunk_id, embedding <=> %(vector)s::halfvec AS d FROM {table} "
            "WHERE tenant_id = {tenant}) SELECT chunk_id FROM v ORDER BY d LIMIT %(limit)s"
            if self._small
            else "SELECT chunk_id FROM {table} WHERE tenant_id = {tenant} "
            "ORDER BY embedding <=> %(vector)s::halfvec LIMIT %(limit)s"
        )
        statement = sql.SQL(shape).format(table=self._table, tenant=sql.Literal(self._tenant_id))
        return Scan(statement, {"vector": vector_text(vector), "limit": CANDIDATES_MIN})

    async def run(self, scan: Scan) -> list[str]:
        """Send it; chunk ids in order."""
        cursor = await self._sender.execute(scan.statement, scan.parameters, prepare=True)
        return [row[0] for row in await cursor.fetchall()]

    def _split(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Hashes of the rare terms; hashes and frequencies of the rest, rarest first."""
        rows = self._conn.execute(
            "SELECT t.term, coalesce(s.df, 0) FROM unnest(memory.query_lexemes('english', %(text)s)) AS l(lexeme) "
            "CROSS JOIN LATERAL memory.term_hash(%(tenant)s, 'g0', l.lexeme) AS t(term) "
            "LEFT JOIN memory.term_stat s ON s.tenant_id = %(tenant)s AND s.generation = 'g0' AND s.term = t.term "
            "ORDER BY 2, l.lexeme",
            {"text": text, "tenant": self._tenant_id},
        ).fetchall()
        rare: list[int] = []
        common: list[tuple[int, int]] = []
        matches = 0
        for term, frequency in rows:
            if self._small or not rare or matches + frequency <= RARE_ROWS:
                rare.append(term)
                matches += frequency
            else:
                common.append((term, frequency))
        return rare, common

    def _weights(self, text: str) -> str:
        """The query as idf per dimension, as the product's own function has it."""
        scope = {"principal": PRINCIPAL, "statuses": ["active"], "generation": "g0"}
        with self._conn.transaction():
            self._conn.execute("SELECT set_config('memory.tenant_id', %s, true)", [self._tenant_id])
            row = self._conn.execute(
                "SELECT queries[1]::text FROM memory.lexical_candidates(%s, %s, '{}', '{}', 1, %s)",
                [Jsonb(scope), text, EXACT_ROWS],
            ).fetchone()
        return row[0] if row and row[0] else "{}/268435456"
