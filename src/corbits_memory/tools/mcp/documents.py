"""Documents as resources: ``memory://document/{id}``."""

from urllib.parse import unquote

import mcp_types as types

from corbits_memory.client import MemoryClient
from corbits_memory.core.limits import CHUNK_PAGE_MAX
from corbits_memory.errors import NotFoundError
from corbits_memory.wire.documents import DocumentResponse

SCHEME = "memory://document/"
LISTED = 50
TEXT_CHARS = 256_000
"""Of one resource; a longer document is cut, and says so."""
MIME_TYPE = "text/markdown"

TEMPLATE = types.ResourceTemplate(
    uri_template=f"{SCHEME}{{id}}",
    name="document",
    title="A saved document",
    description="The current version of a document, by the documentId that tools answer with.",
    mime_type=MIME_TYPE,
)


async def recent_documents(client: MemoryClient) -> list[types.Resource]:
    """The newest documents; all others are reached by the template."""
    listed = await client.list(limit=LISTED)
    return [
        types.Resource(
            uri=f"{SCHEME}{event.document_id}",
            name=event.title,
            description=f"{event.kind}, {event.at[:10]}",
            mime_type=MIME_TYPE,
        )
        for event in listed.events
    ]


async def read_document(client: MemoryClient, uri: str) -> types.TextResourceContents:
    """Raises ``NotFoundError`` for a document that isn't there or can't be seen, and for any other URI."""
    if not uri.startswith(SCHEME):
        raise NotFoundError(f"resources are {SCHEME}{{id}}")
    document = await client.document(unquote(uri.removeprefix(SCHEME)))
    text, whole = await _text_of(client, document.current.version_id)
    end = "" if whole else "\n\n(cut here: the document is longer)"
    return types.TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=f"{_head(document)}\n\n{text}{end}")


async def _text_of(client: MemoryClient, version_id: str) -> tuple[str, bool]:
    """The text, and whether it is all of it."""
    parts: list[str] = []
    size, after = 0, None
    while True:
        page = await client.version(version_id, limit=CHUNK_PAGE_MAX, after=after)
        for chunk in page.text:
            parts.append(chunk.text)
            size += len(chunk.text)
            if size > TEXT_CHARS:
                return "\n".join(parts)[:TEXT_CHARS], False
        after = page.next_after
        if after is None:
            return "\n".join(parts), True


def _head(document: DocumentResponse) -> str:
    current = document.current
    about = {
        "kind": current.kind,
        "author": current.author,
        "occurred": current.occurred_at,
        "provenance": current.provenance,
        "version": f"{current.version} ({current.version_id})",
    }
    lines = [f"- {name}: {value}" for name, value in about.items() if value]
    return "\n".join([f"# {' '.join(current.title.split())}", *lines])
