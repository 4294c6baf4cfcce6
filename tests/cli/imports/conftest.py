"""Commands in this process, on a database of the test's own."""

from tests.e2e.conftest import corbits, database

__all__ = ["corbits", "database"]
