"""Every input of the plane is checked here, once, whichever door it came through."""

from corbits_memory.validation.documents import (
    LANGUAGE,
    check_batch,
    check_file,
    check_share,
    file_content,
    new_document,
)
from corbits_memory.validation.feeds import dead_letter_page, feed_query, new_subscription, replayed_seqs
from corbits_memory.validation.idempotency import IDEMPOTENCY_KEY, once_of
from corbits_memory.validation.inputs import AddInput, Content, File, SearchInput
from corbits_memory.validation.paging import SearchPages
from corbits_memory.validation.payloads import stored_document
from corbits_memory.validation.problems import Problems
from corbits_memory.validation.queries import (
    CURSOR_MAX,
    check_caller,
    check_forget,
    check_identifier,
    check_page,
    check_retention_class,
    context_tokens,
    lookup_query,
    search_query,
    timeline_query,
)
from corbits_memory.validation.transforms import (
    EMBED_API_KEY,
    RERANK_API_KEY,
    params_json,
    params_secrets,
    stored_transform_params,
    transform_name,
    transform_params,
    transform_scope,
)

__all__ = [
    "CURSOR_MAX",
    "EMBED_API_KEY",
    "IDEMPOTENCY_KEY",
    "LANGUAGE",
    "RERANK_API_KEY",
    "AddInput",
    "Content",
    "File",
    "Problems",
    "SearchInput",
    "SearchPages",
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
    "file_content",
    "lookup_query",
    "new_document",
    "new_subscription",
    "once_of",
    "params_json",
    "params_secrets",
    "replayed_seqs",
    "search_query",
    "stored_document",
    "stored_transform_params",
    "timeline_query",
    "transform_name",
    "transform_params",
    "transform_scope",
]
