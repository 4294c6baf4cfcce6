-- Rows of versions out of use, and their vectors, whose tags were left behind: by a deprecation beside a change of the
-- document's tags, or by a replay. Since then deprecating locks the document, and copies have the tags of their version.
UPDATE memory.search_row r SET access_tags = memory.version_tags(v.status, v.access_tags, d.tags)
FROM memory.version v JOIN memory.document d ON d.tenant_id = v.tenant_id AND d.id = v.document_id
WHERE r.status = 'deprecated' AND v.tenant_id = r.tenant_id AND v.id = r.version_id
  AND r.access_tags <> memory.version_tags(v.status, v.access_tags, d.tags);
DO $$
DECLARE
  place text;
BEGIN
  FOR place IN SELECT DISTINCT 'embedding_' || m.model_key FROM memory.embed_model m
    WHERE to_regclass(format('memory.%I', 'embedding_' || m.model_key)) IS NOT NULL LOOP
    EXECUTE format('UPDATE memory.%I e SET access_tags = r.access_tags FROM memory.search_row r '
      'WHERE r.status = ''deprecated'' AND e.tenant_id = r.tenant_id AND e.chunk_id = r.chunk_id '
      'AND e.access_tags <> r.access_tags', place);
  END LOOP;
END $$;
