-- Models that nobody uses any more, and their tables.

-- name: models
-- A tenant's models: what each is for, newest choice first. `used`: searches read it, a change goes to it, or a
-- generation that was staged or archived is of it.
SELECT m.model_key, m.model_id, m.base_url, m.api_style, m.dims, m.vector_type, m.status, m.replaced_by,
  m.status = 'active'
  OR EXISTS (SELECT FROM memory.embed_model o WHERE o.tenant_id = %(tenant)s AND o.replaced_by = m.model_key)
  OR EXISTS (SELECT FROM memory.generation g WHERE g.tenant_id = %(tenant)s AND g.model_key = m.model_key)
  OR EXISTS (SELECT FROM memory.transform_run r WHERE r.tenant_id = %(tenant)s
               AND (r.model_key = m.model_key OR r.archived_live_model_key = m.model_key)) AS used
FROM memory.embed_model m
WHERE m.tenant_id = %(tenant)s ORDER BY m.updated_at DESC, m.model_key

-- name: tenants_with_models
-- Who has a model, a page at a time.
SELECT DISTINCT m.tenant_id FROM memory.embed_model m
WHERE m.tenant_id > %(after)s ORDER BY m.tenant_id LIMIT 1000

-- name: forget_model
-- Takes a model off the registry.
DELETE FROM memory.embed_model WHERE tenant_id = %(tenant)s AND model_key = %(model_key)s

-- name: is_registered
-- Whether any tenant has a model.
SELECT EXISTS (SELECT FROM memory.embed_model WHERE model_key = %(model_key)s)

-- name: drop_page
-- A tenant's vectors of one model, a page at a time.
DELETE FROM {table} e WHERE e.tenant_id = %(tenant)s AND e.chunk_id IN (
  SELECT o.chunk_id FROM {table} o WHERE o.tenant_id = %(tenant)s ORDER BY o.chunk_id LIMIT 5000)

-- name: vector_tables
-- Tables of vectors: our names, in our schema.
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind = 'p'
  AND c.relname ~ '^embedding_[a-f0-9]{16}$' ORDER BY c.relname
