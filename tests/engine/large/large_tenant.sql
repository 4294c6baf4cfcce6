-- A tenant of many rows, copied straight into the tables: `made` holds place, text and vector of each.
INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id)
SELECT 'acme', 'kdoc_' || i, 'note', 't', 'http', 'n' || i, 'ann' FROM made;

INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, language, occurred_at,
  owner_principal_id, created_by_principal_id, created_by_kind, authority, generation)
SELECT 'acme', 'kver_' || i, 'kdoc_' || i, 1, i, 't', 'note', 'english', now(), 'ann', 'ann', 'human', 0.42, 'g0'
FROM made;

INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count)
SELECT 'acme', 'kchk_' || i, 'kver_' || i, 'kdoc_' || i, 0, text, 10 FROM made;

INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
  access_tags, kind, thread_seq, occurred_at, temporal_class, authority, words, asks, language, fts, terms, lex)
SELECT 'acme', 'kchk_' || i, 'g0', 'kdoc_' || i, 'kver_' || i, 0, 'active', 'ann', '{{}}', 'note', 0, now(), 'event',
  0.42, 12, false, 'english', fts, memory.term_hashes('acme', 'g0', fts), memory.bm25_vector(fts)
FROM (SELECT *, memory.analyse('english', '', text) AS fts FROM made OFFSET 0) AS analysed;

INSERT INTO memory.{table} (tenant_id, chunk_id, generation, document_id, owner_id, access_tags, kind, status,
  occurred_at, embedding)
SELECT 'acme', 'kchk_' || i, 'g0', 'kdoc_' || i, 'ann', '{{}}', 'note', 'active', now(), vector::halfvec FROM made;

UPDATE memory.tenant_state SET chunk_count = (SELECT count(*) FROM memory.search_row);
ANALYZE memory.search_row;
