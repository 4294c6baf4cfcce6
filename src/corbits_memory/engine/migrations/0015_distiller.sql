-- Distillers: how far each one is in the feed, who works on it now, and what it failed with.

CREATE TABLE memory.distill_cursor (
  tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  -- Read is what this principal may see.
  principal_id text COLLATE "C" NOT NULL,
  agent_id     text COLLATE "C" NOT NULL,
  -- Everything up to this number was distilled, passed over, or given up.
  position     bigint NOT NULL,
  -- After a failure: nobody works on it until then.
  not_before   timestamptz NOT NULL DEFAULT now(),
  -- Whoever distils holds this; one that died loses it by time.
  lease        text COLLATE "C",
  leased_until timestamptz NOT NULL DEFAULT now(),
  created_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, principal_id, agent_id)
);

-- Entries that failed: to be tried again, or (dead) given up until somebody asks for them again. A reason may quote the
-- text, so it goes when the version is erased.
CREATE TABLE memory.distill_failure (
  tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  principal_id text COLLATE "C" NOT NULL,
  agent_id     text COLLATE "C" NOT NULL,
  seq          bigint NOT NULL,
  version_id   text COLLATE "C" NOT NULL,
  attempts     integer NOT NULL,
  reason       text NOT NULL,
  dead         boolean NOT NULL,
  failed_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, principal_id, agent_id, seq),
  FOREIGN KEY (tenant_id, principal_id, agent_id)
    REFERENCES memory.distill_cursor (tenant_id, principal_id, agent_id) ON DELETE CASCADE
);
-- forget, purge: what was noted of a version
CREATE INDEX distill_failure_version ON memory.distill_failure (tenant_id, version_id);
ALTER TABLE memory.distill_failure ALTER reason SET STATISTICS 0;

ALTER TABLE memory.distill_cursor ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.distill_cursor USING (tenant_id = current_setting('memory.tenant_id', true));
ALTER TABLE memory.distill_failure ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.distill_failure USING (tenant_id = current_setting('memory.tenant_id', true));
