"""Migrated databases for the suites."""

from tests.engine.conftest import database_url, migrated_template

__all__ = ["database_url", "migrated_template"]
