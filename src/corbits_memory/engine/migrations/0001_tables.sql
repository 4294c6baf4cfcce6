-- Documents, their versions, and what they were made from.
-- Rules (docs/decisions.md): tenant first in every key; ids COLLATE "C", so that their order is time order;
-- no foreign key across tenants or into a host's tables; no planner statistics on text that may be erased.

CREATE EXTENSION IF NOT EXISTS vector;

-- Optional: with it, search also finds what was spelt otherwise.
DO $$
BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm;
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported THEN
  RAISE NOTICE 'pg_trgm is not available: search will not mend typos';
END $$;

-- One row a tenant: where `live` points, and the counter whose order is commit order.
-- Writers hold it FOR KEY SHARE from their first read and update it as their last step.
CREATE TABLE memory.tenant_state (
  tenant_id       text COLLATE "C" PRIMARY KEY CHECK (tenant_id <> ''),
  live_generation text COLLATE "C" NOT NULL DEFAULT 'g0',
  feed_seq        bigint NOT NULL DEFAULT 0,
  document_count  bigint NOT NULL DEFAULT 0,
  chunk_count     bigint NOT NULL DEFAULT 0,
  -- Text-search configurations in use, so that a query is analysed with each.
  languages       text[] NOT NULL DEFAULT '{}',
  -- Term statistics are of this many rows; NULL: never counted.
  stats_rows      bigint,
  stats_at        timestamptz,
  created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE memory.raw_capture (
  tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id           text COLLATE "C" NOT NULL,
  adapter      text COLLATE "C" NOT NULL,
  external_ref text COLLATE "C" NOT NULL,
  fetched_at   timestamptz NOT NULL DEFAULT now(),
  content_type text NOT NULL DEFAULT 'application/json',
  raw_text     text,
  raw_bytes    bytea,
  metadata     jsonb NOT NULL DEFAULT '{}',
  source_hash  text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, id),
  -- An identical payload is captured once.
  UNIQUE (tenant_id, source_hash)
);
CREATE INDEX raw_capture_reference ON memory.raw_capture (tenant_id, adapter, external_ref);
ALTER TABLE memory.raw_capture ALTER raw_text SET STATISTICS 0, ALTER raw_bytes SET STATISTICS 0,
  ALTER metadata SET STATISTICS 0;

CREATE TABLE memory.document (
  tenant_id          text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id                 text COLLATE "C" NOT NULL,
  kind               text COLLATE "C" NOT NULL,
  title              text NOT NULL,
  adapter            text COLLATE "C" NOT NULL,
  external_ref       text COLLATE "C" NOT NULL,
  -- Set once, by the first capture; ownership never moves.
  owner_principal_id text COLLATE "C" NOT NULL,
  -- The caller's own tags; what the system adds (owner, doc, peers) is kept apart, so that neither overwrites the other.
  access_tags        text[] COLLATE "C" NOT NULL DEFAULT '{}',
  system_tags        text[] COLLATE "C" NOT NULL DEFAULT '{}',
  attributes         jsonb NOT NULL DEFAULT '{}',
  thread             text COLLATE "C",
  -- Place in the thread where occurred_at is alike: input order.
  thread_seq         bigint NOT NULL DEFAULT 0,
  author             text,
  created_at         timestamptz NOT NULL DEFAULT now(),
  last_seen_at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id),
  -- One document a source reference, however many captures race.
  UNIQUE (tenant_id, adapter, external_ref)
);
-- capture: the last place taken in a thread
CREATE INDEX document_thread ON memory.document (tenant_id, thread, thread_seq) WHERE thread IS NOT NULL;
ALTER TABLE memory.document ALTER title SET STATISTICS 0, ALTER attributes SET STATISTICS 0,
  ALTER author SET STATISTICS 0;

