"""What every test may use. The project's own environment variables never reach a test."""

import os
import signal

import pytest

from tests.support.postgres import (
    close_memory_dir,
    database_names,
    new_database,
    new_module_database,
    open_memory_dir,
    pg_cluster,
)

__all__ = ["database_names", "new_database", "new_module_database", "pg_cluster"]

_OWN = ("CORBITS_MEMORY_", "EMBED_", "RERANK_", "DATABASE_", "DB_POOL_", "FTS_", "WEBHOOK_", "DISTILL_")
_KEPT = ("CORBITS_MEMORY_BENCH_DATA", "CORBITS_MEMORY_TEST_")


def pytest_configure() -> None:
    # In the process that starts the others, before it does.
    open_memory_dir()
    # A shell that starts the tests in the background has them ignore Ctrl-C, and what they start inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    close_memory_dir()


@pytest.fixture(autouse=True, scope="session")
def plain_environment() -> None:
    for name in list(os.environ):
        if name.startswith(_OWN) and not name.startswith(_KEPT):
            del os.environ[name]
