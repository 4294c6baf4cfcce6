-- Retrieval whose two channels may be asked at once, over two connections; memory.retrieve asks one after the other.

-- As before (0019). Words are looked for in other spellings only where some are unknown, and read once where the tenant
-- writes one language.
CREATE OR REPLACE FUNCTION memory.lexical_candidates(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer,
  p_many boolean DEFAULT false,
  OUT visible integer, OUT languages text[], OUT queries sparsevec[], OUT totals float8[], OUT known float8,
  OUT predicate text, OUT chunk_ids text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  generation text := p_scope ->> 'generation';
  rows_counted bigint;
  lexemes text[] := '{}';
  terms integer[];
  dfs bigint[];
  rare integer[] := '{}';
  rare_rows bigint := 0;
  common integer[] := '{}';
  common_df bigint[] := '{}';
  matching text;
  phrase text;
  own text[];
  alike text[] := '{}';
  added integer[];
  counted boolean := true;
  i integer;
BEGIN
  predicate := memory.scope_predicate(p_scope);
  SELECT s.languages, s.stats_rows INTO languages, rows_counted
  FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  IF p_many THEN
    visible := p_small + 1;
  ELSE
    EXECUTE format('SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE %s LIMIT %s) AS v',
                   predicate, p_small + 1) INTO visible;
  END IF;

  FOREACH phrase IN ARRAY p_required LOOP
    predicate := predicate || ' AND ' || memory.phrase_predicate(languages, phrase, true);
  END LOOP;
  FOREACH phrase IN ARRAY p_excluded LOOP
    predicate := predicate || ' AND NOT ' || memory.phrase_predicate(languages, phrase, false);
  END LOOP;

  chunk_ids := '{}';
  queries := '{}';
  totals := '{}';
  known := 0;
  IF visible = 0 THEN
    RETURN;
  END IF;
  IF p_query = '' THEN
    -- Only filters: the newest of what they leave.
    EXECUTE format(
      'SELECT coalesce(array_agg(n.chunk_id), ''{}'') FROM (SELECT r.chunk_id FROM memory.search_row r WHERE %s '
      'ORDER BY r.occurred_at DESC, r.chunk_id DESC LIMIT $1) AS n', predicate) INTO chunk_ids USING p_limit;
    RETURN;
  END IF;

  FOREACH phrase IN ARRAY languages LOOP
    lexemes := lexemes || memory.query_lexemes(phrase, p_query);
  END LOOP;
  SELECT array_agg(l ORDER BY l), array_agg(memory.term_hash(tenant, generation, l) ORDER BY l)
  INTO lexemes, terms FROM (SELECT DISTINCT unnest(lexemes) AS l LIMIT 256) AS d;
  IF lexemes IS NULL THEN
    RETURN;
  END IF;

  -- Few rows: everything is counted among what the caller sees.
  IF visible <= p_small THEN
    rows_counted := visible;
  ELSIF rows_counted IS NULL THEN
    SELECT s.chunk_count INTO rows_counted FROM memory.tenant_state s WHERE s.tenant_id = tenant;
    counted := false;
  END IF;
  rows_counted := greatest(rows_counted, 1);
  dfs := memory.document_frequencies(predicate, generation, terms, visible <= p_small, counted);

  -- Words that nobody wrote: perhaps they were written otherwise.
  IF 0 = ANY (dfs) THEN
    alike := memory.similar_lexemes(predicate, lexemes, dfs, rows_counted, p_small);
  END IF;
  IF alike <> '{}' THEN
    lexemes := lexemes || alike;
    added := ARRAY(SELECT memory.term_hash(tenant, generation, l) FROM unnest(alike) AS l);
    terms := terms || added;
    dfs := dfs || memory.document_frequencies(predicate, generation, added, visible <= p_small, counted);
  END IF;

  IF visible <= p_small THEN
    rare := terms;
  ELSE
    -- Candidates come from the rarest terms; of the rest, from pairs. Scores are of all terms.
    FOREACH i IN ARRAY ARRAY(SELECT o::integer FROM unnest(dfs) WITH ORDINALITY AS d(df, o) ORDER BY df, o) LOOP
      IF rare = '{}' OR rare_rows + dfs[i] <= 4000 THEN
        rare := rare || terms[i];
        rare_rows := rare_rows + dfs[i];
      ELSE
        common := common || terms[i];
        common_df := common_df || dfs[i];
      END IF;
    END LOOP;
  END IF;

  -- One query vector a language, from the idf of its own lexemes.
  FOREACH phrase IN ARRAY languages LOOP
    own := CASE cardinality(languages) WHEN 1 THEN lexemes ELSE memory.query_lexemes(phrase, p_query) || alike END;
    SELECT queries || ('{' || coalesce(string_agg(dim || ':' || idf, ',' ORDER BY dim), '')
                       || '}/268435456')::sparsevec,
           totals || coalesce(sum(idf), 0), greatest(known, coalesce(sum(idf) FILTER (WHERE seen) / sum(idf), 0))
    INTO queries, totals, known
    FROM (
      SELECT memory.lexeme_dim(l) AS dim, bool_or(df > 0) AS seen,
             sum(ln(1 + (greatest(rows_counted, df) - df + 0.5) / (df + 0.5)))::real AS idf
      FROM unnest(lexemes, dfs) AS t(l, df) WHERE l = ANY (own) GROUP BY 1
    ) AS weight;
  END LOOP;

  matching := 'r.terms && $1';
  FOR a IN 1 .. least(cardinality(common), 6) LOOP
    FOR b IN a + 1 .. least(cardinality(common), 6) LOOP
      IF common_df[a] <= 20000 THEN
        matching := matching || format(' OR r.terms @> %L::integer[]', ARRAY[common[a], common[b]]);
      END IF;
    END LOOP;
  END LOOP;
  -- The inner limit bounds a query of one very common word.
  EXECUTE format(
    'SELECT coalesce(array_agg(s.chunk_id), ''{}'') FROM ('
    ' SELECT m.chunk_id FROM (SELECT r.chunk_id, r.lex, r.language FROM memory.search_row r'
    '  WHERE %s AND (%s) LIMIT 20000) AS m'
    ' ORDER BY m.lex <#> %s, m.chunk_id LIMIT $3) AS s',
    predicate, matching,
    CASE WHEN cardinality(languages) = 1 THEN '($2)[1]' ELSE '($2)[array_position($4, m.language)]' END)
  INTO chunk_ids USING rare, queries, p_limit, languages;
END $$;

-- Whether vectors of the caller's own rows are still to be made.
CREATE FUNCTION memory.waits_for_vectors(p_generation text, p_principal text) RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = current_setting('memory.tenant_id', true)
    AND q.generation = p_generation AND q.owner_id = p_principal AND NOT q.refill)
