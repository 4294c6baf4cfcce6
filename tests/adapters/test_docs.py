"""What the page about adapters says, and what they cost whoever doesn't use them."""

import re
import subprocess
import sys
from pathlib import Path

from corbits_memory.adapters.linear.tools import TOOLS
from tests.adapters.mem0.test_mem0 import EXCEPTIONS as MEM0
from tests.adapters.supermemory.test_supermemory import EXCEPTIONS as SUPERMEMORY

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")


def test_every_tool_and_example_is_documented() -> None:
    assert [tool.name for tool in TOOLS if f"`{tool.name}`" not in PAGE] == []
    for example in re.findall(r"^from (corbits_memory\S+) import (\w+)$", PAGE, re.MULTILINE):
        module, name = example
        assert hasattr(__import__(module, fromlist=[name]), name)


def test_both_stores_have_the_same_exceptions() -> None:
    assert MEM0.keys() == SUPERMEMORY.keys()


def test_nothing_imports_an_adapter() -> None:
    script = (
        "import sys, corbits_memory.cli, corbits_memory.server, corbits_memory.testing; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "corbits_memory.adapters" not in done.stdout