CREATE TABLE memory.version (
  tenant_id               text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id                      text COLLATE "C" NOT NULL,
  document_id             text COLLATE "C" NOT NULL,
  version                 integer NOT NULL CHECK (version > 0),
  supersedes_version_id   text COLLATE "C",
  status                  text NOT NULL DEFAULT 'active'
    CHECK (status IN ('active', 'superseded', 'deprecated', 'archived', 'tombstoned')),
  content_hash            text COLLATE "C" NOT NULL,
  title                   text NOT NULL,
  kind                    text COLLATE "C" NOT NULL,
  attributes              jsonb NOT NULL DEFAULT '{}',
  -- The tags that this version was written with.
  access_tags             text[] COLLATE "C" NOT NULL DEFAULT '{}',
  thread                  text COLLATE "C",
  author                  text,
  language                text COLLATE "C" NOT NULL,
  occurred_at             timestamptz NOT NULL,
  ingested_at             timestamptz NOT NULL DEFAULT now(),
  superseded_at           timestamptz,
  deprecated_at           timestamptz,
  deprecated_reason       text,
  owner_principal_id      text COLLATE "C" NOT NULL,
  created_by_principal_id text COLLATE "C",
  created_by_kind         text NOT NULL CHECK (created_by_kind IN ('human', 'agent', 'system', 'adapter')),
  generator_agent_id      text COLLATE "C",
  authority               real NOT NULL,
  actor_count             integer NOT NULL DEFAULT 1,
  has_social_signal       boolean NOT NULL DEFAULT false,
  source_class            text NOT NULL DEFAULT 'native' CHECK (source_class IN ('native', 'imported', 'derived')),
  raw_capture_id          text COLLATE "C",
  -- The physical generation; never changes. `live` is what tenant_state says.
  generation              text COLLATE "C" NOT NULL,
  provenance              text NOT NULL DEFAULT 'unknown' CHECK (provenance IN ('stated', 'inferred', 'unknown')),
  temporal_class          text NOT NULL DEFAULT 'event'
    CHECK (temporal_class IN ('event', 'deadline', 'state', 'lesson')),
  valid_from              timestamptz,
  valid_until             timestamptz,
  feed_seq                bigint,
  retention_class         text NOT NULL DEFAULT 'standard'
    CHECK (retention_class IN ('durable', 'standard', 'ephemeral', 'source_only')),
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, document_id) REFERENCES memory.document (tenant_id, id) ON DELETE CASCADE,
  FOREIGN KEY (tenant_id, raw_capture_id) REFERENCES memory.raw_capture (tenant_id, id),
  UNIQUE (tenant_id, document_id, generation, version)
-- Room for the number of the feed, which comes last: in no index (feed_event has one), it is written in place.
) WITH (fillfactor = 85);
-- Of racing writers, one version is active.
CREATE UNIQUE INDEX version_active ON memory.version (tenant_id, document_id, generation) WHERE status = 'active';
-- list: newest first
CREATE INDEX version_timeline ON memory.version (tenant_id, generation, occurred_at DESC, id DESC) WHERE status = 'active';
CREATE INDEX version_timeline_owner ON memory.version (tenant_id, generation, owner_principal_id, occurred_at DESC, id DESC)
  WHERE status = 'active';
-- sweep: what may expire
CREATE INDEX version_ephemeral ON memory.version (tenant_id, retention_class, valid_until) WHERE retention_class = 'ephemeral';
-- forget, purge: versions made from a capture
-- (partial, so that no look-up by tenant and id is answered from it before the first ANALYZE)
CREATE INDEX version_raw_capture ON memory.version (tenant_id, raw_capture_id) WHERE raw_capture_id IS NOT NULL;
ALTER TABLE memory.version ALTER title SET STATISTICS 0, ALTER attributes SET STATISTICS 0,
  ALTER author SET STATISTICS 0, ALTER deprecated_reason SET STATISTICS 0;

CREATE TABLE memory.chunk (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id          text COLLATE "C" NOT NULL,
  version_id  text COLLATE "C" NOT NULL,
  document_id text COLLATE "C" NOT NULL,
  ordinal     integer NOT NULL,
  text        text NOT NULL,
  role        text,
  token_count integer NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  -- The compat profile's index; its language is the database's (db rebuild-fts changes it).
  text_fts    tsvector GENERATED ALWAYS AS (to_tsvector('{{FTS_LANGUAGE}}'::regconfig, text)) STORED,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, version_id) REFERENCES memory.version (tenant_id, id) ON DELETE CASCADE,
  UNIQUE (tenant_id, version_id, ordinal)
);
CREATE INDEX chunk_text_fts ON memory.chunk USING gin (text_fts);
ALTER TABLE memory.chunk ALTER text SET STATISTICS 0, ALTER text_fts SET STATISTICS 0, ALTER role SET STATISTICS 0;

