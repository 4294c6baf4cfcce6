"""Files whose text has to be extracted, several at once."""

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import anyio

from corbits_memory.cli.imports.items import Found, Item, Refused, Unread
from corbits_memory.errors import MemoryError
from corbits_memory.extract import Bounds, FileTextExtractor
from corbits_memory.ports import TextExtractor
from corbits_memory.validation import Content, File, file_content

AT_ONCE = os.cpu_count() or 1
SECONDS = 300.0
"""For one file; here nobody waits at the other end of a connection."""


def make_extractor() -> FileTextExtractor:
    return FileTextExtractor(bounds=Bounds(seconds=SECONDS), processes=AT_ONCE)


async def read_content(path: Path, extractor: TextExtractor, *, title: str | None = None) -> Content:
    """A file's title and text. Raises ``OSError``, and what the extractor raises."""
    data = await anyio.Path(path).read_bytes()
    # A name that is no Unicode is spelt out.
    name = path.name.encode("utf-8", "backslashreplace").decode()
    read = await extractor.extract(data, mime_type=None, filename=name)
    return file_content(File(data=data, filename=name, title=title), read)


async def extract_all(found: Iterable[Found]) -> AsyncIterator[Found]:
    """The same in the same order, what was :class:`Unread` read or refused; as many at once as there are processors."""
    extractor = make_extractor()
    waiting: list[Unread] = []
    for each in found:
        if isinstance(each, Unread):
            waiting.append(each)
            if len(waiting) < AT_ONCE:
                continue
        for read in await _read_all(waiting, extractor):
            yield read
        waiting = []
        if not isinstance(each, Unread):
            yield each
    for read in await _read_all(waiting, extractor):
        yield read


async def _read_all(waiting: list[Unread], extractor: TextExtractor) -> list[Item | Refused]:
    answers: dict[int, Item | Refused] = {}

    async def read(place: int, file: Unread) -> None:
        answers[place] = await _read(file, extractor)

    async with anyio.create_task_group() as tasks:
        for place, file in enumerate(waiting):
            tasks.start_soon(read, place, file)
    return [answers[place] for place in range(len(waiting))]


async def _read(file: Unread, extractor: TextExtractor) -> Item | Refused:
    try:
        content = await read_content(file.path, extractor)
    except OSError as error:
        return Refused(file.origin, f"can't be read ({error.strerror})", file.size)
    except MemoryError as error:
        return Refused(file.origin, error.message, file.size)
    # What is packed may be small, and its text large.
    size = max(file.size, len(content.text.encode()))
    return Item(file.origin, {**file.body, "title": content.title, "text": content.text}, size)
