-- Documents by id: what they are, which versions they had, and the text of one.

-- name: document
-- A document with its newest version of the live generation; nothing when all of it has been forgotten.
SELECT d.id AS document_id, d.adapter, d.external_ref, d.owner_principal_id, d.tags, d.created_at, d.last_seen_at, v.*
FROM memory.tenant_state s
JOIN memory.document d ON d.tenant_id = s.tenant_id AND d.id = %(document)s
CROSS JOIN LATERAL (
  SELECT n.id AS version_id, n.version, n.status, n.title, n.kind, n.attributes, n.access_tags, n.thread, n.author, n.language,
    n.occurred_at, n.ingested_at, n.valid_from, n.valid_until, n.created_by_principal_id, n.created_by_kind,
    n.generator_agent_id, n.provenance, n.source_class, n.temporal_class, n.retention_class
  FROM memory.version n
  WHERE n.tenant_id = s.tenant_id AND n.document_id = d.id AND n.generation = s.live_generation
    AND n.status <> 'tombstoned'
  ORDER BY n.status = 'active' DESC, n.version DESC LIMIT 1) AS v
WHERE s.tenant_id = %(tenant)s

-- name: lookup
-- A source's documents by reference, those that are shown, with their active versions. No stretch of what is not shown
-- ends a page: where it ended would tell of it. The time that one statement may take bounds it.
WITH seen AS (
  SELECT d.id AS document_id, d.adapter, d.external_ref, d.owner_principal_id, d.tags, d.created_at, d.last_seen_at, v.*
  FROM memory.tenant_state s
  JOIN memory.document d ON d.tenant_id = s.tenant_id AND d.adapter = %(adapter)s AND d.external_ref > %(after)s
    AND d.external_ref >= %(low)s AND (%(high)s::text IS NULL OR d.external_ref < %(high)s)
    AND (%(refs)s::text[] IS NULL OR d.external_ref = ANY (%(refs)s))
    AND (%(everything)s OR d.owner_principal_id = %(principal)s OR d.tags && %(allowed)s)
  CROSS JOIN LATERAL (
    SELECT n.id AS version_id, n.version, n.status, n.title, n.kind, n.attributes, n.access_tags, n.thread, n.author,
      n.language, n.occurred_at, n.ingested_at, n.valid_from, n.valid_until, n.created_by_principal_id, n.created_by_kind,
      n.generator_agent_id, n.provenance, n.source_class, n.temporal_class, n.retention_class, n.raw_capture_id
    FROM memory.version n
    WHERE n.tenant_id = %(tenant)s AND n.document_id = d.id AND n.generation = s.live_generation AND n.status = 'active'
    LIMIT 1) AS v
  WHERE s.tenant_id = %(tenant)s AND memory.admits_version(v.status, v.access_tags, d.owner_principal_id, d.tags, d.id,
    %(principal)s, %(everything)s, %(allowed)s, %(refused)s, %(vetoed)s)
  ORDER BY d.external_ref LIMIT %(limit)s + 1
)
SELECT seen.*,
  (SELECT octet_length(r.raw_text) FROM memory.raw_capture r
   WHERE r.tenant_id = %(tenant)s AND r.id = seen.raw_capture_id) AS bytes
FROM seen ORDER BY seen.external_ref

-- name: raw_texts
-- What came in, of some captures.
SELECT r.id, r.raw_text FROM memory.raw_capture r WHERE r.tenant_id = %(tenant)s AND r.id = ANY (%(captures)s)

-- name: history
-- A document's versions, newest first, each with a fingerprint of its text.
SELECT v.id AS version_id, v.version, v.status, v.title, v.kind, v.attributes, v.access_tags, v.thread, v.author,
  v.language, v.occurred_at, v.ingested_at, v.superseded_at, v.deprecated_at, v.deprecated_reason,
  v.valid_from, v.valid_until, v.created_by_principal_id, v.created_by_kind, v.generator_agent_id, v.provenance,
  v.source_class, v.temporal_class, v.retention_class,
  (SELECT md5(string_agg(md5(c.text), '' ORDER BY c.ordinal)) FROM memory.chunk c
   WHERE c.tenant_id = v.tenant_id AND c.version_id = v.id) AS text
FROM memory.tenant_state s
JOIN memory.version v ON v.tenant_id = s.tenant_id AND v.document_id = %(document)s
  AND v.generation = s.live_generation AND v.version < %(before)s
WHERE s.tenant_id = %(tenant)s
ORDER BY v.version DESC LIMIT %(limit)s

-- name: version
-- One version of the live generation, with what decides who may see it.
SELECT v.id AS version_id, v.document_id, v.version, v.status, v.title, v.kind, v.attributes,
  v.access_tags, v.thread, v.author, v.language, v.occurred_at, v.ingested_at, v.superseded_at,
  v.deprecated_at, v.deprecated_reason, v.valid_from, v.valid_until, v.created_by_principal_id, v.created_by_kind,
  v.generator_agent_id, v.provenance, v.source_class, v.temporal_class, v.retention_class, v.supersedes_version_id,
  d.adapter, d.external_ref, d.owner_principal_id, d.tags
FROM memory.tenant_state s
JOIN memory.version v ON v.tenant_id = s.tenant_id AND v.id = %(version)s AND v.generation = s.live_generation
JOIN memory.document d ON d.tenant_id = s.tenant_id AND d.id = v.document_id
WHERE s.tenant_id = %(tenant)s AND v.status <> 'tombstoned'

-- name: chunks
-- A page of a version's text.
SELECT c.id AS chunk_id, c.ordinal, c.text, c.role FROM memory.chunk c
WHERE c.tenant_id = %(tenant)s AND c.version_id = %(version)s AND c.ordinal > %(after)s
ORDER BY c.ordinal LIMIT %(limit)s

-- name: sources
-- Versions that a version refers to, with what decides who may see them.
SELECT e.rel, e.to_ref, s.status, s.access_tags, s.document_id, o.owner_principal_id, o.tags
FROM memory.edge e
JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.to_ref AND s.status <> 'tombstoned'
JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id
WHERE e.tenant_id = %(tenant)s AND e.from_type = 'version' AND e.from_ref = %(version)s AND e.to_type = 'version'
  AND e.rel IN ('derived_from', 'supports', 'contradicts')
ORDER BY e.rel, e.to_ref
