-- Keys under which an add may be sent again.

-- name: take_positions
-- The places of a request that nobody answered yet, or so long ago that it has expired. Whoever else is about to
-- answer one is waited for. In order, so that two of one key never wait for each other in a circle.
INSERT INTO memory.idempotency_key AS k (tenant_id, principal_id, key_hash, position, request_hash)
SELECT %(tenant)s, %(principal)s, %(key)s, p.position, %(request)s
FROM unnest(%(positions)s::integer[]) AS p(position) ORDER BY p.position
ON CONFLICT (tenant_id, principal_id, key_hash, position) DO UPDATE SET request_hash = excluded.request_hash,
  document_id = NULL, version_id = NULL, version = NULL, status = NULL, chunks = NULL, created_at = now()
WHERE k.created_at <= now() - make_interval(secs => %(seconds)s)
RETURNING k.position

-- name: answers
-- What was answered under a key, at some places of the request or at any.
SELECT k.position, k.request_hash, k.document_id, k.version_id, k.version, k.status, k.chunks
FROM memory.idempotency_key k
WHERE k.tenant_id = %(tenant)s AND k.principal_id = %(principal)s AND k.key_hash = %(key)s
  AND (%(positions)s::integer[] IS NULL OR k.position = ANY (%(positions)s::integer[]))
  AND k.created_at > now() - make_interval(secs => %(seconds)s)

-- name: keep_answers
-- What came of them; in the transaction that wrote the documents.
UPDATE memory.idempotency_key k SET document_id = x.document_id, version_id = x.version_id, version = x.version,
  status = x.status, chunks = x.chunks
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(position integer, document_id text, version_id text, version integer,
  status text, chunks integer)
WHERE k.tenant_id = %(tenant)s AND k.principal_id = %(principal)s AND k.key_hash = %(key)s AND k.position = x.position

-- name: give_back
-- Places whose documents were refused: nothing was written, so that asking again is asking anew.
DELETE FROM memory.idempotency_key k
WHERE k.tenant_id = %(tenant)s AND k.principal_id = %(principal)s AND k.key_hash = %(key)s
  AND k.position = ANY (%(positions)s::integer[])

-- name: document_tags
-- What documents carry now.
SELECT d.id, d.access_tags || d.system_tags AS tags FROM memory.document d
WHERE d.tenant_id = %(tenant)s AND d.id = ANY (%(documents)s::text[])

-- name: expired_tenants
-- Whose keys have expired: one index probe a tenant.
WITH RECURSIVE holding AS (
  (SELECT k.tenant_id FROM memory.idempotency_key k ORDER BY k.tenant_id LIMIT 1)
  UNION ALL
  SELECT (SELECT k.tenant_id FROM memory.idempotency_key k WHERE k.tenant_id > h.tenant_id ORDER BY k.tenant_id LIMIT 1)
  FROM holding h WHERE h.tenant_id IS NOT NULL
)
SELECT h.tenant_id FROM holding h
WHERE EXISTS (SELECT FROM memory.idempotency_key k WHERE k.tenant_id = h.tenant_id
  AND k.created_at <= now() - make_interval(secs => %(seconds)s))

-- name: sweep
-- Some of a tenant's expired keys. One that is just being taken up again is left.
DELETE FROM memory.idempotency_key k
WHERE k.tenant_id = %(tenant)s AND k.ctid = ANY (ARRAY(
  SELECT e.ctid FROM memory.idempotency_key e
  WHERE e.tenant_id = %(tenant)s AND e.created_at <= now() - make_interval(secs => %(seconds)s)
  ORDER BY e.created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
