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

-- name: count_terms
-- In how many searchable rows each term of the live generation stands.
INSERT INTO memory.term_stat (tenant_id, generation, term, df)
SELECT %(tenant)s, s.live_generation, t.term, count(*)
FROM memory.tenant_state s
JOIN memory.search_row r ON r.tenant_id = %(tenant)s AND r.generation = s.live_generation
CROSS JOIN LATERAL unnest(r.terms) AS t(term)
WHERE s.tenant_id = %(tenant)s
GROUP BY s.live_generation, t.term

-- name: forget_terms
-- The counts before.
DELETE FROM memory.term_stat WHERE tenant_id = %(tenant)s

-- name: draw_sample
-- 64 of the tenant's chunks, spread by a hash of their ids.
UPDATE memory.embed_model m SET sample = ARRAY(
  SELECT r.chunk_id FROM memory.search_row r JOIN memory.tenant_state s ON s.tenant_id = r.tenant_id
    AND s.live_generation = r.generation
  WHERE r.tenant_id = %(tenant)s ORDER BY sha256(convert_to(r.chunk_id, 'UTF8')) LIMIT 64)
WHERE m.tenant_id = %(tenant)s

-- name: stamp
-- An epoch begins: within it, what a caller can't see changes no score that the caller sees. The last step of a
-- count: from here on captures wait for the row of their tenant.
UPDATE memory.tenant_state s SET stats_at = now(), stats_rows = (
  SELECT count(*) FROM memory.search_row r WHERE r.tenant_id = s.tenant_id AND r.generation = s.live_generation)
WHERE s.tenant_id = %(tenant)s
