-- The searched rows: one a searchable chunk, with all that search filters by, so that one index scan decides.

CREATE TABLE memory.search_row (
  tenant_id      text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  chunk_id       text COLLATE "C" NOT NULL,
  generation     text COLLATE "C" NOT NULL,
  document_id    text COLLATE "C" NOT NULL,
  version_id     text COLLATE "C" NOT NULL,
  ordinal        integer NOT NULL,
  status         text NOT NULL,
  owner_id       text COLLATE "C" NOT NULL,
  access_tags    text[] COLLATE "C" NOT NULL,
  kind           text COLLATE "C" NOT NULL,
  attributes     jsonb,
  thread         text COLLATE "C",
  thread_seq     bigint NOT NULL,
  -- What the row stands in: its thread, else its document when that has several chunks.
  context_key    text COLLATE "C",
  author         text,
  occurred_at    timestamptz NOT NULL,
  valid_from     timestamptz,
  valid_until    timestamptz,
  temporal_class text NOT NULL,
  authority      real NOT NULL,
  words          integer NOT NULL,
  asks           boolean NOT NULL,
  language       text COLLATE "C" NOT NULL,
  fts            tsvector NOT NULL,
  -- Hashes of (tenant, generation, lexeme): postings that are the tenant's own.
  terms          integer[] NOT NULL,
  -- BM25 term weights; a query's is the idf of its terms, and the score their inner product.
  lex            sparsevec(268435456) NOT NULL,
  PRIMARY KEY (tenant_id, chunk_id),
  FOREIGN KEY (tenant_id, chunk_id) REFERENCES memory.chunk (tenant_id, id) ON DELETE CASCADE
) PARTITION BY HASH (tenant_id);

DO $$
BEGIN
  FOR i IN 0..15 LOOP
    EXECUTE format('CREATE TABLE memory.search_row_%s PARTITION OF memory.search_row '
                   'FOR VALUES WITH (MODULUS 16, REMAINDER %s)', to_char(i, 'FM00'), i);
    EXECUTE format('ALTER TABLE memory.search_row_%s ALTER fts SET STATISTICS 0, ALTER terms SET STATISTICS 0, '
                   'ALTER lex SET STATISTICS 0, ALTER author SET STATISTICS 0, ALTER attributes SET STATISTICS 0',
                   to_char(i, 'FM00'));
  END LOOP;
END $$;

-- lexical candidates
CREATE INDEX search_row_terms ON memory.search_row USING gin (terms) WITH (gin_pending_list_limit = 512);
-- what a caller may see, and how much it is
CREATE INDEX search_row_visible ON memory.search_row (tenant_id, generation, owner_id, status);
CREATE INDEX search_row_tags ON memory.search_row USING gin (access_tags) WITH (gin_pending_list_limit = 512);
-- neighbours
CREATE INDEX search_row_context ON memory.search_row
  (tenant_id, generation, context_key, occurred_at, thread_seq, chunk_id) WHERE context_key IS NOT NULL;
-- supersede, forget
CREATE INDEX search_row_document ON memory.search_row (tenant_id, document_id);

-- In how many rows a term stands. Hashed, a tenant's own, derived: the worker counts anew.
CREATE TABLE memory.term_stat (
  tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  generation text COLLATE "C" NOT NULL,
  term       integer NOT NULL,
  df         bigint NOT NULL,
  PRIMARY KEY (tenant_id, generation, term)
);

-- Searchable chunks that have no vector yet, or an outdated one. Written in the capture's own transaction, so
-- that none is ever forgotten; gone with the searched row.
CREATE TABLE memory.embed_queue (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  chunk_id    text COLLATE "C" NOT NULL,
  owner_id    text COLLATE "C" NOT NULL,
  enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Also the lease of whoever works on it: a worker that died loses it by time.
  not_before  timestamptz NOT NULL DEFAULT now(),
  attempts    integer NOT NULL DEFAULT 0,
  error       text,
  PRIMARY KEY (tenant_id, chunk_id),
  FOREIGN KEY (tenant_id, chunk_id) REFERENCES memory.search_row (tenant_id, chunk_id) ON DELETE CASCADE
);
-- the worker: what is due, oldest first
CREATE INDEX embed_queue_due ON memory.embed_queue (tenant_id, not_before, chunk_id);
-- search: does this caller wait for vectors?
CREATE INDEX embed_queue_owner ON memory.embed_queue (tenant_id, owner_id);
