"""``corbits-memory serve``."""

from typing import Annotated

import typer

from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Default: 8765. 0 takes a free one.", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Start the memory server: embedded Postgres, embedding model, HTTP API."""
    import os

    from corbits_memory.server.logging import configure_logging
    from corbits_memory.server.places import choose_database
    from corbits_memory.server.settings import load_host_settings
    from corbits_memory.server.startup import serve as serve_host

    settings = load_host_settings(host=host, port=port)
    choice = choose_database(data_dir=data_dir, database_url=database_url, environ=os.environ)
    configure_logging(settings)
    serve_host(settings, choice, as_json=as_json)
