"""Every input of the plane is checked here, once, whichever door it came through."""

from corbits_memory.validation.documents import LANGUAGE, check_batch, check_file, check_share, new_document
from corbits_memory.validation.feeds import dead_letter_page, feed_query, new_subscription, replayed_seqs
from corbits_memory.validation.idempotency import IDEMPOTENCY_KEY, once_of
from corbits_memory.validation.inputs import AddInput, Content, File, SearchInput
from corbits_memory.validation.problems import Problems
from corbits_memory.validation.queries import (
    CURSOR_MAX,
    check_caller,
    check_forget,
    check_identifier,
    check_page,
    check_retention_class,
    context_tokens,
    search_query,
    timeline_query,
)

__all__ = [
    "CURSOR_MAX",
    "IDEMPOTENCY_KEY",
    "LANGUAGE",
    "AddInput",
    "Content",
    "File",
    "Problems",
    "SearchInput",
    "check_batch",
    "check_caller",
    "check_file",
    "check_forget",
    "check_identifier",
    "check_page",
    "check_retention_class",
    "check_share",
    "context_tokens",
    "dead_letter_page",
    "feed_query",
    "new_document",
    "new_subscription",
    "once_of",
    "replayed_seqs",
    "search_query",
    "timeline_query",
]
