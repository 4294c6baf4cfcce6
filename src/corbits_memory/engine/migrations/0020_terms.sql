-- As before (0018), for texts of any length: a sparsevec holds 16,000 elements, and a text with more different lexemes
-- could not be kept at all. It is found by the first 16,000, in the order of a tsvector: the short ones first.
CREATE OR REPLACE FUNCTION memory.index_terms(p_seed bigint, p_fts tsvector)
RETURNS TABLE (terms integer[], lex sparsevec)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT coalesce(s.terms, '{}'), ('{' || CASE
    -- Two lexemes met on one dimension.
    WHEN cardinality(s.terms) < s.lexemes THEN (
      SELECT string_agg(met.dim::text || ':' || met.weight::text, ',') FROM (
        SELECT memory.lexeme_dim(l.lexeme) AS dim,
          sum(cardinality(l.positions) * 2.2::float8 / (cardinality(l.positions) + s.saturation))::real AS weight
        FROM (SELECT u.lexeme, u.positions FROM unnest(p_fts) AS u LIMIT 16000) AS l GROUP BY 1) AS met)
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
      SELECT memory.lexeme_dim(u.lexeme) AS dim, cardinality(u.positions) AS often FROM unnest(p_fts) AS u LIMIT 16000
    ) AS l
  ) AS s
$$;
