-- Retrieval again, planned and decoded cheaper. What is found is the same, but for the wider look into the vector index.
--   * Keys reach statements as `ANY ((SELECT $n))`: of an array that the planner can see, it estimates each element, which
--     took longer than reading the rows.
--   * A query vector is parsed once and handed over as a value, not written into each statement.
--   * Neighbours and scores come from one statement, as columns in arrays: one row for the driver to read.

DROP FUNCTION memory.retrieve(jsonb, text, text[], text[], integer, integer, text, text, text[]);
DROP FUNCTION memory.compat_candidates(jsonb, text, text, integer, integer, text, text, text[]);
DROP FUNCTION memory.dense_exact(text, text, text, integer);
DROP FUNCTION memory.dense_nearest(text, text, text, integer, text[]);

-- Dense candidates by a full look at what the caller sees: exact, and it knows how alike unrelated texts are.
-- The query's vector is p_half or p_whole, as the table's type is; the other is NULL.
CREATE FUNCTION memory.dense_exact(
  p_table text, p_half halfvec, p_whole vector, p_predicate text, p_limit integer,
  OUT chunk_ids text[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  EXECUTE format(
    'WITH v AS MATERIALIZED (SELECT r.chunk_id, r.embedding <=> %s AS d FROM memory.%I r WHERE %s), '
    'top AS (SELECT chunk_id FROM v ORDER BY d, chunk_id LIMIT $1) '
    'SELECT (SELECT coalesce(array_agg(chunk_id), ''{}'') FROM top), avg(1 - d), stddev_pop(1 - d), count(*) FROM v',
    CASE WHEN p_half IS NULL THEN '$3' ELSE '$2' END, p_table, p_predicate)
  INTO chunk_ids, mean, deviation, vectors USING p_limit, p_half, p_whole;
END $$;

-- What dense_exact looks at. A caller who sees few rows of many that are others' has their vectors looked up: a table of
-- vectors has no index on tags.
CREATE FUNCTION memory.exact_scope(p_scope jsonb, p_small integer) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  IF p_scope ?| ARRAY['allowed', 'documents'] THEN
    RETURN format('r.tenant_id = %L AND r.chunk_id = ANY ((SELECT %L)::text[])', current_setting('memory.tenant_id'),
                  memory.visible_chunks(p_scope, p_small));
  END IF;
  RETURN memory.scope_predicate(p_scope);
END $$;

-- Dense candidates from the index, and the query's likeness to the tenant's sample. The planner is left no other way:
-- it would choose wrongly for small shares. ef_search 125 for 50 candidates: with 100, recall@10 lay at .95, on either
-- side of it from one build of the index to the next.
CREATE FUNCTION memory.dense_nearest(
  p_table text, p_half halfvec, p_whole vector, p_predicate text, p_limit integer, p_sample text[],
  OUT chunk_ids text[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
  PERFORM set_config('hnsw.ef_search', least(greatest(p_limit * 5 / 2, 125), 1000)::text, true),
          set_config('hnsw.iterative_scan', 'relaxed_order', true),
          set_config('hnsw.max_scan_tuples', '40000', true);
  IF p_sample IS NULL THEN
    EXECUTE format('SELECT array_agg(f.chunk_id) FROM (SELECT r.chunk_id FROM memory.%I r WHERE r.tenant_id = %L '
                   'ORDER BY r.chunk_id LIMIT 64) AS f', p_table, current_setting('memory.tenant_id'))
    INTO p_sample;
  END IF;
  EXECUTE format(
    'SELECT (SELECT coalesce(array_agg(n.chunk_id ORDER BY n.d, n.chunk_id), ''{}'') FROM ('
    ' SELECT r.chunk_id, r.embedding <=> %3$s AS d FROM memory.%1$I r WHERE %2$s '
    ' ORDER BY r.embedding <=> %3$s LIMIT $1) AS n), avg(s.cosine), stddev_pop(s.cosine), count(s.cosine) '
    'FROM (SELECT 1 - (r.embedding <=> %3$s) AS cosine FROM memory.%1$I r '
    ' WHERE r.tenant_id = %4$L AND r.chunk_id = ANY ((SELECT $4)::text[])) AS s',
    p_table, p_predicate, CASE WHEN p_half IS NULL THEN '$3' ELSE '$2' END, current_setting('memory.tenant_id'))
  INTO chunk_ids, mean, deviation, vectors USING p_limit, p_half, p_whole, p_sample;
END $$;

-- Both channels' candidates, their neighbours, and both scores of each, exact. One row: a column of the candidates is an
-- array, and all run parallel. Without `generation` in the scope it is the live one; dense_ready: the vectors of the
-- tenant's active model are those of p_model_key, which embedded the query.
--   occurred, expires   seconds since 1970; expires is valid_until
--   bm25                divided by the idf total of the row's language, so that rows of several languages compare
--   vector_ids, cosines parallel to each other; a candidate that is missing there has no vector yet
--   windows             of each seed that stands in a context: up to three visible rows before it, itself, three after it
--                       (NULL where there is none). Of the first two fifths of each channel: what stands further down is
--                       not lifted to the top by its neighbours
CREATE FUNCTION memory.retrieve(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer,
  p_model_key text, p_dims integer, p_vector text,
  OUT dense_ready boolean, OUT partial boolean,
  OUT visible integer, OUT known float8, OUT mean float8, OUT deviation float8, OUT vectors bigint,
  OUT lexical_ids text[], OUT dense_ids text[],
  OUT chunk_ids text[], OUT document_ids text[], OUT threads text[], OUT authors text[],
  OUT asks boolean[], OUT words integer[], OUT authorities real[], OUT temporal_classes text[],
  OUT occurred float8[], OUT expires float8[], OUT bm25 float8[],
  OUT vector_ids text[], OUT cosines float8[], OUT windows text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  live text;
  scope text;
  lex record;
  den record;
  model record;
  half halfvec;
  whole vector;
BEGIN
  SELECT s.live_generation INTO live FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  IF NOT found THEN
    RETURN;
  END IF;
  SELECT 'embedding_' || m.model_key AS place, m.vector_type, m.sample INTO model FROM memory.embed_model m
  WHERE m.tenant_id = tenant AND m.status = 'active' AND m.model_key = p_model_key AND m.dims = p_dims;
  dense_ready := found;
  partial := EXISTS (SELECT FROM memory.embed_queue q
                     WHERE q.tenant_id = tenant AND q.owner_id = p_scope ->> 'principal');
  p_scope := jsonb_build_object('generation', live) || p_scope;
  scope := memory.scope_predicate(p_scope);
  SELECT * INTO lex FROM memory.lexical_candidates(p_scope, p_query, p_required, p_excluded, p_limit, p_small);
  visible := lex.visible;
  IF visible = 0 THEN
    RETURN;
  END IF;
  known := lex.known;
  lexical_ids := lex.chunk_ids;
  dense_ids := '{}';
  IF dense_ready THEN
    IF model.vector_type = 'halfvec' THEN
      half := p_vector::halfvec;
    ELSE
      whole := p_vector::vector;
    END IF;
    IF visible <= p_small THEN
      SELECT * INTO den FROM memory.dense_exact(model.place, half, whole, memory.exact_scope(p_scope, p_small), p_limit);
    ELSE
      SELECT * INTO den FROM memory.dense_nearest(model.place, half, whole, scope, p_limit, model.sample);
    END IF;
    dense_ids := den.chunk_ids;
    mean := den.mean;
    deviation := den.deviation;
    vectors := den.vectors;
  END IF;
  EXECUTE format($sql$
    WITH base AS MATERIALIZED (
      SELECT r.chunk_id, r.context_key, r.occurred_at, r.thread_seq FROM memory.search_row r
      WHERE r.chunk_id = ANY ((SELECT $1[:$3] || $2[:$3])::text[]) AND r.context_key IS NOT NULL AND %1$s
    ), around AS MATERIALIZED (
      SELECT b.chunk_id,
        ARRAY(
          SELECT r.chunk_id FROM memory.search_row r
          WHERE %2$s AND r.context_key = b.context_key
            AND (r.occurred_at, r.thread_seq, r.chunk_id) < (b.occurred_at, b.thread_seq, b.chunk_id)
          ORDER BY r.occurred_at DESC, r.thread_seq DESC, r.chunk_id DESC LIMIT 3) AS before,
        ARRAY(
          SELECT r.chunk_id FROM memory.search_row r
          WHERE %2$s AND r.context_key = b.context_key
            AND (r.occurred_at, r.thread_seq, r.chunk_id) > (b.occurred_at, b.thread_seq, b.chunk_id)
          ORDER BY r.occurred_at, r.thread_seq, r.chunk_id LIMIT 3) AS after
      FROM base b
    ), wanted AS MATERIALIZED (
      SELECT ARRAY(SELECT unnest($1) UNION SELECT unnest($2) UNION SELECT unnest(before || after) FROM around) AS ids
    )
    SELECT c.*, e.*, w.windows
    FROM (
      SELECT array_agg(r.chunk_id::text), array_agg(r.document_id::text), array_agg(r.thread::text),
        array_agg(r.author), array_agg(r.asks), array_agg(r.words), array_agg(r.authority), array_agg(r.temporal_class),
        array_agg(date_part('epoch', r.occurred_at)), array_agg(date_part('epoch', r.valid_until)),
        array_agg(%3$s)
      FROM memory.search_row r WHERE r.chunk_id = ANY ((SELECT ids FROM wanted)::text[]) AND %1$s
    ) AS c
    CROSS JOIN (%4$s) AS e
    CROSS JOIN (
      SELECT array_agg(ARRAY[before[3], before[2], before[1], chunk_id, after[1], after[2], after[3]]::text[]) AS windows
      FROM around
    ) AS w
    $sql$,
    lex.predicate, scope,
    CASE WHEN cardinality(lex.queries) = 0 THEN '0::float8'
         WHEN cardinality(lex.queries) = 1 THEN 'coalesce(-(r.lex <#> ($4)[1]) / nullif(($5)[1], 0), 0)'
         ELSE 'coalesce(-(r.lex <#> ($4)[array_position($6, r.language)]) '
              '/ nullif(($5)[array_position($6, r.language)], 0), 0)' END,
    CASE WHEN NOT dense_ready THEN 'SELECT NULL::text[], NULL::float8[]' ELSE format(
      'SELECT array_agg(e.chunk_id::text), array_agg(1 - (e.embedding <=> %s)) FROM memory.%I e '
      'WHERE e.tenant_id = %L AND e.chunk_id = ANY ((SELECT ids FROM wanted)::text[])',
      CASE WHEN half IS NULL THEN '$8' ELSE '$7' END, model.place, tenant) END)
  INTO chunk_ids, document_ids, threads, authors, asks, words, authorities, temporal_classes, occurred, expires,
    bm25, vector_ids, cosines, windows
  USING lexical_ids, dense_ids, greatest(20, p_limit * 2 / 5), lex.queries, lex.totals, lex.languages, half, whole;
END $$;

-- As before, but for the vector.
CREATE FUNCTION memory.compat_candidates(
  p_scope jsonb, p_query text, p_language text, p_limit integer, p_small integer,
  p_table text, p_type text, p_vector text, p_sample text[],
  OUT lexical text[], OUT ranks real[], OUT dense text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  visible integer;
  den record;
  scope text := memory.scope_predicate(p_scope);
  half halfvec := CASE WHEN p_type = 'halfvec' THEN p_vector::halfvec END;
  whole vector := CASE WHEN p_type <> 'halfvec' THEN p_vector::vector END;
BEGIN
  SELECT l.visible, l.chunk_ids, l.ranks INTO visible, lexical, ranks
  FROM memory.compat_lexical(p_scope, p_query, p_language, p_limit, p_small) AS l;
  dense := '{}';
  IF p_vector IS NULL OR visible = 0 THEN
    RETURN;
  ELSIF visible <= p_small THEN
    SELECT * INTO den FROM memory.dense_exact(p_table, half, whole, memory.exact_scope(p_scope, p_small), p_limit);
  ELSE
    SELECT * INTO den
    FROM memory.dense_nearest(p_table, half, whole, scope, p_limit, p_sample);
  END IF;
  dense := den.chunk_ids;
END $$;
