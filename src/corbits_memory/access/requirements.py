"""Which grants an installation needs, as data for whoever installs it. Advisory: routes enforce, this tells."""

from dataclasses import dataclass
from typing import Literal

from corbits_memory.core.enums import Capability

Surface = Literal["tools", "distiller", "routes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRequirement:
    """One grant. ``install_hint``: at whose level it is usually given."""

    resource: str
    action: str
    install_hint: Literal["tenant", "creator", "invoker"]
    surfaces: tuple[Surface, ...]


GRANT_REQUIREMENTS = (
    GrantRequirement(
        resource="memory", action="add", install_hint="tenant", surfaces=("tools", "distiller", "routes")
    ),
    GrantRequirement(
        resource="memory", action="search", install_hint="tenant", surfaces=("tools", "distiller", "routes")
    ),
    GrantRequirement(resource="memory", action="forget", install_hint="creator", surfaces=("routes",)),
    GrantRequirement(resource="memory", action="purge", install_hint="creator", surfaces=("routes",)),
)

MEMORY_CAPABILITY_IDS = tuple(f"{need.resource}:{need.action}" for need in GRANT_REQUIREMENTS)


def capability_ids_for_surface(surface: Surface) -> tuple[str, ...]:
    """The capabilities that a surface needs, in the order of the table."""
    return tuple(
        str(Capability(f"{need.resource}:{need.action}"))
        for need in GRANT_REQUIREMENTS
        if surface in need.surfaces
    )
