-- Reading for search. The tenant's row says what `live` is; the vector table is that of the tenant's active model (of
-- another generation: its own), and only when the query was embedded by that very model.

-- name: retrieve
-- Both channels' candidates with their neighbours and exact scores, in one round trip and one row.
SELECT * FROM memory.retrieve(%(scope)s::jsonb, %(query)s, %(required)s, %(excluded)s, %(limit)s, %(small)s, %(many)s,
  %(model_key)s, %(dims)s, %(vector)s)

-- name: lexical_channel
-- Both channels apart, for two connections at once. The query's vectors come as text: they go back as they are.
SELECT c.searched, c.partial, c.known, c.chunk_ids, c.languages, c.queries::text[], c.totals
FROM memory.lexical_channel(%(scope)s::jsonb, %(query)s, %(limit)s, %(small)s) AS c

-- name: dense_channel
SELECT * FROM memory.dense_channel(%(scope)s::jsonb, %(limit)s, %(small)s, %(small)s + 1, %(model_key)s, %(dims)s,
  %(vector)s)

-- name: complete
-- Their candidates with neighbours and exact scores.
SELECT * FROM memory.complete(jsonb_build_object('generation', %(searched)s::text) || %(scope)s::jsonb, '', %(limit)s,
  %(lexical)s, %(languages)s, %(queries)s::sparsevec[], %(totals)s, %(dense)s, %(cosines)s, %(model_key)s, %(vector)s)

-- name: compat_candidates
-- The compat profile's two lists.
SELECT coalesce(%(generation)s::text, s.live_generation) AS searched, m.model_key IS NOT NULL AS dense_ready,
  EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = s.tenant_id AND q.owner_id = %(principal)s
    AND NOT q.refill AND q.generation = coalesce(%(generation)s::text, s.live_generation)) AS partial,
  r.*
FROM memory.tenant_state s
LEFT JOIN memory.embed_model m ON m.tenant_id = s.tenant_id AND m.model_key = %(model_key)s AND m.dims = %(dims)s
  AND (m.status = 'active' OR %(generation)s::text <> s.live_generation)
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

-- name: past_texts
-- Chunks of versions that were active at an instant and replaced since, those that were replaced first, with how many
-- versions were looked at. What was only taken out of use is searched with the rest.
WITH ended AS MATERIALIZED (
  SELECT v.id, v.document_id, v.title, v.author, v.thread, v.kind, v.language, v.status, v.access_tags, v.attributes,
    v.occurred_at, v.valid_from, v.valid_until, v.temporal_class, v.authority, coalesce(v.superseded_at, v.deprecated_at) AS ended_at
  FROM memory.tenant_state s
  JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.generation = coalesce(%(generation)s::text, s.live_generation)
  WHERE s.tenant_id = %(tenant)s AND coalesce(v.superseded_at, v.deprecated_at) > %(as_of)s
    AND v.superseded_at IS NOT NULL AND v.ingested_at <= %(as_of)s AND v.status <> 'tombstoned'
  ORDER BY coalesce(v.superseded_at, v.deprecated_at), v.id LIMIT %(most)s + 1
)
SELECT c.id AS chunk_id, c.text, v.document_id, v.title, v.author, v.thread, v.language, v.occurred_at, v.valid_until,
  v.temporal_class, v.authority, (SELECT count(*) FROM ended) AS looked_at
FROM ended v
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
JOIN memory.chunk c ON c.tenant_id = %(tenant)s AND c.version_id = v.id
WHERE memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, %(principal)s, %(everything)s,
    %(allowed)s, %(refused)s, %(vetoed)s)
  AND (cardinality(%(kinds)s::text[]) = 0 OR v.kind = ANY (%(kinds)s))
  AND (%(occurred_after)s::timestamptz IS NULL OR v.occurred_at >= %(occurred_after)s)
  AND (%(occurred_before)s::timestamptz IS NULL OR v.occurred_at < %(occurred_before)s)
  AND v.attributes @> %(attributes)s
  AND (%(valid_at)s::timestamptz IS NULL
       OR coalesce(v.valid_from <= %(valid_at)s, true) AND coalesce(v.valid_until > %(valid_at)s, true))
  AND (cardinality(%(entities)s::text[]) = 0 OR v.document_id IN (
    SELECT e.from_ref FROM memory.edge e WHERE e.tenant_id = %(tenant)s AND e.to_type = 'entity'
      AND e.to_ref = ANY (%(entities)s) AND e.from_type = 'document'))
ORDER BY v.ended_at, v.id, c.ordinal LIMIT %(most)s + 1

-- name: past_scores
-- How well such texts answer.
SELECT * FROM memory.past_scores(
  %(scope)s || (SELECT jsonb_build_object('generation', coalesce(%(generation)s::text, s.live_generation))
                FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s),
  %(query)s, %(required)s, %(excluded)s, %(small)s, %(rows)s)
