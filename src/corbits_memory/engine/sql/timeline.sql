-- name: timeline
-- The newest active versions that a caller may see.
SELECT v.occurred_at, v.title, d.adapter, d.external_ref, v.document_id, v.id, v.kind, v.owner_principal_id, v.author
FROM memory.tenant_state s
JOIN memory.version v ON v.tenant_id = s.tenant_id AND v.generation = s.live_generation AND v.status = 'active'
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE s.tenant_id = %(tenant)s AND v.owner_principal_id = %(principal)s
  AND (%(kinds)s::text[] IS NULL OR v.kind = ANY (%(kinds)s))
ORDER BY v.occurred_at DESC, v.id DESC
LIMIT %(limit)s
