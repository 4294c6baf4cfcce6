"""Reads a form with a file in it."""

import re
from collections.abc import AsyncGenerator, Mapping
from importlib.util import find_spec
from typing import Any

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from corbits_memory.core.limits import BODY_BYTES
from corbits_memory.errors import ExtractNotInstalledError, InvalidInputError
from corbits_memory.http.body import parse_json
from corbits_memory.validation import File
from corbits_memory.wire.requests import AddFileRequest

NOT_A_FORM = "the body must be multipart/form-data, with the file as its part `file`"
_PARTS = 64
_FILE = "file"
_BOUNDARY = re.compile(r"[\x20!#-\[\]-~]{1,200}")
_AS_JSON = frozenset({"access_tags", "attributes", "contradicts", "derived_from", "share", "supports"})
"""The fields that are no text."""


async def form_object(request: Request, body: bytes) -> Mapping[str, Any]:
    """The parts of a form by their names, the file as a :class:`File`; parts that nobody knows are ignored.

    Raises ``InvalidInputError``, and ``ExtractNotInstalledError`` where forms can't be parsed.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "multipart/form-data":
        raise InvalidInputError(NOT_A_FORM)
    form = await _parsed(request, body)
    values: dict[str, Any] = {}
    try:
        for name, part in form.multi_items():
            if name not in AddFileRequest.model_fields:
                continue
            if name in values:
                raise InvalidInputError(f"{name} must be given once")
            values[name] = await _value(name, part)
    finally:
        await form.close()
    return values


async def _parsed(request: Request, body: bytes) -> FormData:
    if find_spec("python_multipart") is None:
        raise ExtractNotInstalledError("Files over HTTP need an extra: pip install 'corbits-memory[extract]'")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        # Its size is limited as a whole already.
        parser = MultiPartParser(
            _boundary_alone(request.headers.get("content-type", "")),
            stream(),
            max_files=_PARTS,
            max_fields=_PARTS,
            max_part_size=BODY_BYTES,
        )
        return await parser.parse()
    except (MultiPartException, UnicodeError, LookupError):
        raise InvalidInputError(
            f"{NOT_A_FORM}; this one is damaged, or has more than {_PARTS} parts"
        ) from None


def _boundary_alone(content_type: str) -> Headers:
    """The header without a charset: fields are UTF-8, and a codec that a caller names may take for ever."""
    from python_multipart.multipart import parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"").decode("latin-1")
    if not _BOUNDARY.fullmatch(boundary):
        raise MultiPartException("no boundary")
    return Headers({"content-type": f'multipart/form-data; boundary="{boundary}"'})


async def _value(name: str, part: UploadFile | str) -> Any:
    if name != _FILE:
        if isinstance(part, UploadFile):
            raise InvalidInputError(f"{name} must be a field, without a file name")
        return _json(name, part) if name in _AS_JSON else part
    if isinstance(part, str):
        return part
    return File(data=await part.read(), mime_type=part.content_type, filename=part.filename or None)


def _json(name: str, text: str) -> Any:
    try:
        return parse_json(text.encode("utf-8", "surrogatepass"))
    except InvalidInputError as error:
        problem = {"field": name, "problem": error.message.replace("the body", "the field", 1)}
        raise InvalidInputError(f"{name}: {problem['problem']}", details=[problem]) from None
