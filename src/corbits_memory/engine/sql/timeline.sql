-- name: timeline
-- The newest active versions in scope, with what decides whether their documents are visible.
SELECT v.occurred_at, v.title, d.adapter, d.external_ref, v.document_id, v.id AS version_id, v.kind, v.author,
  v.status, v.access_tags AS written, d.owner_principal_id, d.tags
FROM memory.tenant_state s
CROSS JOIN LATERAL unnest(memory.timeline(%(scope)s || jsonb_build_object('generation', s.live_generation),
  %(limit)s, %(small)s)) WITH ORDINALITY AS t(version_id, place)
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = t.version_id
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE s.tenant_id = %(tenant)s
ORDER BY t.place

-- name: ended
-- The newest of the versions that were active at an instant and are not any more, with how many were looked at.
WITH ended AS MATERIALIZED (
  SELECT v.id, v.document_id, v.occurred_at, v.title, v.kind, v.author, v.status, v.access_tags
  FROM memory.tenant_state s
  JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.generation = s.live_generation
  WHERE s.tenant_id = %(tenant)s AND coalesce(v.superseded_at, v.deprecated_at) > %(as_of)s
    AND v.ingested_at <= %(as_of)s AND v.status <> 'tombstoned'
  LIMIT %(most)s + 1
)
SELECT v.occurred_at, v.title, d.adapter, d.external_ref, v.document_id, v.id AS version_id, v.kind, v.author, v.status,
  v.access_tags AS written, d.owner_principal_id, d.tags, (SELECT count(*) FROM ended) AS looked_at
FROM ended v
-- LIMIT: a look-up each; a join may read all of the tenant's.
CROSS JOIN LATERAL (
  SELECT * FROM memory.document o WHERE o.tenant_id = %(tenant)s AND o.id = v.document_id LIMIT 1) AS d
WHERE memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id, %(principal)s, %(everything)s,
    %(allowed)s, %(refused)s, %(vetoed)s)
  AND (cardinality(%(kinds)s::text[]) = 0 OR v.kind = ANY (%(kinds)s))
  AND (%(occurred_after)s::timestamptz IS NULL OR v.occurred_at >= %(occurred_after)s)
  AND (%(occurred_before)s::timestamptz IS NULL OR v.occurred_at < %(occurred_before)s)
  AND (%(before_at)s::timestamptz IS NULL OR (v.occurred_at, v.id) < (%(before_at)s, %(before_id)s))
ORDER BY v.occurred_at DESC, v.id DESC LIMIT %(limit)s
