"""Where a citation opens."""

OPENABLE_ADAPTERS = frozenset({"artifact", "task", "workflow_run", "mail"})
"""Adapters whose references open in the host itself, as ``adapter:id``."""


def open_target(adapter: str, external_ref: str, document_id: str) -> tuple[str, str]:
    """(type, id) to open: the host's own thing behind a reference, else the memory's document."""
    kind, separator, rest = external_ref.partition(":")
    if adapter in OPENABLE_ADAPTERS and separator and kind == adapter:
        return adapter, rest
    return "memory", document_id
