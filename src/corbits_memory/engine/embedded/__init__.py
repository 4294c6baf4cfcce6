"""A Postgres server of our own, supervised."""
