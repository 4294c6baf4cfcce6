"""docs/agents.md: what is there to be pasted can be pasted."""

import ast
import json
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from corbits_memory import MemoryClient
from corbits_memory.cli.app import app
from corbits_memory.core.chunking import token_count
from corbits_memory.tools import TOOLS
from corbits_memory.tools.mcp.schemas import lean_output

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def blocks(language: str) -> list[str]:
    found = [text for name, text in BLOCKS if name == language]
    assert found
    return found


def strings(value: Any, key: str) -> list[Any]:
    """What stands under a key, at any depth."""
    if isinstance(value, list):
        return [found for item in value for found in strings(item, key)]
    if not isinstance(value, dict):
        return []
    return [item for name, item in value.items() if name == key] + strings(list(value.values()), key)


def test_configurations_are_sound() -> None:
    documents = [json.loads(text) for text in blocks("json")] + [
        tomllib.loads(text) for text in blocks("toml")
    ]
    assert len(documents) >= 8
    urls = [url for key in ("url", "serverUrl", "httpUrl") for url in strings(documents, key)]
    assert set(urls) == {"http://127.0.0.1:8765/mcp"}
    assert set(strings(documents, "command")) == {"corbits-memory"}
    for arguments in strings(documents, "args"):
        command = get_command(app).commands[arguments[0]]  # type: ignore[attr-defined]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in arguments[1:] if word.startswith("--")} <= known


def test_commands_have_the_options_that_are_told() -> None:
    for name, words in re.findall(r"corbits-memory (mcp|serve)((?: --[a-z-]+ [A-Z]+)*)", PAGE):
        command = get_command(app).commands[name]  # type: ignore[attr-defined]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= known


def test_code_names_what_there_is() -> None:
    for text in blocks("python"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                module = import_module(str(node.module))
                for alias in node.names:
                    assert hasattr(module, alias.name), alias.name


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_is_there_with_its_arguments(tool: Any) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{tool.name}` |")]
    cell = row.split("|")[2]
    assert re.findall(r"`(\w+)`", cell) == list(tool.input_schema["properties"])
    assert re.findall(r"\*\*`(\w+)`\*\*", cell) == tool.input_schema.get("required", [])


def test_every_verb_of_the_client_is_there() -> None:
    verbs = [
        name for name in vars(MemoryClient) if not name.startswith("_") and name not in {"send", "aclose"}
    ]
    assert [verb for verb in verbs if f"`{verb}`" not in PAGE] == []


def test_the_readmes_configuration_is_sound() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (told,) = [text for text in re.findall(r"```json\n(.*?)```", readme, re.DOTALL) if "mcpServers" in text]
    (server,) = json.loads(told)["mcpServers"].values()
    assert (server["command"], server["args"]) == ("corbits-memory", ["mcp"])


def test_the_sizes_that_are_told_are_those_that_a_model_pays() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(memory_\w+)` \| (\d+ \| \d+ \| \d+) \|$", page, re.MULTILINE))
    assert told == {
        tool.name: " | ".join(
            str(token_count(text))
            for text in (
                tool.description,
                json.dumps(tool.input_schema, separators=(",", ":")),
                json.dumps(lean_output(tool.answer), separators=(",", ":")),
            )
        )
        for tool in TOOLS
    }
