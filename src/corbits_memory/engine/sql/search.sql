-- Reading for search. The tenant's row says what `live` is; the vector table is that of the tenant's active model,
-- and only when the query was embedded by that very model.

-- name: retrieve
-- Both channels' candidates with their neighbours and exact scores, in one round trip and one row.
SELECT m.model_key IS NOT NULL AS dense_ready,
  EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = s.tenant_id AND q.owner_id = %(principal)s) AS partial,
  r.*
FROM memory.tenant_state s
LEFT JOIN memory.embed_model m ON m.tenant_id = s.tenant_id AND m.status = 'active' AND m.model_key = %(model_key)s
  AND m.dims = %(dims)s
LEFT JOIN LATERAL memory.retrieve(
  %(scope)s || jsonb_build_object('generation', coalesce(%(generation)s::text, s.live_generation)),
  %(query)s, %(required)s, %(excluded)s, %(limit)s, %(small)s,
  'embedding_' || m.model_key, m.vector_type, CASE WHEN m.model_key IS NOT NULL THEN %(vector)s::text END, m.sample) AS r ON true
WHERE s.tenant_id = %(tenant)s

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
-- What hits are shown with. Claims for and against count once a principal, and only what this caller may see.
SELECT c.id AS chunk_id, c.text, v.id AS version_id, v.version, v.status, v.title, v.kind, v.document_id,
  d.adapter, d.external_ref, d.last_seen_at, d.owner_principal_id, d.tags, v.author, v.thread, v.created_by_kind,
  v.generator_agent_id, v.provenance, v.source_class, v.temporal_class, v.occurred_at, v.valid_until, v.authority,
  ARRAY(SELECT DISTINCT e.to_ref::text FROM memory.edge e WHERE e.tenant_id = %(tenant)s AND e.from_type = 'document'
        AND e.from_ref = v.document_id AND e.to_type = 'entity' ORDER BY 1) AS entity_ids,
  ARRAY(SELECT e.to_ref::text FROM memory.edge e
        JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.to_ref
        JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id AND memory.admits(
          o.owner_principal_id, o.tags, %(principal)s, %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)
        WHERE e.tenant_id = %(tenant)s AND e.from_type = 'version' AND e.from_ref = v.id AND e.rel = 'derived_from'
        ORDER BY 1) AS derived_from,
  coalesce(claims.supports, 0) AS supports, coalesce(claims.contradicts, 0) AS contradicts
FROM memory.chunk c
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = c.version_id
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = c.document_id
LEFT JOIN LATERAL (
  SELECT count(DISTINCT s.created_by_principal_id) FILTER (WHERE e.rel = 'supports') AS supports,
    count(DISTINCT s.created_by_principal_id) FILTER (WHERE e.rel = 'contradicts') AS contradicts
  FROM memory.edge e
  JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.from_ref AND s.status = 'active'
  JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id AND memory.admits(
    o.owner_principal_id, o.tags, %(principal)s, %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)
  WHERE e.tenant_id = %(tenant)s AND e.to_type = 'version' AND e.to_ref = v.id
    AND e.rel IN ('supports', 'contradicts') AND e.from_type = 'version'
) AS claims ON true
WHERE c.tenant_id = %(tenant)s AND c.id = ANY (%(chunks)s)

-- name: vectors
-- Vectors of a few chunks, for diversity.
SELECT chunk_id, embedding FROM {table} WHERE tenant_id = %(tenant)s AND chunk_id = ANY (%(chunks)s)
