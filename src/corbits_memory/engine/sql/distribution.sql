-- Tables that are spread over the nodes of a Citus cluster, by tenant. Catalogs alone are read here.

-- name: citus
-- Whether this database is a node of such a cluster.
SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL

-- name: distributed
-- Whether the tenants' tables are spread: the first of them is.
SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('memory.tenant_state'))

-- name: lock
-- One change of what is spread at a time, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtext('corbits-memory distribution'))

-- name: lock_session
-- The same over several transactions.
SELECT pg_advisory_lock(hashtext('corbits-memory distribution'))

-- name: unlock_session
-- The end of that.
SELECT pg_advisory_unlock(hashtext('corbits-memory distribution'))

-- name: local_tables
-- Tables of tenants that are not spread yet, each behind those that it refers to; the one that all others lie beside
-- comes first.
WITH RECURSIVE tenants AS (
  SELECT c.oid, c.relname FROM pg_class c
  WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')
), refers AS (
  SELECT DISTINCT k.conrelid, k.confrelid FROM pg_constraint k
  JOIN tenants t ON t.oid = k.conrelid JOIN tenants o ON o.oid = k.confrelid
  WHERE k.contype = 'f' AND k.conrelid <> k.confrelid
), depths AS (
  SELECT t.oid, 0 AS depth FROM tenants t
  UNION
  SELECT r.conrelid, d.depth + 1 FROM depths d JOIN refers r ON r.confrelid = d.oid
)
SELECT t.oid::regclass::text FROM tenants t
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition p WHERE p.logicalrelid = t.oid)
ORDER BY t.relname <> 'tenant_state', (SELECT max(d.depth) FROM depths d WHERE d.oid = t.oid), t.relname

-- name: spread_tables
-- Tables of tenants that are spread.
SELECT c.oid::regclass::text FROM pg_catalog.pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid
WHERE c.relnamespace = 'memory'::regnamespace AND NOT c.relispartition ORDER BY c.relname

-- name: local_functions
-- Functions that the other nodes don't have yet.
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = 'memory'::regnamespace AND NOT EXISTS (
  SELECT FROM pg_catalog.pg_dist_object o WHERE o.classid = 'pg_proc'::regclass AND o.objid = p.oid)
ORDER BY p.oid

-- name: role_may_log_in
-- Whether the application's role can be taken on another node: Citus connects there as the role at work.
SELECT rolcanlogin FROM pg_roles WHERE rolname = %(role)s

-- name: distribute_first
-- Spread the table that all others lie beside.
SELECT create_distributed_table(%(table)s::regclass, 'tenant_id', colocate_with => 'none')

-- name: distribute_beside
-- Spread a table so that a tenant's rows of all tables are on one node.
SELECT create_distributed_table(%(table)s::regclass, 'tenant_id', colocate_with => 'memory.tenant_state')

-- name: distribute_function
-- Make a function known to the other nodes.
SELECT create_distributed_function(%(function)s::regprocedure)

-- name: forget_local_rows
-- Remove what was left on the coordinator of rows that are on other nodes now, in all tables that refer to this one too.
SELECT truncate_local_data_after_distributing_table(%(table)s::regclass)
