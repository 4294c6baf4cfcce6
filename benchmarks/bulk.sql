-- Rows of one tenant, straight into the tables: `made` holds place, text and vector of each. Analysed by the product's
-- own functions, so that they are the rows that `add` would have written.
INSERT INTO memory.tenant_state (tenant_id, chunk_count, document_count, languages)
SELECT {tenant}, count(*), count(*), '{{english}}' FROM made
ON CONFLICT (tenant_id) DO UPDATE SET chunk_count = tenant_state.chunk_count + excluded.chunk_count;

INSERT INTO memory.document (tenant_id, id, kind, title, adapter, external_ref, owner_principal_id)
SELECT {tenant}, 'kdoc_' || i, 'note', 't', 'http', 'n' || i, {owner} FROM made;

INSERT INTO memory.version (tenant_id, id, document_id, version, content_hash, title, kind, language, occurred_at,
  owner_principal_id, created_by_principal_id, created_by_kind, authority, generation)
SELECT {tenant}, 'kver_' || i, 'kdoc_' || i, 1, i, 't', 'note', 'english', now(), {owner}, {owner}, 'human', 0.42, 'g0'
FROM made;

INSERT INTO memory.chunk (tenant_id, id, version_id, document_id, ordinal, text, token_count)
SELECT {tenant}, 'kchk_' || i, 'kver_' || i, 'kdoc_' || i, 0, text, 10 FROM made;

INSERT INTO memory.search_row (tenant_id, chunk_id, generation, document_id, version_id, ordinal, status, owner_id,
  access_tags, kind, thread, thread_seq, context_key, occurred_at, temporal_class, authority, words, asks, language,
  fts, terms, lex)
SELECT {tenant}, 'kchk_' || i, 'g0', 'kdoc_' || i, 'kver_' || i, 0, 'active', {owner}, '{{}}', 'note',
  'thread ' || place / 25, place, 'thread ' || place / 25, now(), 'event', 0.42, 20, false, 'english',
  fts, memory.term_hashes({tenant}, 'g0', fts), memory.bm25_vector(fts)
FROM (SELECT *, memory.analyse('english', '', text) AS fts FROM made OFFSET 0) AS analysed;

INSERT INTO {table} (tenant_id, chunk_id, generation, document_id, owner_id, access_tags, kind, status, occurred_at,
  embedding)
SELECT {tenant}, 'kchk_' || i, 'g0', 'kdoc_' || i, {owner}, '{{}}', 'note', 'active', now(), vector::halfvec FROM made;
