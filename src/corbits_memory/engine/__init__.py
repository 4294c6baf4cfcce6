"""The default document store, on Postgres."""
