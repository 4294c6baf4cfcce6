-- Reading for search. The tenant's row says what `live` is; the vector table is that of the tenant's active model,
-- and only when the query was embedded by that very model.

-- name: retrieve
-- Both channels' candidates with their neighbours and exact scores, in one round trip and one row.
SELECT * FROM memory.retrieve(%(scope)s, %(query)s, %(required)s, %(excluded)s, %(limit)s, %(small)s, %(model_key)s,
  %(dims)s, %(vector)s)

-- name: compat_candidates
-- The compat profile's two lists.
SELECT m.model_key IS NOT NULL AS dense_ready,
  EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = s.tenant_id AND q.owner_id = %(principal)s) AS partial,
  r.*
FROM memory.tenant_state s
LEFT JOIN memory.embed_model m ON m.tenant_id = s.tenant_id AND m.status = 'active' AND m.model_key = %(model_key)s
  AND m.dims = %(dims)s
CROSS JOIN LATERAL memory.compat_candidates(
  %(scope)s || jsonb_build_object('generation', coalesce(%(generation)s::text, s.live_generation)),
  %(query)s, %(language)s, %(limit)s, %(small)s,
  'embedding_' || m.model_key, m.vector_type, CASE WHEN m.model_key IS NOT NULL THEN %(vector)s::text END, m.sample) AS r
WHERE s.tenant_id = %(tenant)s

-- name: details
-- What hits are shown with, of what the caller may see.
SELECT * FROM memory.hit_details(%(chunks)s, %(principal)s, %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)

-- name: vectors
-- Vectors of a few chunks, for diversity.
SELECT chunk_id, embedding FROM {table} WHERE tenant_id = %(tenant)s AND chunk_id = ANY (%(chunks)s)
