-- What of Citus the calls of `db distribute` meet: the catalogs that are asked, and its rules about what may be
-- distributed when. It spreads nothing; whether a real cluster takes the schema is test_citus.py's question.
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass PRIMARY KEY, partkey text, beside regclass);
CREATE TABLE pg_catalog.pg_dist_object (classid oid, objid oid, PRIMARY KEY (classid, objid));
CREATE TABLE pg_catalog.stand_in_truncated (number bigserial, name regclass);

CREATE FUNCTION pg_catalog.create_distributed_table(given regclass, field text, colocate_with text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  key text;
  other regclass;
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = given) THEN
    RAISE EXCEPTION 'table % is already distributed', given USING ERRCODE = 'invalid_table_definition';
  END IF;
  FOR key IN SELECT i.indexrelid::regclass::text FROM pg_index i
      WHERE i.indrelid = given AND i.indisunique AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = given AND a.attname = field AND a.attnum = ANY (i.indkey)) LOOP
    RAISE EXCEPTION 'unique index % does not include the distribution column', key;
  END LOOP;
  FOR other IN SELECT k.confrelid::regclass FROM pg_constraint k
      WHERE k.conrelid = given AND k.contype = 'f' AND k.confrelid <> k.conrelid
        AND NOT (SELECT c.relispartition FROM pg_class c WHERE c.oid = k.confrelid) LOOP
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition p WHERE p.logicalrelid = other) THEN
      RAISE EXCEPTION '% refers to %, which is a local table', given, other;
    END IF;
  END LOOP;
  IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = given AND NOT tgisinternal) THEN
    RAISE EXCEPTION 'triggers are not supported on distributed tables';
  END IF;
  INSERT INTO pg_catalog.pg_dist_partition VALUES (given, field, nullif(colocate_with, 'none')::regclass);
END $$;

CREATE FUNCTION pg_catalog.create_distributed_function(given regprocedure) RETURNS void LANGUAGE sql AS
  'INSERT INTO pg_catalog.pg_dist_object VALUES (''pg_proc''::regclass, given)';

CREATE FUNCTION pg_catalog.truncate_local_data_after_distributing_table(given regclass) RETURNS void LANGUAGE sql AS
  'INSERT INTO pg_catalog.stand_in_truncated (name) VALUES (given)';
