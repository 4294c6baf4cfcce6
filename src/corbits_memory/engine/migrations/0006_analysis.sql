-- Analysis in one pass over a row's lexemes, with the hash that also spreads rows over partitions: stable between
-- releases of Postgres (partitioned tables depend on it) and, over bytes, independent of any locale.

-- One of 2^28 dimensions, from 1. Lexemes that meet on one are summed, in rows and queries alike.
CREATE OR REPLACE FUNCTION memory.lexeme_dim(p_lexeme text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT 1 + (hashtextextended(p_lexeme COLLATE "C", 0) & 268435455)::integer
$$;

-- What salts a tenant's postings.
CREATE FUNCTION memory.term_seed(p_tenant text, p_generation text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT hashtextextended((p_tenant || E'\x1f' || p_generation) COLLATE "C", 0)
$$;

-- Of a dimension, not of a text: lexemes share a term exactly when they share a dimension.
CREATE FUNCTION memory.dim_term(p_dim integer, p_seed bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT (hashint4extended(p_dim, p_seed) >> 32)::integer
$$;

CREATE OR REPLACE FUNCTION memory.term_hash(p_tenant text, p_generation text, p_lexeme text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
  SELECT memory.dim_term(memory.lexeme_dim(p_lexeme), memory.term_seed(p_tenant, p_generation))
$$;

-- What a row is found by: title and author, then the text. A text of stop words alone is kept word by word,
-- so that "to be or not to be" can be found.
CREATE OR REPLACE FUNCTION memory.analyse(p_language text, p_head text, p_text text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  configuration regconfig := p_language::regconfig;
  body tsvector := to_tsvector(configuration, p_text);
BEGIN
  IF length(body) = 0 THEN
    body := to_tsvector('pg_catalog.simple', p_text);
  END IF;
  RETURN setweight(to_tsvector(configuration, coalesce(p_head, '')), 'A') || body;
END $$;

-- A row's postings and its BM25 weights (saturated term frequency, k1 1.2, b 0.75, mean length 120: spec of the
-- default ranking, 2). A query's vector is the idf of its lexemes, and the score their inner product.
CREATE FUNCTION memory.index_terms(p_seed bigint, p_fts tsvector, OUT terms integer[], OUT lex sparsevec)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  lexemes bigint;
  length bigint;
  saturation float8;
  weights text;
  often integer[];
  often_dims integer[];
BEGIN
  -- Most lexemes of a row stand in it once and weigh the same: that weight, known only at the end, is written as w.
  SELECT count(*), sum(cardinality(l.positions)),
    array_agg(DISTINCT memory.dim_term(memory.lexeme_dim(l.lexeme), p_seed)),
    string_agg(memory.lexeme_dim(l.lexeme)::text, ':w,') FILTER (WHERE cardinality(l.positions) = 1),
    array_agg(cardinality(l.positions)) FILTER (WHERE cardinality(l.positions) > 1),
    array_agg(memory.lexeme_dim(l.lexeme)) FILTER (WHERE cardinality(l.positions) > 1)
  INTO lexemes, length, terms, weights, often, often_dims FROM unnest(p_fts) AS l;
  IF lexemes = 0 THEN
    terms := '{}';
    lex := '{}/268435456';
    RETURN;
  END IF;
  saturation := 1.2 * (0.25 + 0.75 * length / 120.0);
  IF cardinality(terms) < lexemes THEN
    -- Two lexemes met on one dimension.
    SELECT string_agg(met.dim || ':' || met.weight, ',') INTO weights FROM (
      SELECT memory.lexeme_dim(l.lexeme) AS dim,
        sum(cardinality(l.positions) * 2.2 / (cardinality(l.positions) + saturation))::real AS weight
      FROM unnest(p_fts) AS l GROUP BY 1) AS met;
  ELSE
    weights := replace(weights || ':w', 'w', (2.2 / (1 + saturation))::real::text);
    FOR i IN 1 .. coalesce(cardinality(often), 0) LOOP
      weights := concat_ws(',', weights, often_dims[i] || ':' || (often[i] * 2.2 / (often[i] + saturation))::real);
    END LOOP;
  END IF;
  lex := ('{' || weights || '}/268435456')::sparsevec;
END $$;

CREATE OR REPLACE FUNCTION memory.term_hashes(p_tenant text, p_generation text, p_fts tsvector) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT terms FROM memory.index_terms(memory.term_seed(p_tenant, p_generation), p_fts)
$$;

CREATE OR REPLACE FUNCTION memory.bm25_vector(p_fts tsvector) RETURNS sparsevec
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT lex FROM memory.index_terms(0, p_fts)
$$;

-- What was written before: the same lexemes, hashed anew. Counts of the old hashes mean nothing now; the worker
-- counts large tenants again. Writers that began with the old hash are waited for.
LOCK TABLE memory.search_row IN SHARE ROW EXCLUSIVE MODE;
UPDATE memory.search_row r SET (terms, lex) =
  (SELECT i.terms, i.lex FROM memory.index_terms(memory.term_seed(r.tenant_id, r.generation), r.fts) AS i);
DELETE FROM memory.term_stat;
UPDATE memory.tenant_state SET stats_rows = NULL, stats_at = NULL WHERE stats_rows IS NOT NULL;

-- Foreign keys are checked by (tenant_id, id). Where a tenant seems to have a row or none (before the first ANALYZE,
-- or among many small tenants), any index that starts with tenant_id looks as good to the planner as the primary
-- key, and the plan is kept while the tenant grows: each check then reads all its rows. A predicate that such a
-- look-up does not imply, and any look-up by the columns themselves does, leaves the primary key alone.
ALTER TABLE memory.document DROP CONSTRAINT document_tenant_id_adapter_external_ref_key;
CREATE UNIQUE INDEX document_reference ON memory.document (tenant_id, adapter, external_ref)
  WHERE external_ref IS NOT NULL;
ALTER TABLE memory.version DROP CONSTRAINT version_tenant_id_document_id_generation_version_key;
CREATE UNIQUE INDEX version_number ON memory.version (tenant_id, document_id, generation, version)
  WHERE document_id IS NOT NULL;
ALTER TABLE memory.raw_capture DROP CONSTRAINT raw_capture_tenant_id_source_hash_key;
CREATE UNIQUE INDEX raw_capture_hash ON memory.raw_capture (tenant_id, source_hash) WHERE source_hash IS NOT NULL;
DROP INDEX memory.raw_capture_reference;
CREATE INDEX raw_capture_reference ON memory.raw_capture (tenant_id, adapter, external_ref)
  WHERE external_ref IS NOT NULL;
ALTER TABLE memory.chunk DROP CONSTRAINT chunk_tenant_id_version_id_ordinal_key;
CREATE UNIQUE INDEX chunk_place ON memory.chunk (tenant_id, version_id, ordinal) WHERE version_id IS NOT NULL;
-- For the same reason: a thread's neighbours are looked up without a status, the visible rows always with one.
DROP INDEX memory.search_row_visible;
CREATE INDEX search_row_visible ON memory.search_row (tenant_id, generation, owner_id, status)
  WHERE status IS NOT NULL;
