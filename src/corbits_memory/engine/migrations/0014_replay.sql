-- Replays: generations, runs cut into slices, what a run passed over, and a queue for vectors that knows generations.

-- A copy of a version in another generation names the version that was captured. A generation has one copy of each,
-- however many workers make it.
ALTER TABLE memory.version ADD origin_id text COLLATE "C";
CREATE UNIQUE INDEX version_copy ON memory.version (tenant_id, origin_id, generation) WHERE origin_id IS NOT NULL;

-- What is known of a generation that is not live, or was not always.
CREATE TABLE memory.generation (
  tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id         text COLLATE "C" NOT NULL,
  -- Whose vectors it has; NULL: it was archived without any.
  model_key  text COLLATE "C" CHECK (model_key ~ '^[a-f0-9]{16}$'),
  -- It holds what the feed had told of up to this number.
  caught_seq bigint NOT NULL,
  PRIMARY KEY (tenant_id, id)
);

-- The keys of a config's endpoints: written with it, read by workers alone (the owner); hence the policy below.
CREATE TABLE memory.transform_secret (
  tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  config_id text COLLATE "C" NOT NULL,
  field     text NOT NULL CHECK (field IN ('embed.apiKey', 'rerank.apiKey')),
  secret    text NOT NULL,
  PRIMARY KEY (tenant_id, config_id, field),
  FOREIGN KEY (tenant_id, config_id) REFERENCES memory.transform_config (tenant_id, id) ON DELETE CASCADE
);

ALTER TABLE memory.transform_run
  ADD created_by text COLLATE "C",
  -- The model of its generation; NULL: it failed before it had any.
  ADD model_key text COLLATE "C" CHECK (model_key ~ '^[a-f0-9]{16}$'),
  -- The config names a model of its own: as long as the generation is live, no other takes its place.
  ADD pinned boolean NOT NULL DEFAULT false,
  ADD paused boolean NOT NULL DEFAULT false,
  ADD cancelled boolean NOT NULL DEFAULT false,
  -- Everything is cut into slices up to this raw capture.
  ADD cut_after text COLLATE "C" NOT NULL DEFAULT '',
  -- Raw captures in scope; NULL while they are being cut.
  ADD raw_total bigint,
  ADD skipped_count bigint NOT NULL DEFAULT 0;
-- workers: what runs
CREATE INDEX transform_run_running ON memory.transform_run (tenant_id, id) WHERE status = 'running';

-- Some raw captures in order of their ids, done by one worker at a time.
CREATE TABLE memory.transform_slice (
  tenant_id     text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  run_id        text COLLATE "C" NOT NULL,
  -- Above the one, up to the other.
  after_id      text COLLATE "C" NOT NULL,
  last_id       text COLLATE "C" NOT NULL,
  captures      integer NOT NULL,
  status        text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'done', 'failed')),
  attempts      integer NOT NULL DEFAULT 0,
  error         text,
  -- Whoever works on it holds this; one that died loses it by time. Also when it is tried again.
  lease         text COLLATE "C",
  leased_until  timestamptz NOT NULL DEFAULT now(),
  raw_count     bigint NOT NULL DEFAULT 0,
  version_count bigint NOT NULL DEFAULT 0,
  done_at       timestamptz,
  PRIMARY KEY (tenant_id, run_id, last_id),
  FOREIGN KEY (tenant_id, run_id) REFERENCES memory.transform_run (tenant_id, id) ON DELETE CASCADE
);
-- the worker: what comes next; the run: is anything left?
CREATE INDEX transform_slice_status ON memory.transform_slice (tenant_id, run_id, status, leased_until);

-- Raw captures whose stored payload can't be read any more. Ids and rules, never a value.
CREATE TABLE memory.transform_skip (
  tenant_id      text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  run_id         text COLLATE "C" NOT NULL,
  raw_capture_id text COLLATE "C" NOT NULL,
  problem        text NOT NULL,
  PRIMARY KEY (tenant_id, run_id, raw_capture_id),
  FOREIGN KEY (tenant_id, run_id) REFERENCES memory.transform_run (tenant_id, id) ON DELETE CASCADE
);
ALTER TABLE memory.transform_slice ALTER error SET STATISTICS 0;
ALTER TABLE memory.transform_skip ALTER problem SET STATISTICS 0;
ALTER TABLE memory.transform_secret ALTER secret SET STATISTICS 0;

DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['generation', 'transform_slice', 'transform_skip', 'transform_secret'] LOOP
    EXECUTE format('ALTER TABLE memory.%I ENABLE ROW LEVEL SECURITY', name);
    IF name <> 'transform_secret' THEN
      EXECUTE format('CREATE POLICY tenant ON memory.%I USING (tenant_id = current_setting(''memory.tenant_id'', true))',
                     name);
    END IF;
  END LOOP;
END $$;
CREATE POLICY tenant ON memory.transform_secret USING (false)
  WITH CHECK (tenant_id = current_setting('memory.tenant_id', true));

