"""The plugin with the options that name what is under test: ``-p corbits_memory.testing.conformance.options``.

A conftest.py of this package would come too late: pytest reads those of ``--pyargs`` after the command line.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FACTORIES = {
    "--store": "makes a DocumentStore",
    "--grant-store": "makes a GrantStore",
    "--source": "makes a SourceProvider",
    "--text-extractor": "makes a TextExtractor",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("corbits-memory", "conformance of ports")
    for option, makes in FACTORIES.items():
        group.addoption(option, metavar="MODULE:NAME", help=f"what {makes}, called without arguments")
    group.addoption(
        "--patience",
        type=float,
        default=0.0,
        help="seconds until a store must find what was added (default 0)",
    )
    group.addoption("--source-query", default="deploy", help="finds at least two things in the source")
    group.addoption(
        "--exception",
        action="append",
        default=[],
        metavar="TEST=REASON",
        help="a test that is known to fail, and why; may be repeated",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unknown = set(exceptions_of(config)) - {getattr(item, "originalname", item.name) for item in items}
    if unknown:
        raise pytest.UsageError(f"--exception: there is no test {', '.join(sorted(unknown))}")


def factory_of(config: pytest.Config, option: str) -> Callable[[], Any]:
    """What the option names; the test is skipped when it names nothing."""
    named = config.getoption(option, default=None)
    if not named:
        pytest.skip(f"no {option} is given (docs/stores.md says how)")
    module, _, name = named.partition(":")
    if not module or not name:
        raise pytest.UsageError(f"{option} must be MODULE:NAME, like my_package.store:make_store")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise pytest.UsageError(f"{option}: {named} can't be called")
    return found


def exceptions_of(config: pytest.Config) -> dict[str, str]:
    given: list[str] = config.getoption("--exception", default=[])
    named = {test: reason for test, _, reason in (item.partition("=") for item in given)}
    if not all(named.values()):
        raise pytest.UsageError("--exception must be TEST=REASON")
    return named
