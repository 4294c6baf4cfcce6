"""What the feed's routes take and answer."""

from pydantic import Field

from corbits_memory.core import limits
from corbits_memory.core.enums import CreatedByKind, FeedOp, LineageClass, Provenance, VersionStatus
from corbits_memory.feed_json import entry_json
from corbits_memory.ports import FeedPage
from corbits_memory.wire.responses import Response


class FeedEntryResponse(Response):
    """An upsert has every field but the texts; a retraction only the ids; a promotion neither."""

    feed_seq: int
    op: FeedOp
    version_id: str | None = None
    document_id: str | None = None
    kind: str | None = None
    title: str | None = None
    status: VersionStatus | None = None
    created_by_kind: CreatedByKind | None = None
    generator_agent_id: str | None = None
    provenance: Provenance | None = None
    source_class: LineageClass | None = None
    occurred_at: str | None = None
    created_at: str | None = None
    access_tags: list[str] | None = None
    text: str | None = Field(
        None, description=f"Only with include=text; at most {limits.FEED_TEXT_BYTES:,} bytes a page."
    )
    text_truncated: bool | None = Field(None, description="True where the text is longer than a page may be.")


class FeedResponse(Response):
    entries: list[FeedEntryResponse]
    next_cursor: int | None = Field(
        description="What to ask after next; null: nothing new, keep the old one."
    )
    has_more: bool = Field(
        description="Whether asking again at once is worth it, also when there is no entry."
    )


def feed_response(page: FeedPage) -> FeedResponse:
    return FeedResponse(
        entries=[FeedEntryResponse.model_validate(entry_json(entry)) for entry in page.entries],
        next_cursor=page.next_cursor,
        has_more=page.has_more,
    )
