-- How far the log of the primary has come, and how much of it a replica has replayed. Places are bytes of the log.

-- name: commit
-- Whether the transaction wrote, its end, and a place in the log that lies behind it. One message.
SELECT pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT; SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn

-- name: written
-- Where the primary is, and which database this is.
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS place, s.system_identifier, d.oid AS database
FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()

-- name: written_place
-- Where the primary is.
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn

-- name: standing
-- What a server is that shall answer reads; the place is NULL where nothing is replayed.
SELECT pg_is_in_recovery() AS replica,
  CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0'::pg_lsn END AS place,
  s.system_identifier, d.oid AS database
FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()

-- name: replayed
-- How far this replica has come; NULL where it is none any more.
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0'::pg_lsn END
