-- name: timeline
-- The newest active versions in scope, with what decides whether their documents are visible.
SELECT v.occurred_at, v.title, d.adapter, d.external_ref, v.document_id, v.id AS version_id, v.kind, v.author,
  d.owner_principal_id, d.tags
FROM memory.tenant_state s
CROSS JOIN LATERAL unnest(memory.timeline(%(scope)s || jsonb_build_object('generation', s.live_generation),
  %(limit)s, %(small)s)) WITH ORDINALITY AS t(version_id, place)
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = t.version_id
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE s.tenant_id = %(tenant)s
ORDER BY t.place
