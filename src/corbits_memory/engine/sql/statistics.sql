-- Derived data that makes large tenants fast: never required to answer, counted anew by the worker.

-- name: stale_tenants
-- Tenants whose corpus has outgrown its statistics; small ones need none.
SELECT s.tenant_id FROM memory.tenant_state s
WHERE (s.chunk_count > %(small)s
  AND (s.stats_rows IS NULL OR abs(s.chunk_count - s.stats_rows) > greatest(1000, s.stats_rows / 10)))
  -- Counted, but of no time: an erasure asked for a recount.
  OR (s.stats_rows IS NOT NULL AND s.stats_at IS NULL)
ORDER BY s.tenant_id LIMIT 100

-- name: counted
-- Whether a tenant was counted.
SELECT FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s AND s.stats_rows IS NOT NULL

-- name: hold
-- Two counts of one tenant at once would meet on term_stat's key.
SELECT pg_advisory_xact_lock(hashtext('memory.term_stat'), hashtext(%(tenant)s))

-- name: live
-- What is counted.
SELECT s.live_generation FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s

-- name: forget_terms
-- The counts before, of one generation or (NULL) of all.
DELETE FROM memory.term_stat t WHERE t.tenant_id = %(tenant)s
  AND (%(generation)s::text IS NULL OR t.generation = %(generation)s)

-- name: count_terms
-- In how many searchable rows of a generation each term stands.
INSERT INTO memory.term_stat (tenant_id, generation, term, df)
SELECT %(tenant)s, %(generation)s, t.term, count(*)
FROM memory.search_row r CROSS JOIN LATERAL unnest(r.terms) AS t(term)
WHERE r.tenant_id = %(tenant)s AND r.generation = %(generation)s
GROUP BY t.term

-- name: count_rows
-- Apart from the stamp, which may find the row changed meanwhile and would count again while it holds it.
SELECT count(*) FROM memory.search_row r WHERE r.tenant_id = %(tenant)s AND r.generation = %(generation)s

-- name: draw_sample
-- 64 of the tenant's chunks, spread by a hash of their ids.
UPDATE memory.embed_model m SET sample = ARRAY(
  SELECT r.chunk_id FROM memory.search_row r JOIN memory.tenant_state s ON s.tenant_id = r.tenant_id
    AND s.live_generation = r.generation
  WHERE r.tenant_id = %(tenant)s ORDER BY sha256(convert_to(r.chunk_id, 'UTF8')) LIMIT 64)
WHERE m.tenant_id = %(tenant)s

-- name: stamp
-- An epoch begins: within it, what a caller can't see changes no score that the caller sees. The last step of a
-- count: from here on captures wait for the row of their tenant. Not where another generation is live by now.
UPDATE memory.tenant_state s SET stats_at = now(), stats_rows = %(rows_counted)s
WHERE s.tenant_id = %(tenant)s AND s.live_generation = %(generation)s
