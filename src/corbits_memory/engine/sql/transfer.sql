-- A tenant as lines of JSON, and back. Pages are of documents; a page's rows come in the order that they go back in.

-- name: export_head
-- What the export is of.
SELECT s.live_generation, s.document_count, s.chunk_count,
  (SELECT jsonb_build_object('model_key', m.model_key, 'model_id', m.model_id, 'dims', m.dims, 'vector_type', m.vector_type)
   FROM memory.embed_model m WHERE m.tenant_id = s.tenant_id AND m.status = 'active') AS model
FROM memory.tenant_state s WHERE s.tenant_id = %(tenant)s

-- name: export_documents
-- The next documents that have something left to tell and that the caller may see.
SELECT d.id, d.owner_principal_id, d.tags, to_jsonb(d) - 'tenant_id' - 'tags' AS row
FROM memory.document d
WHERE d.tenant_id = %(tenant)s AND d.id > %(after)s
  AND EXISTS (SELECT FROM memory.version v WHERE v.tenant_id = %(tenant)s AND v.document_id = d.id
              AND v.generation = %(generation)s AND v.status <> 'tombstoned')
  AND (%(all)s OR memory.admits(d.owner_principal_id, d.tags, d.id, %(principal)s, %(everything)s, %(allowed)s, %(refused)s,
                                %(vetoed)s))
ORDER BY d.id LIMIT %(limit)s

-- name: export_versions
-- Their versions. Somebody else's earlier ones are seen by what they were written with, too.
SELECT v.id, v.raw_capture_id, to_jsonb(v) - 'tenant_id' - 'generation' - 'feed_seq' || jsonb_build_object('chunks',
    (SELECT count(*) FROM memory.chunk c WHERE c.tenant_id = %(tenant)s AND c.version_id = v.id)) AS row
FROM memory.version v
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
WHERE v.tenant_id = %(tenant)s AND v.document_id = ANY (%(documents)s) AND v.generation = %(generation)s
  AND v.status <> 'tombstoned'
  AND (%(all)s OR v.status = 'active' OR memory.admits(d.owner_principal_id, v.access_tags, d.id, %(principal)s, %(everything)s,
                                                       %(allowed)s, %(refused)s, %(vetoed)s))
ORDER BY v.document_id, v.version

-- name: export_raw_captures
-- What they were made from.
SELECT to_jsonb(r) - 'tenant_id' AS row FROM memory.raw_capture r
WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s) ORDER BY r.id

-- name: export_chunks
-- Their text, a page at a time.
SELECT c.id, c.version_id, c.ordinal, to_jsonb(c) - 'tenant_id' - 'text_fts' AS row FROM memory.chunk c
WHERE c.tenant_id = %(tenant)s AND c.version_id = ANY (%(versions)s)
  AND (c.version_id, c.ordinal) > (%(after_version)s, %(after_ordinal)s)
ORDER BY c.version_id, c.ordinal LIMIT %(limit)s

-- name: export_vectors
-- Their vectors.
SELECT e.chunk_id, e.embedding::text FROM {table} e WHERE e.tenant_id = %(tenant)s AND e.chunk_id = ANY (%(chunks)s)

-- name: export_edges
-- What they are about, and which versions they refer to: of those, what the caller may see.
SELECT to_jsonb(e) - 'tenant_id' AS row FROM memory.edge e
WHERE e.tenant_id = %(tenant)s AND e.from_type IN ('document', 'version') AND e.from_ref = ANY (%(refs)s)
  AND (%(all)s OR e.to_type = 'entity' OR EXISTS (
    SELECT FROM memory.version s JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id
    WHERE s.tenant_id = %(tenant)s AND s.id = e.to_ref AND memory.admits(o.owner_principal_id, o.tags, o.id, %(principal)s,
      %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)))
ORDER BY e.id

-- name: export_entities
-- What the edges name.
SELECT to_jsonb(n) - 'tenant_id' AS row FROM memory.entity n
WHERE n.tenant_id = %(tenant)s AND n.id = ANY (%(entities)s) ORDER BY n.id

-- name: restore_raw_captures
-- Payloads; one that is here already stays.
INSERT INTO memory.raw_capture (tenant_id, id, adapter, external_ref, fetched_at, content_type, raw_text, raw_bytes,
  metadata, source_hash)
SELECT %(tenant)s, x.id, x.adapter, x.external_ref, x.fetched_at, x.content_type, x.raw_text, x.raw_bytes, x.metadata,
  x.source_hash
FROM jsonb_populate_recordset(NULL::memory.raw_capture, %(rows)s) AS x
ORDER BY x.source_hash
ON CONFLICT DO NOTHING

-- name: restore_documents
-- Documents. One whose reference is another's here is left out, with all that hangs on it.
INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id, access_tags,
  system_tags, attributes, thread, thread_seq, author, created_at, last_seen_at)
SELECT %(tenant)s, x.id, x.kind, x.title, x.adapter, x.external_ref, x.owner_principal_id, x.access_tags, x.system_tags,
  x.attributes, x.thread, x.thread_seq, x.author, x.created_at, x.last_seen_at
