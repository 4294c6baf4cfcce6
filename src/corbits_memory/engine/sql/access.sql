-- Tags in use, and changes of a document's tags.

-- name: known_tags
-- Tags in use that match one of some patterns (LIKE), a page at a time.
SELECT t.tag FROM memory.access_tag t
WHERE t.tenant_id = %(tenant)s AND t.tag > %(after)s AND t.tag LIKE ANY (%(patterns)s)
ORDER BY t.tag LIMIT %(limit)s

-- name: note_tags
-- Tags that come into use. In order, so that writers of the same new tags never wait for each other in a circle.
INSERT INTO memory.access_tag (tenant_id, tag)
SELECT %(tenant)s, t.tag FROM (SELECT DISTINCT unnest(%(tags)s::text[]) COLLATE "C" AS tag ORDER BY 1) AS t
ON CONFLICT DO NOTHING

-- name: lock_own_document
-- A document of the caller's, for a change of its tags. Nobody waits for a caller who doesn't own it.
SELECT d.access_tags, d.system_tags FROM memory.document d
WHERE d.tenant_id = %(tenant)s AND d.id = %(document)s AND d.owner_principal_id = %(principal)s
FOR UPDATE

-- name: shown_version
-- The version that a document is shown by. None of one that is forgotten.
SELECT v.id FROM memory.version v
WHERE v.tenant_id = %(tenant)s AND v.document_id = %(document)s AND v.status <> 'tombstoned'
ORDER BY v.status = 'active' DESC, v.version DESC LIMIT 1

-- name: whose_document
-- What decides whether somebody else may see a document.
SELECT d.owner_principal_id, d.tags, v.status = 'active' AS active, v.access_tags AS written
FROM memory.document d
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.document_id = d.id AND v.status <> 'tombstoned'
WHERE d.tenant_id = %(tenant)s AND d.id = %(document)s
ORDER BY v.status = 'active' DESC, v.version DESC LIMIT 1

-- name: foreign_sources
-- The tags of what documents were made from and somebody else owns.
SELECT DISTINCT d.id, o.id, o.tags
FROM memory.document d
JOIN memory.version v ON v.tenant_id = %(tenant)s AND v.document_id = d.id AND v.status <> 'tombstoned'
JOIN memory.edge e ON e.tenant_id = %(tenant)s AND e.from_type = 'version' AND e.from_ref = v.id
  AND e.rel = 'derived_from' AND e.to_type = 'version'
JOIN memory.version s ON s.tenant_id = %(tenant)s AND s.id = e.to_ref
JOIN memory.document o ON o.tenant_id = %(tenant)s AND o.id = s.document_id
  AND o.owner_principal_id <> d.owner_principal_id
WHERE d.tenant_id = %(tenant)s AND d.id = ANY (%(documents)s)

-- name: reachable_documents
-- Which documents some tags reach; NULL when they are more than asked for.
SELECT memory.reachable_documents(%(tags)s::text[], %(most)s)
