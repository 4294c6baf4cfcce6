-- Capture: a version is written once, with its number; analysis without a statement of its own for each row.

-- The number comes last, while nobody else can take one. So text is written before the version that it is of, and
-- whether that is there is asked at the commit.
ALTER TABLE memory.chunk DROP CONSTRAINT chunk_tenant_id_version_id_fkey;
ALTER TABLE memory.chunk ADD CONSTRAINT chunk_tenant_id_version_id_fkey FOREIGN KEY (tenant_id, version_id)
  REFERENCES memory.version (tenant_id, id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;

-- The two halves of an analysis. A text of stop words alone is kept word by word.
CREATE FUNCTION memory.analyse_head(p_language text, p_head text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
  RETURN setweight(to_tsvector(p_language::regconfig, coalesce(p_head, '')), 'A');
END $$;

CREATE FUNCTION memory.analyse_body(p_language text, p_text text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  body tsvector := to_tsvector(p_language::regconfig, p_text);
BEGIN
  IF length(body) = 0 THEN
    RETURN to_tsvector('pg_catalog.simple', p_text);
  END IF;
  RETURN body;
END $$;

CREATE OR REPLACE FUNCTION memory.analyse(p_language text, p_head text, p_text text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
  RETURN memory.analyse_head(p_language, p_head) || memory.analyse_body(p_language, p_text);
END $$;

-- As before (0006), in a form that becomes a part of the statement that calls it: nothing in it may be less than
-- IMMUTABLE, and it returns a set, of one row.
DROP FUNCTION memory.index_terms(bigint, tsvector);
CREATE FUNCTION memory.index_terms(p_seed bigint, p_fts tsvector) RETURNS TABLE (terms integer[], lex sparsevec)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT coalesce(s.terms, '{}'), ('{' || CASE
    -- Two lexemes met on one dimension.
    WHEN cardinality(s.terms) < s.lexemes THEN (
      SELECT string_agg(met.dim::text || ':' || met.weight::text, ',') FROM (
        SELECT memory.lexeme_dim(l.lexeme) AS dim,
          sum(cardinality(l.positions) * 2.2::float8 / (cardinality(l.positions) + s.saturation))::real AS weight
        FROM unnest(p_fts) AS l GROUP BY 1) AS met)
    -- Most lexemes of a row stand in it once and weigh the same: that weight, known only at the end, is written as w.
    WHEN s.often IS NULL THEN coalesce(replace(s.once, 'w', (2.2::float8 / (1 + s.saturation))::real::text), '')
    ELSE coalesce(replace(s.once, 'w', (2.2::float8 / (1 + s.saturation))::real::text) || ',', '') || (
      SELECT string_agg(o.dim::text || ':' || (o.often * 2.2::float8 / (o.often + s.saturation))::real::text, ',')
      FROM unnest(s.often, s.often_dims) AS o(often, dim)) END || '}/268435456')::sparsevec
  FROM (
    SELECT count(*) AS lexemes, 1.2::float8 * (0.25::float8 + 0.75::float8 * sum(l.often) / 120) AS saturation,
      array_agg(DISTINCT memory.dim_term(l.dim, p_seed)) AS terms,
      string_agg(l.dim::text || ':w', ',') FILTER (WHERE l.often = 1) AS once,
      array_agg(l.often) FILTER (WHERE l.often > 1) AS often,
      array_agg(l.dim) FILTER (WHERE l.often > 1) AS often_dims
    FROM (
      SELECT memory.lexeme_dim(u.lexeme) AS dim, cardinality(u.positions) AS often FROM unnest(p_fts) AS u OFFSET 0
    ) AS l
  ) AS s
$$;

-- Places in the queue are checked against searched rows by (tenant_id, chunk_id), with one plan for all of them: as in
-- 0006, no index but the primary key may look as good to a planner that takes a tenant to have a row or none.
DROP INDEX memory.search_row_document;
CREATE INDEX search_row_document ON memory.search_row (tenant_id, document_id) WHERE document_id IS NOT NULL;