FROM jsonb_populate_recordset(NULL::memory.document, %(rows)s) AS x
ORDER BY x.adapter, x.external_ref
ON CONFLICT DO NOTHING
RETURNING id

-- name: known_documents
-- Which of them are here, with what their search rows need.
SELECT id, thread_seq FROM memory.document WHERE tenant_id = %(tenant)s AND id = ANY (%(ids)s)

-- name: restore_versions
-- Versions, in the generation that is live here.
INSERT INTO memory.version (tenant_id, id, document_id, version, supersedes_version_id, status, content_hash, title, kind,
  attributes, access_tags, thread, author, language, occurred_at, ingested_at, superseded_at, deprecated_at,
  deprecated_reason, owner_principal_id, created_by_principal_id, created_by_kind, generator_agent_id, authority,
  actor_count, has_social_signal, source_class, raw_capture_id, generation, provenance, temporal_class, valid_from,
  valid_until, retention_class)
SELECT %(tenant)s, x.id, x.document_id, x.version, x.supersedes_version_id, x.status, x.content_hash, x.title, x.kind,
  x.attributes, x.access_tags, x.thread, x.author, x.language, x.occurred_at, x.ingested_at, x.superseded_at,
  x.deprecated_at, x.deprecated_reason, x.owner_principal_id, x.created_by_principal_id, x.created_by_kind,
  x.generator_agent_id, x.authority, x.actor_count, x.has_social_signal, x.source_class,
  (SELECT r.id FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.id = x.raw_capture_id),
  %(generation)s, x.provenance, x.temporal_class, x.valid_from, x.valid_until, x.retention_class
FROM jsonb_populate_recordset(NULL::memory.version, %(rows)s) AS x
ON CONFLICT DO NOTHING
RETURNING id

-- name: restore_chunks
-- Text.
INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, role, token_count, created_at)
SELECT %(tenant)s, x.id, x.version_id, x.document_id, x.ordinal, x.text, x.role, x.token_count, x.created_at
FROM jsonb_populate_recordset(NULL::memory.chunk, %(rows)s) AS x
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = x.version_id
ON CONFLICT DO NOTHING
RETURNING id

-- name: restore_search_rows
-- What search reads, analysed here.
INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
  access_tags, kind, attributes, thread, thread_seq, context_key, author, occurred_at, valid_from, valid_until,
  temporal_class, authority, words, asks, language, fts, terms, lex)
SELECT %(tenant)s, x.id, %(generation)s, v.document_id, v.id, x.ordinal, v.status, d.owner_principal_id,
  memory.version_tags(v.status, v.access_tags, d.tags), v.kind,
  nullif(v.attributes, '{}'), v.thread, d.thread_seq, x.context_key, v.author, v.occurred_at, v.valid_from, v.valid_until,
  v.temporal_class, v.authority, x.words, x.asks, v.language, a.fts,
  memory.term_hashes(%(tenant)s, %(generation)s, a.fts), memory.bm25_vector(a.fts)
FROM jsonb_to_recordset(%(rows)s) AS x(id text, version_id text, ordinal integer, context_key text, head text, body text,
  words integer, asks boolean)
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.id = x.version_id AND v.status IN ('active', 'deprecated')
JOIN memory.document d ON d.tenant_id = %(tenant)s AND d.id = v.document_id
CROSS JOIN LATERAL (SELECT memory.analyse(v.language, x.head, x.body) AS fts OFFSET 0) AS a
ON CONFLICT DO NOTHING
RETURNING chunk_id, owner_id

-- name: restore_entities
-- Entities; one that is here under another id keeps it, and the edges follow.
INSERT INTO memory.entity (tenant_id, id, kind, identifiers, label, created_at, updated_at)
SELECT %(tenant)s, x.id, x.kind, x.identifiers, x.label, x.created_at, x.updated_at
FROM jsonb_populate_recordset(NULL::memory.entity, %(rows)s) AS x
ORDER BY x.kind, x.identifiers ->> 'value'
ON CONFLICT DO NOTHING

-- name: entity_ids
-- What entities of the export are called here.
SELECT x.id AS exported, n.id FROM jsonb_populate_recordset(NULL::memory.entity, %(rows)s) AS x
JOIN memory.entity n ON n.tenant_id = %(tenant)s AND n.kind = x.kind
  AND n.identifiers ->> 'value' = x.identifiers ->> 'value'

-- name: restore_edges
-- Edges, each once.
INSERT INTO memory.edge (tenant_id, id, rel, from_type, from_ref, to_type, to_ref, created_at)
SELECT %(tenant)s, x.id, x.rel, x.from_type, x.from_ref, x.to_type, x.to_ref, x.created_at
FROM jsonb_populate_recordset(NULL::memory.edge, %(rows)s) AS x
ORDER BY x.from_type, x.from_ref, x.rel, x.to_type, x.to_ref
ON CONFLICT DO NOTHING
