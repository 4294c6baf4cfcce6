"""``corbits-memory add``."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from corbits_memory.cli.backend import Json, Target, open_backend
from corbits_memory.cli.options import AsJson, DatabaseUrl, DataDir, Principal, Tenant, Token, Url
from corbits_memory.cli.output import print_json
from corbits_memory.cli.run import run_async
from corbits_memory.cli.titles import first_line
from corbits_memory.errors import InvalidInputError

Text = Annotated[str | None, typer.Option(show_default=False)]
Words = Annotated[list[str] | None, typer.Option(show_default=False)]


def add(
    words: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The text. Default: standard input.", show_default=False),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Default: the text's first line.", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(help="The same as TEXT.", show_default=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A file instead: PDF, DOCX, HTML, Markdown, text.",
            show_default=False,
        ),
    ] = None,
    kind: Text = None,
    external_ref: Annotated[
        str | None, typer.Option(help="Your name for it; again makes a new version.", show_default=False)
    ] = None,
    adapter: Text = None,
    author: Text = None,
    thread: Text = None,
    occurred_at: Text = None,
    valid_from: Text = None,
    valid_until: Text = None,
    language: Text = None,
    attribute: Annotated[
        list[str] | None, typer.Option(help="name=value; may be repeated.", show_default=False)
    ] = None,
    access_tag: Words = None,
    share_tenant: Annotated[
        bool, typer.Option("--share-tenant", help="The whole tenant may read it.")
    ] = False,
    share_with: Annotated[
        list[str] | None, typer.Option(help="A principal that may read it.", show_default=False)
    ] = None,
    share_tag: Words = None,
    generator_agent_id: Text = None,
    provenance: Text = None,
    lineage_class: Text = None,
    temporal_class: Text = None,
    retention_class: Text = None,
    derived_from: Words = None,
    supports: Words = None,
    contradicts: Words = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    url: Url = None,
    token: Token = None,
    tenant: Tenant = "default",
    principal: Principal = "owner",
    as_json: AsJson = False,
) -> None:
    """Remember one text, or one file."""
    given_text = _content(words, text, file)
    share: dict[str, Any] = {
        "tenant": share_tenant or None,
        "principals": share_with or None,
        "tags": share_tag or None,
    }
    body: dict[str, Any] = {
        "title": title or (None if file else first_line(given_text)),
        "text": None if file else given_text,
        "kind": kind,
        "external_ref": external_ref,
        "adapter": adapter,
        "author": author,
        "thread": thread,
        "occurred_at": occurred_at,
        "valid_from": valid_from,
        "valid_until": valid_until,
        "language": language,
        "attributes": dict(map(_attribute, attribute)) if attribute else None,
        "access_tags": access_tag or None,
        "share": {name: value for name, value in share.items() if value} or None,
        "generator_agent_id": generator_agent_id,
        "provenance": provenance,
        "lineage_class": lineage_class,
        "temporal_class": temporal_class,
        "retention_class": retention_class,
        "derived_from": derived_from or None,
        "supports": supports or None,
        "contradicts": contradicts or None,
    }
    given = {name: value for name, value in body.items() if value is not None}
    target = Target(
        data_dir=data_dir, database_url=database_url, url=url, token=token, tenant=tenant, principal=principal
    )
    answer = run_async(_add(target, given, file))
    if as_json:
        print_json(answer)
        return
    typer.echo(f"{answer['status']} {answer['documentId']} (version {answer['version']})")
    if answer.get("degraded"):
        typer.echo(f"degraded: {', '.join(answer['degraded'])}")


async def _add(target: Target, body: dict[str, Any], file: Path | None) -> Json:
    if file is not None:
        body = {**body, **await _read(file, title=body.get("title"))}
    async with open_backend(target, os.environ) as backend:
        (answer,) = await backend.add_batch([body])
    if "error" in answer:
        error = answer["error"]
        raise InvalidInputError(error["message"], details=error.get("details"))
    return answer


async def _read(file: Path, *, title: str | None) -> dict[str, str]:
    from corbits_memory.cli.imports.extracted import make_extractor, read_content

    try:
        content = await read_content(file, make_extractor(), title=title)
    except OSError as error:
        raise InvalidInputError(f"{file} can't be read ({error.strerror})") from None
    return {"title": content.title, "text": content.text}


def _content(words: str | None, text: str | None, file: Path | None) -> str:
    if file is not None:
        if words is not None or text is not None:
            raise typer.BadParameter("give either a text or --file")
        return ""
    if words is not None and text is not None:
        raise typer.BadParameter("give the text once: as TEXT, or with --text")
    given = words if words is not None else text
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise typer.BadParameter("no text: give it as TEXT, or pipe it in")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError("standard input is not UTF-8 text") from None


def _attribute(given: str) -> tuple[str, Any]:
    """``name=value``; numbers, true, false and null are what they look like."""
    name, equals, value = given.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter("--attribute must be name=value")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, int | float | bool | None) else value
