-- Webhooks: who wants to be told what of the feed, how far that went, and what could not be delivered.

CREATE TABLE memory.subscription (
  tenant_id         text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  id                text COLLATE "C" NOT NULL,
  url               text NOT NULL,
  -- Told is what this principal may see.
  principal_id      text COLLATE "C" NOT NULL,
  created_by        text COLLATE "C" NOT NULL,
  ops               text[] NOT NULL CHECK (ops <> '{}' AND ops <@ ARRAY['upsert', 'retract', 'promote']),
  exclude_generator text COLLATE "C",
  include_text      boolean NOT NULL DEFAULT false,
  -- Everything up to this number was delivered, passed over, or given up.
  position          bigint NOT NULL,
  -- Failures of the entry that comes next, and when it is tried again.
  failures          integer NOT NULL DEFAULT 0,
  not_before        timestamptz NOT NULL DEFAULT now(),
  last_error        text,
  last_delivered_at timestamptz,
  -- Whoever delivers holds this; one that died loses it by time.
  lease             text COLLATE "C",
  leased_until      timestamptz NOT NULL DEFAULT now(),
  created_at        timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, id)
);
ALTER TABLE memory.subscription ALTER url SET STATISTICS 0;

-- Written by whoever creates a subscription, read by nobody but the owner's worker: hence the policy below.
CREATE TABLE memory.subscription_secret (
  tenant_id       text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  subscription_id text COLLATE "C" NOT NULL,
  secret          text NOT NULL,
  PRIMARY KEY (tenant_id, subscription_id),
  FOREIGN KEY (tenant_id, subscription_id) REFERENCES memory.subscription (tenant_id, id) ON DELETE CASCADE
);
ALTER TABLE memory.subscription_secret ALTER secret SET STATISTICS 0;

-- What was given up, until somebody has it sent again. Holds numbers and no content: that is read when it is sent.
CREATE TABLE memory.delivery (
  tenant_id       text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
  subscription_id text COLLATE "C" NOT NULL,
  seq             bigint NOT NULL,
  state           text NOT NULL CHECK (state IN ('dead', 'replay')),
  failures        integer NOT NULL,
  last_error      text NOT NULL,
  failed_at       timestamptz NOT NULL DEFAULT now(),
  not_before      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, subscription_id, seq),
  FOREIGN KEY (tenant_id, subscription_id) REFERENCES memory.subscription (tenant_id, id) ON DELETE CASCADE
);
-- the worker: what is to be sent again
CREATE INDEX delivery_due ON memory.delivery (tenant_id, subscription_id, not_before) WHERE state = 'replay';

ALTER TABLE memory.subscription ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.subscription USING (tenant_id = current_setting('memory.tenant_id', true));
ALTER TABLE memory.delivery ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.delivery USING (tenant_id = current_setting('memory.tenant_id', true));
ALTER TABLE memory.subscription_secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON memory.subscription_secret USING (false)
  WITH CHECK (tenant_id = current_setting('memory.tenant_id', true));
