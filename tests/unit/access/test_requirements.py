"""What an installation is told to grant, and that it is enough for the routes."""

from dataclasses import fields

from corbits_memory.access.requirements import (
    GRANT_REQUIREMENTS,
    MEMORY_CAPABILITY_IDS,
    GrantRequirement,
    capability_ids_for_surface,
)
from corbits_memory.core.enums import Capability
from corbits_memory.http.operations import OPERATIONS


def test_each_requirement_has_the_four_keys_and_its_level() -> None:
    assert [field.name for field in fields(GrantRequirement)] == [
        "resource",
        "action",
        "install_hint",
        "surfaces",
    ]
    assert {need.action: need.install_hint for need in GRANT_REQUIREMENTS} == {
        "add": "tenant",
        "search": "tenant",
        "forget": "creator",
        "purge": "creator",
    }


def test_the_ids_are_capabilities_in_order() -> None:
    assert MEMORY_CAPABILITY_IDS == ("memory:add", "memory:search", "memory:forget", "memory:purge")
    assert set(MEMORY_CAPABILITY_IDS) == set(Capability) - {Capability.ADMIN}


def test_tools_and_the_distiller_can_neither_forget_nor_purge() -> None:
    assert capability_ids_for_surface("tools") == ("memory:add", "memory:search")
    assert capability_ids_for_surface("distiller") == ("memory:add", "memory:search")
    assert capability_ids_for_surface("routes") == MEMORY_CAPABILITY_IDS


def test_the_routes_ask_for_what_the_requirements_name_or_for_an_administrator() -> None:
    asked = {str(operation.capability) for operation in OPERATIONS} - {str(Capability.ADMIN)}
    assert asked <= set(capability_ids_for_surface("routes"))