CREATE TABLE memory.entity (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id          text COLLATE "C" NOT NULL,
  kind        text COLLATE "C" NOT NULL,
  identifiers jsonb NOT NULL CHECK (identifiers ? 'value'),
  label       text,
  created_at  timestamptz NOT NULL DEFAULT now(),
  updated_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX entity_identifier ON memory.entity (tenant_id, kind, (identifiers ->> 'value'));
ALTER TABLE memory.entity ALTER identifiers SET STATISTICS 0, ALTER label SET STATISTICS 0;

-- derived_from, supports and contradicts go from version to version; what a document is about, from the document.
CREATE TABLE memory.edge (
  tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id         text COLLATE "C" NOT NULL,
  rel        text NOT NULL CHECK (rel IN ('mentions', 'about', 'authored_by', 'involves', 'part_of', 'derived_from',
               'supports', 'contradicts', 'supersedes')),
  from_type  text NOT NULL CHECK (from_type IN ('document', 'version', 'chunk', 'entity')),
  from_ref   text COLLATE "C" NOT NULL,
  to_type    text NOT NULL CHECK (to_type IN ('document', 'version', 'chunk', 'entity')),
  to_ref     text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, from_type, from_ref, rel, to_type, to_ref)
);
-- search: documents about an entity, claims for and against a version
CREATE INDEX edge_target ON memory.edge (tenant_id, to_type, to_ref, rel);

CREATE TABLE memory.embed_model (
  tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id          text COLLATE "C" NOT NULL,
  model_key   text COLLATE "C" NOT NULL CHECK (model_key ~ '^[a-f0-9]{16}$'),
  model_id    text NOT NULL,
  base_url    text NOT NULL,
  api_style   text NOT NULL,
  dims        integer NOT NULL CHECK (dims BETWEEN 64 AND 4000),
  vector_type text NOT NULL CHECK (vector_type IN ('halfvec', 'vector')),
  status      text NOT NULL CHECK (status IN ('active', 'ready')),
  -- A fixed sample of the tenant's chunks, to know how alike unrelated texts are; redrawn by the worker.
  sample      text[] COLLATE "C",
  created_at  timestamptz NOT NULL DEFAULT now(),
  updated_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, model_key)
);
CREATE UNIQUE INDEX embed_model_active ON memory.embed_model (tenant_id) WHERE status = 'active';

CREATE TABLE memory.transform_config (
  tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id         text COLLATE "C" NOT NULL,
  name       text NOT NULL,
  version    integer NOT NULL,
  params     jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, name, version)
);

CREATE TABLE memory.transform_run (
  tenant_id                text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id                       text COLLATE "C" NOT NULL,
  config_id                text COLLATE "C" NOT NULL,
  scope                    jsonb NOT NULL DEFAULT '{}',
  generation               text COLLATE "C" NOT NULL,
  status                   text NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
  raw_count                bigint NOT NULL DEFAULT 0,
  version_count            bigint NOT NULL DEFAULT 0,
  error                    text,
  created_at               timestamptz NOT NULL DEFAULT now(),
  completed_at             timestamptz,
  archived_live_generation text COLLATE "C",
  archived_live_model_key  text COLLATE "C",
  promoted_at              timestamptz,
  PRIMARY KEY (tenant_id, id),
  FOREIGN KEY (tenant_id, config_id) REFERENCES memory.transform_config (tenant_id, id),
  UNIQUE (tenant_id, generation)
);
CREATE INDEX transform_run_config ON memory.transform_run (tenant_id, config_id);

-- What happened, numbered in commit order within the tenant.
CREATE TABLE memory.feed_event (
  tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  seq        bigint NOT NULL,
  op         text NOT NULL CHECK (op IN ('upsert', 'retract', 'promote')),
  version_id text COLLATE "C",
  at         timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, seq)
);
