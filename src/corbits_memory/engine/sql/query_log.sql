-- Sampled questions.

-- name: note
-- One more; the oldest goes where there are too many.
WITH surplus AS (
  SELECT q.id FROM memory.query_log q WHERE q.tenant_id = %(tenant)s ORDER BY q.id DESC OFFSET %(kept)s LIMIT 10
), dropped AS (
  DELETE FROM memory.query_log q USING surplus WHERE q.tenant_id = %(tenant)s AND q.id = surplus.id
)
INSERT INTO memory.query_log (tenant_id, id, query) VALUES (%(tenant)s, %(id)s, %(query)s)

-- name: sampled
-- The newest.
SELECT q.query, q.asked_at FROM memory.query_log q WHERE q.tenant_id = %(tenant)s ORDER BY q.id DESC LIMIT %(limit)s

-- name: expired_tenants
-- Who has old ones: one index probe a tenant.
WITH RECURSIVE holding AS (
  (SELECT q.tenant_id FROM memory.query_log q ORDER BY q.tenant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT q.tenant_id FROM memory.query_log q WHERE q.tenant_id > h.tenant_id ORDER BY q.tenant_id LIMIT 1)
  FROM holding h WHERE h.tenant_id IS NOT NULL
)
SELECT h.tenant_id FROM holding h
WHERE EXISTS (SELECT FROM memory.query_log q WHERE q.tenant_id = h.tenant_id
  AND q.asked_at <= now() - make_interval(days => %(days)s))

-- name: sweep
-- A tenant's old ones.
DELETE FROM memory.query_log q
WHERE q.tenant_id = %(tenant)s AND q.asked_at <= now() - make_interval(days => %(days)s)
