"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the embedded Postgres. Default: CORBITS_MEMORY_DATA_DIR, else the user's data folder.",
        show_default=False,
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="A Postgres with pgvector, instead. Default: DATABASE_URL.", show_default=False),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="A server to talk to, instead of a database. Default: CORBITS_MEMORY_URL.", show_default=False
    ),
]
Token = Annotated[
    str | None,
    typer.Option(help="The token for --url. Default: CORBITS_MEMORY_TOKEN.", show_default=False),
]
Tenant = Annotated[str, typer.Option(help="The tenant.")]
Principal = Annotated[str, typer.Option(help="Who acts; over --url the token says it.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Kind = Annotated[list[str] | None, typer.Option(help="Only this kind; may be repeated.", show_default=False)]
