"""What ``serve`` says once it answers: where, on which database, and how to begin."""

import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

from corbits_memory.server.places import Place
from corbits_memory.server.tokens import FIRST_PRINCIPAL, FIRST_TENANT

TOKEN_KNOWN = "made at an earlier start; for another one: corbits-memory token create"  # noqa: S105
TOKEN_PRESET = "the one in CORBITS_MEMORY_TOKEN"  # noqa: S105


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A host that answers."""

    url: str
    place: Place
    model: str
    token: str | None = field(default=None, repr=False)
    """The first token, when this start made it."""
    preset: bool = False
    warnings: tuple[str, ...] = ()
    options: str = ""
    """What other commands need to find the same database, when the environment doesn't tell them."""
    tenant: str = FIRST_TENANT
    principal: str = FIRST_PRINCIPAL

    def to_json(self) -> dict[str, Any]:
        """For ``serve --json``."""
        place = asdict(self.place)
        place.pop("url")
        place["warnings"] = list(self.place.warnings)
        told = {
            "url": self.url,
            "docs": f"{self.url}/docs",
            "version": version("corbits-memory"),
            "tenant": self.tenant,
            "principal": self.principal,
            "database": place,
            "model": self.model,
            "warnings": list(self.warnings),
        }
        return told | ({"token": self.token} if self.token is not None else {})

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each line, in order."""
        found = [
            ("URL", self.url),
            ("Docs", f"{self.url}/docs"),
            ("Database", _database(self.place)),
            ("Model", self.model),
            ("Tenant", self.tenant),
        ]
        if self.preset:
            found.append(("Token", TOKEN_PRESET))
        elif self.token is None:
            found.append(("Token", TOKEN_KNOWN))
        else:
            found.append(("Token", self.token))
            found.append(("", f"acts as {self.principal} and may do all; shown only now, so keep it"))
        found += [("Warning", warning) for warning in (*self.place.warnings, *self.warnings)]
        return found


def print_banner(started: Started) -> None:
    """To standard output: a panel on a terminal, plain lines elsewhere."""
    if sys.stdout.isatty():
        _print_panel(started)
        return
    out = [f"Corbits Memory {version('corbits-memory')} is ready", ""]
    out += [f"{f'{name}:' if name else '':<10} {value}" for name, value in started.lines()]
    out += ["", *_next_steps(started), ""]
    sys.stdout.write("\n".join(out))
    sys.stdout.flush()


def _print_panel(started: Started) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text(f"\nCorbits Memory {version('corbits-memory')} is ready\n", style="bold green"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in started.lines():
        style = {"Token": "bold", "Warning": "yellow"}.get(name, "dim" if not name else "")
        table.add_row(name, Text(value, style=style))
    console.print(table)
    console.print()
    for line in _next_steps(started):
        console.print(Text(line), soft_wrap=True, highlight=False)
    console.print()


def _database(place: Place) -> str:
    if not place.embedded:
        return f"external Postgres at {place.location}"
    kept = "kept across restarts" if place.lasts else "see the warning"
    return f"embedded Postgres in {place.location} ({kept})"


def _next_steps(started: Started) -> list[str]:
    token = started.token or "TOKEN"
    body = '{"query": "what do you want to know?"}'
    path = f"/api/tenants/{started.tenant}/memory/search"
    return [
        "In a second terminal:",
        f"  corbits-memory import{started.options} FILES",
        f'  corbits-memory search{started.options} "what do you want to know?"',
        f"  curl -s -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\",
        f"    -d '{body}' {started.url}{path}",
        "Ctrl-C stops it.",
    ]
