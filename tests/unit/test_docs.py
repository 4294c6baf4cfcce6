"""Documentation that can't lie: what the code offers, the pages name."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from benchmarks.main import build_parser

from corbits_memory.access.conditions import STOCK_CONDITIONS
from corbits_memory.access.explain import Reason
from corbits_memory.access.rules import ACTIONS
from corbits_memory.access.tags import RESERVED_PREFIXES
from corbits_memory.cli import app as cli
from corbits_memory.core.enums import Degraded, Effect, GrantOrigin
from corbits_memory.http import memory_openapi

ROOT = Path(__file__).parents[2]
ACCESS = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
HTTP = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
NEVER_RAISED = {Degraded.MEMORY_UNAVAILABLE}


def _schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = memory_openapi()["components"]["schemas"]
    return schemas


def test_every_route_is_documented() -> None:
    for path, methods in memory_openapi()["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path.removeprefix('/api/tenants/{tenant_id}/memory')}`" in HTTP


@pytest.mark.parametrize(
    "model", ["AddRequest", "SearchRequest", "AddResponse", "SearchItemResponse", "AttributionResponse"]
)
def test_every_field_is_documented(model: str) -> None:
    missing = [name for name in _schemas()[model]["properties"] if f"`{name}`" not in HTTP]
    assert missing == []


def test_every_flag_is_documented() -> None:
    assert [flag for flag in Degraded if flag not in NEVER_RAISED and f"`{flag}`" not in HTTP] == []


def test_every_word_of_access_is_documented() -> None:
    words = [*Effect, *GrantOrigin, *Reason, *ACTIONS, *STOCK_CONDITIONS]
    assert [word for word in words if f"`{word}`" not in ACCESS] == []
    assert [prefix for prefix in RESERVED_PREFIXES if prefix not in ACCESS] == []


@pytest.mark.parametrize("group", ["grant", "role", "tenant"])
def test_every_command_about_access_is_documented(group: str) -> None:
    commands = getattr(cli, group).app.registered_commands
    assert commands
    assert [command.name for command in commands if f"{group} {command.name}" not in ACCESS] == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project["dependencies"] + [
        d for extra in project["optional-dependencies"].values() for d in extra
    ]
    decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    names = {d.split(">")[0].split("=")[0].split("[")[0] for d in named} - {"corbits-memory"}
    assert sorted(name for name in names if name not in decisions) == []


def test_every_part_of_the_benchmarks_is_named_and_has_its_figures() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"measures one part of (\w+): ([^.]+)\.", page)
    (choices,) = [action.choices for action in build_parser()._actions if action.dest == "part"]
    assert choices is not None
    parts = [part for part in choices if part != "all"]
    assert re.findall(r"`(\w+)`", named[1]) == parts
    assert named[0] == {10: "ten", 11: "eleven", 12: "twelve"}[len(parts)]
    headings = re.findall(r"^## (.+)$|^<!-- (\w+): begin -->$", page, re.MULTILINE)
    told = [heading.lower() or marker for heading, marker in headings]
    # Each heading stands above the figures of the same name.
    assert told[::2] == told[1::2]
    assert sorted(told[::2]) == sorted(parts)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_what_the_security_page_claims_has_a_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", page)
    rows = [line for line in page.partition("## Tags")[0].splitlines() if line.count("|") == 4][2:]
    assert len(named) >= len(rows) > 30
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_each_attack_has_its_line_on_the_security_page() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    for file in (ROOT / "tests" / "security").glob("test_*.py"):
        assert f"security/{file.name}" in page