-- Of which generation a chunk is decides which model makes its vector. (The default is what every tenant had so far.)
ALTER TABLE memory.embed_queue ADD generation text COLLATE "C" NOT NULL DEFAULT 'g0';
UPDATE memory.embed_queue q SET generation = r.generation FROM memory.search_row r
WHERE r.tenant_id = q.tenant_id AND r.chunk_id = q.chunk_id AND r.generation <> q.generation;
-- A change of models: the one before serves until the other has all vectors. What waits only for the other is no gap.
ALTER TABLE memory.embed_queue ADD refill boolean NOT NULL DEFAULT false;
ALTER TABLE memory.embed_model
  -- Of the active one: which model is to take its place. What is stored here then waits for that one, too.
  ADD replaced_by text COLLATE "C" CHECK (replaced_by ~ '^[a-f0-9]{16}$'),
  -- All that its table lacked when it was chosen stands in the queue.
  ADD scanned boolean NOT NULL DEFAULT false;
UPDATE memory.embed_model SET scanned = true WHERE status = 'active';
DROP INDEX memory.embed_queue_due;
CREATE INDEX embed_queue_due ON memory.embed_queue (tenant_id, generation, refill, not_before, chunk_id);
DROP INDEX memory.embed_queue_owner;
CREATE INDEX embed_queue_owner ON memory.embed_queue (tenant_id, generation, owner_id) WHERE NOT refill;

-- In how many rows each term stands: among those in scope when they are few, else by the tenant's statistics, or
-- (before they were first counted, and in a generation that was not counted) by a bounded count.
CREATE OR REPLACE FUNCTION memory.document_frequencies(
  p_predicate text, p_generation text, p_terms integer[], p_few boolean, p_counted boolean) RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  tenant text := current_setting('memory.tenant_id', true);
  dfs bigint[];
BEGIN
  IF p_few THEN
    EXECUTE format(
      'WITH m AS MATERIALIZED (SELECT r.terms FROM memory.search_row r WHERE %s AND r.terms && $1) '
      'SELECT array_agg((SELECT count(*) FROM m WHERE m.terms @> ARRAY[t.term]) ORDER BY t.i) '
      'FROM unnest($1) WITH ORDINALITY AS t(term, i)', p_predicate) INTO dfs USING p_terms;
  ELSIF p_counted AND EXISTS (SELECT FROM memory.term_stat s WHERE s.tenant_id = tenant
                             AND s.generation = p_generation) THEN
    -- One look-up a term: a join would read all of the tenant's terms.
    SELECT array_agg(coalesce((SELECT s.df FROM memory.term_stat s WHERE s.tenant_id = tenant
      AND s.generation = p_generation AND s.term = t.term), 0) ORDER BY t.i) INTO dfs
    FROM unnest(p_terms) WITH ORDINALITY AS t(term, i);
  ELSE
    EXECUTE format(
      'SELECT array_agg((SELECT count(*) FROM (SELECT FROM memory.search_row r WHERE r.tenant_id = %L '
      'AND r.terms @> ARRAY[t.term] LIMIT 50000) AS c) ORDER BY t.i) '
      'FROM unnest($1) WITH ORDINALITY AS t(term, i)', tenant) INTO dfs USING p_terms;
  END IF;
  RETURN dfs;
END $$;

DROP FUNCTION memory.retrieve(jsonb, text, text[], text[], integer, integer, text, integer, text);

-- Both channels' candidates, their neighbours, and both scores of each, exact. One row: a column of the candidates is an
-- array, and all run parallel. searched: the generation, without one in the scope the live one. dense_ready: p_model_key, which embedded
-- the query, is the tenant's active model. Of another generation the caller says which model it has.
--   occurred, expires   seconds since 1970; expires is valid_until
--   bm25                divided by the idf total of the row's language, so that rows of several languages compare
--   vector_ids, cosines parallel to each other; a candidate that is missing there has no vector yet
--   windows             of each seed that stands in a context: up to three visible rows before it, itself, three after it
--                       (NULL where there is none). Of the first two fifths of each channel: what stands further down is
--                       not lifted to the top by its neighbours
CREATE FUNCTION memory.retrieve(
  p_scope jsonb, p_query text, p_required text[], p_excluded text[], p_limit integer, p_small integer,
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
  p_scope := jsonb_build_object('generation', live) || p_scope;
  searched := p_scope ->> 'generation';
  SELECT 'embedding_' || m.model_key AS place, m.vector_type, m.sample INTO model FROM memory.embed_model m
  WHERE m.tenant_id = tenant AND m.model_key = p_model_key AND m.dims = p_dims
    AND (m.status = 'active' OR searched <> live);
  dense_ready := found;
  partial := EXISTS (SELECT FROM memory.embed_queue q WHERE q.tenant_id = tenant
                     AND q.generation = searched AND q.owner_id = p_scope ->> 'principal' AND NOT q.refill);
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