$$;

-- The lexical channel alone, of a caller who sees more than p_small rows. searched, partial, known and languages, queries,
-- totals: see memory.retrieve and lexical_candidates.
CREATE FUNCTION memory.lexical_channel(
  p_scope jsonb, p_query text, p_limit integer, p_small integer,
  OUT searched text, OUT partial boolean, OUT known float8, OUT chunk_ids text[],
  OUT languages text[], OUT queries sparsevec[], OUT totals float8[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
BEGIN
  SELECT coalesce(p_scope ->> 'generation', s.live_generation) INTO searched
  FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  IF NOT found THEN
    RETURN;
  END IF;
  partial := memory.waits_for_vectors(searched, p_scope ->> 'principal');
  SELECT l.known, l.chunk_ids, l.languages, l.queries, l.totals INTO known, chunk_ids, languages, queries, totals
  FROM memory.lexical_candidates(jsonb_build_object('generation', searched) || p_scope, p_query, '{}', '{}', p_limit,
                                 p_small, true) AS l;
END $$;

-- How many candidates the vector index keeps in view: as many as before up to 50,000 rows of the tenant; in a larger graph
-- so many find less.
CREATE FUNCTION memory.ef_search(p_limit integer, p_rows bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT least(greatest(p_limit * 5 / 2, 125) * greatest(p_rows / 50000.0::float8, 1) ^ 0.6, 1000)::integer
$$;

-- As before (0019), with that.
CREATE OR REPLACE FUNCTION memory.dense_nearest(
  p_table text, p_half halfvec, p_whole vector, p_predicate text, p_limit integer, p_sample text[],
  OUT chunk_ids text[], OUT cosines float8[], OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
SET enable_sort = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
  PERFORM set_config('hnsw.ef_search', memory.ef_search(p_limit, s.chunk_count)::text, true),
          set_config('hnsw.iterative_scan', 'relaxed_order', true),
          set_config('hnsw.max_scan_tuples', '40000', true)
  FROM memory.tenant_state s WHERE s.tenant_id = current_setting('memory.tenant_id');
  IF p_sample IS NULL THEN
    EXECUTE format('SELECT array_agg(f.chunk_id) FROM (SELECT r.chunk_id FROM memory.%I r WHERE r.tenant_id = %L '
                   'ORDER BY r.chunk_id LIMIT 64) AS f', p_table, current_setting('memory.tenant_id'))
    INTO p_sample;
  END IF;
  EXECUTE format(
    'SELECT coalesce(t.chunk_ids, ''{}''), t.cosines, s.mean, s.deviation, s.vectors FROM ('
    ' SELECT array_agg(n.chunk_id ORDER BY n.d, n.chunk_id) AS chunk_ids, '
    '  array_agg(1 - n.d ORDER BY n.d, n.chunk_id) AS cosines FROM ('
    '   SELECT r.chunk_id, r.embedding <=> %3$s AS d FROM memory.%1$I r WHERE %2$s '
    '   ORDER BY r.embedding <=> %3$s LIMIT $1) AS n) AS t '
    'CROSS JOIN (SELECT avg(e.cosine) AS mean, stddev_pop(e.cosine) AS deviation, count(e.cosine) AS vectors FROM ('
    '  SELECT 1 - (r.embedding <=> %3$s) AS cosine FROM memory.%1$I r '
    '  WHERE r.tenant_id = %4$L AND r.chunk_id = ANY ((SELECT $4)::text[])) AS e) AS s',
    p_table, p_predicate, CASE WHEN p_half IS NULL THEN '$3' ELSE '$2' END, current_setting('memory.tenant_id'))
  INTO chunk_ids, cosines, mean, deviation, vectors USING p_limit, p_half, p_whole, p_sample;
END $$;

-- The dense channel alone: a look at each of up to p_small visible rows, for more the index. searched and dense_ready: see
-- memory.retrieve.
CREATE FUNCTION memory.dense_channel(
  p_scope jsonb, p_limit integer, p_small integer, p_visible integer, p_model_key text, p_dims integer, p_vector text,
  OUT searched text, OUT dense_ready boolean, OUT chunk_ids text[], OUT cosines float8[],
  OUT mean float8, OUT deviation float8, OUT vectors bigint)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  live text;
  model record;
  half halfvec;
  whole vector;
BEGIN
  SELECT s.live_generation INTO live FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  p_scope := jsonb_build_object('generation', live) || p_scope;
  searched := p_scope ->> 'generation';
  SELECT 'embedding_' || m.model_key AS place, m.vector_type, m.sample INTO model FROM memory.embed_model m
  WHERE m.tenant_id = tenant AND m.model_key = p_model_key AND m.dims = p_dims
    AND (m.status = 'active' OR searched <> live);
  dense_ready := found;
  chunk_ids := '{}';
  IF NOT dense_ready OR p_visible = 0 THEN
    RETURN;
  END IF;
  IF model.vector_type = 'halfvec' THEN
    half := p_vector::halfvec;
  ELSE
    whole := p_vector::vector;
  END IF;
  IF p_visible <= p_small THEN
    SELECT d.* INTO chunk_ids, cosines, mean, deviation, vectors
    FROM memory.dense_exact(model.place, half, whole, memory.exact_scope(p_scope, p_small), p_limit) AS d;
  ELSE
    SELECT d.* INTO chunk_ids, cosines, mean, deviation, vectors
    FROM memory.dense_nearest(model.place, half, whole, memory.scope_predicate(p_scope), p_limit, model.sample) AS d;
  END IF;
END $$;

DROP FUNCTION memory.complete(
  jsonb, text, text[], text[], float8[], integer, text[], sparsevec[], float8[], text, halfvec, vector);

-- As before (0019), from what the channels found. p_model_key: whose vectors p_vector is compared with, NULL for none.
CREATE FUNCTION memory.complete(
  p_scope jsonb, p_predicate text, p_limit integer,
  p_lexical text[], p_languages text[], p_queries sparsevec[], p_totals float8[],
  p_dense text[], p_cosines float8[], p_model_key text, p_vector text,
  OUT chunk_ids text[], OUT document_ids text[], OUT threads text[], OUT authors text[],
  OUT asks boolean[], OUT words integer[], OUT authorities real[], OUT temporal_classes text[],
  OUT occurred float8[], OUT expires float8[], OUT bm25 float8[],
  OUT vector_ids text[], OUT cosines float8[], OUT windows text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, memory, {{EXTENSION_SCHEMAS}}, pg_temp SET jit = off
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  searched text := p_scope ->> 'generation';
  statuses text[] := ARRAY(SELECT jsonb_array_elements_text(p_scope -> 'statuses'));
  principal text := p_scope ->> 'principal';
  everything boolean := p_scope ? 'everything';
  allowed jsonb := memory.lookup(p_scope -> 'allowed');
  named jsonb := CASE WHEN p_scope ? 'documents' AND NOT (p_scope ? 'allowed' AND p_scope -> 'statuses' ? 'deprecated')
    THEN memory.lookup(p_scope -> 'documents') END;
  refused jsonb := memory.lookup(p_scope -> 'refused');
  vetoed jsonb := memory.lookup(p_scope -> 'vetoed');
  seeds integer := greatest(4, p_limit / 12);
  kind text;
  half halfvec;
  whole vector;
  -- Their vectors are not known yet.
  others text[] := p_lexical;
  wanted text[];
BEGIN
  SELECT array_agg(ARRAY[a.before[3], a.before[2], a.before[1], a.chunk_id, a.after[1], a.after[2], a.after[3]]::text[])
  INTO windows
  FROM (
    SELECT b.chunk_id,
      ARRAY(SELECT r.chunk_id FROM memory.search_row r
        WHERE r.tenant_id = tenant AND r.generation = searched AND r.context_key = b.context_key
          AND (r.occurred_at, r.thread_seq, r.chunk_id) < (b.occurred_at, b.thread_seq, b.chunk_id)
          AND r.status = ANY (statuses)
          AND memory.reaches(r.owner_id, r.access_tags, r.document_id, principal, everything, allowed, named, refused, vetoed)
        ORDER BY r.occurred_at DESC, r.thread_seq DESC, r.chunk_id DESC LIMIT 3) AS before,
      ARRAY(SELECT r.chunk_id FROM memory.search_row r
        WHERE r.tenant_id = tenant AND r.generation = searched AND r.context_key = b.context_key
          AND (r.occurred_at, r.thread_seq, r.chunk_id) > (b.occurred_at, b.thread_seq, b.chunk_id)
          AND r.status = ANY (statuses)
          AND memory.reaches(r.owner_id, r.access_tags, r.document_id, principal, everything, allowed, named, refused, vetoed)
        ORDER BY r.occurred_at, r.thread_seq, r.chunk_id LIMIT 3) AS after
    FROM memory.search_row b
    WHERE b.tenant_id = tenant AND b.context_key IS NOT NULL
      AND b.chunk_id = ANY (p_lexical[:seeds] || p_dense[:seeds])
    OFFSET 0  -- each list is read several times, and need not be made as often
  ) AS a;
  IF windows IS NOT NULL THEN
    others := others || array_remove(ARRAY(SELECT unnest(windows)), NULL);
  END IF;
  wanted := p_dense || others;
  IF p_predicate <> '' THEN
    EXECUTE format('SELECT array_agg(r.chunk_id) FROM memory.search_row r '
                   'WHERE r.chunk_id = ANY ((SELECT $1)::text[]) AND %s', p_predicate) INTO wanted USING wanted;
  END IF;
  SELECT array_agg(r.chunk_id::text), array_agg(r.document_id::text), array_agg(r.thread::text),
    array_agg(r.author), array_agg(r.asks), array_agg(r.words), array_agg(r.authority), array_agg(r.temporal_class),
    array_agg(date_part('epoch', r.occurred_at)), array_agg(date_part('epoch', r.valid_until)),
    array_agg(CASE cardinality(p_queries) WHEN 0 THEN 0
      WHEN 1 THEN coalesce(-(r.lex <#> p_queries[1]) / nullif(p_totals[1], 0), 0)
      ELSE coalesce(-(r.lex <#> p_queries[array_position(p_languages, r.language)])
                    / nullif(p_totals[array_position(p_languages, r.language)], 0), 0) END)
  INTO chunk_ids, document_ids, threads, authors, asks, words, authorities, temporal_classes, occurred, expires, bm25
  FROM memory.search_row r
  WHERE r.tenant_id = tenant AND r.chunk_id = ANY (wanted) AND r.generation = searched AND r.status = ANY (statuses)
    AND memory.reaches(r.owner_id, r.access_tags, r.document_id, principal, everything, allowed, named, refused, vetoed);
  IF p_model_key IS NOT NULL THEN
    SELECT m.vector_type INTO kind FROM memory.embed_model m WHERE m.tenant_id = tenant AND m.model_key = p_model_key;
    IF kind = 'halfvec' THEN
      half := p_vector::halfvec;
    ELSE
      whole := p_vector::vector;
    END IF;
    EXECUTE format('SELECT array_agg(e.chunk_id::text), array_agg(1 - (e.embedding <=> %s)) FROM memory.%I e '
                   'WHERE e.tenant_id = %L AND e.chunk_id = ANY ((SELECT $1)::text[])',
                   CASE WHEN half IS NULL THEN '$3' ELSE '$2' END, 'embedding_' || p_model_key, tenant)
    INTO vector_ids, cosines USING others, half, whole;
    vector_ids := p_dense || vector_ids;
    cosines := p_cosines || cosines;
  END IF;
END $$;

-- As before (0019), of the channels above. visible: beyond p_small all that the tenant has, among which the indexes search.
CREATE OR REPLACE FUNCTION memory.retrieve(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer, p_many boolean,
  p_model_key text, p_dims integer, p_vector text,
  OUT searched text, OUT dense_ready boolean, OUT partial boolean,
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
  held bigint;
  lex record;
  den record;
BEGIN
  SELECT coalesce(p_scope ->> 'generation', s.live_generation), s.chunk_count INTO searched, held
  FROM memory.tenant_state s WHERE s.tenant_id = tenant;
  IF NOT found THEN
    RETURN;
  END IF;
  p_scope := p_scope || jsonb_build_object('generation', searched);
  partial := memory.waits_for_vectors(searched, p_scope ->> 'principal');
  SELECT * INTO lex FROM memory.lexical_candidates(p_scope, p_query, p_required, p_excluded, p_limit, p_small, p_many);
  visible := lex.visible;
  SELECT * INTO den
  FROM memory.dense_channel(p_scope, p_limit, p_small, visible, p_model_key, p_dims, p_vector);
  dense_ready := den.dense_ready;
  IF visible = 0 THEN
    RETURN;
  END IF;
  known := lex.known;
  lexical_ids := lex.chunk_ids;
  dense_ids := den.chunk_ids;
  mean := den.mean;
  deviation := den.deviation;
  vectors := den.vectors;
  SELECT c.* INTO chunk_ids, document_ids, threads, authors, asks, words, authorities, temporal_classes, occurred, expires,
    bm25, vector_ids, cosines, windows
  FROM memory.complete(
    p_scope,
    CASE WHEN p_required = '{}' AND p_excluded = '{}'
           AND p_scope - ARRAY['generation', 'principal', 'everything', 'allowed', 'documents', 'refused', 'vetoed',
                               'statuses'] = '{}' THEN ''
         ELSE lex.predicate END,
    p_limit, lexical_ids, lex.languages, lex.queries, lex.totals, dense_ids, den.cosines,
    CASE WHEN dense_ready THEN p_model_key END, p_vector) AS c;
  IF visible > p_small THEN
    visible := least(greatest(visible, held), 2147483647);
  END IF;
END $$;
