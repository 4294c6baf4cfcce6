-- Whose a document is never changes: the application's role has no right to. What that role may do is given after every
-- migration (engine/rights.py), since it may be made later than the tables, and not by columns on Citus. This file has
-- a database of an earlier release migrated before it is used, and keeps that release from giving the right back.
COMMENT ON COLUMN memory.document.owner_principal_id IS 'written with the row and never changed';
COMMENT ON COLUMN memory.version.owner_principal_id IS 'written with the row and never changed';
