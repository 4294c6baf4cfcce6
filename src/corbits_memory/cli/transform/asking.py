"""What the commands share: how they name things, and whom they ask."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target
from corbits_memory.cli.run import run_async

ConfigId = Annotated[str, typer.Argument(metavar="CONFIG", help="As `transform create` answers it.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="As `transform run` answers it.")]
Generation = Annotated[
    str, typer.Argument(metavar="GENERATION", help="As `transform run` answers it; a run's own id.")
]


def target_of(
    data_dir: Path | None,
    database_url: str | None,
    url: str | None,
    token: str | None,
    tenant: str,
    principal: str,
) -> Target:
    return Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )


def ask(target: Target, question: Callable[[Any], Awaitable[Json]]) -> Json:
    async def answer() -> Json:
        from corbits_memory.cli.transform.backend import open_transforms

        async with open_transforms(target, os.environ) as backend:
            return await question(backend)

    return run_async(answer())


def or_dash(value: Any) -> str:
    return "-" if value is None else str(value)
