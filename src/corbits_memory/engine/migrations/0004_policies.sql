-- The second lock: each transaction names its tenant, and sees no other. The owner stays free (no FORCE),
-- since it owns the one function that the policies would slow down.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['tenant_state', 'raw_capture', 'document', 'version', 'chunk', 'entity', 'edge',
      'embed_model', 'transform_config', 'transform_run', 'feed_event', 'embed_queue', 'search_row', 'term_stat'] LOOP
    EXECUTE format('ALTER TABLE memory.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY tenant ON memory.%I USING (tenant_id = current_setting(''memory.tenant_id'', true))',
                   name);
  END LOOP;
END $$;
