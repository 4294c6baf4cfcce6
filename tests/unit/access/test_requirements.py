"""What an installation needs, as the package's metadata say it too."""

import tomllib
from pathlib import Path
from typing import get_args

from corbits_memory.access.requirements import (
    GRANT_REQUIREMENTS,
    MEMORY_CAPABILITY_IDS,
    Surface,
    capability_ids_for_surface,
)
from corbits_memory.core.enums import Capability

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_metadata_mirror_the_requirements() -> None:
    told = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["corbits-memory"]["grants"]
    assert told == [
        {
            "resource": need.resource,
            "action": need.action,
            "installHint": need.install_hint,
            "surfaces": list(need.surfaces),
        }
        for need in GRANT_REQUIREMENTS
    ]


def test_capabilities_of_each_surface() -> None:
    assert MEMORY_CAPABILITY_IDS == ("memory:add", "memory:search", "memory:forget", "memory:purge")
    assert capability_ids_for_surface("routes") == MEMORY_CAPABILITY_IDS
    assert capability_ids_for_surface("tools") == ("memory:add", "memory:search")
    assert capability_ids_for_surface("distiller") == ("memory:add", "memory:search")


def test_every_requirement_is_a_capability_that_routes_enforce() -> None:
    assert set(MEMORY_CAPABILITY_IDS) <= set(Capability)
    for need in GRANT_REQUIREMENTS:
        assert "routes" in need.surfaces
        assert set(need.surfaces) <= set(get_args(Surface))
