"""Every input of the plane is checked here, once, whichever door it came through."""

from corbits_memory.validation.documents import LANGUAGE, check_batch, check_file, check_share, new_document
from corbits_memory.validation.inputs import AddInput, Content, File, SearchInput
from corbits_memory.validation.problems import Problems
from corbits_memory.validation.queries import (
    check_caller,
    check_forget,
    check_identifier,
    check_list,
    check_retention_class,
    search_query,
)

__all__ = [
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
    "check_list",
    "check_retention_class",
    "check_share",
    "new_document",
    "search_query",
]
