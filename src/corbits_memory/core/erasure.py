"""What stands in the place of an erased document's reference, and for how long what may expire is kept."""

import hashlib
from datetime import timedelta

ERASED = "erased:"
"""Begins what replaces an erased text in a column that may not be empty. No caller's reference may begin so."""
ERASED_KIND = "erased"
EPHEMERAL_AGE = timedelta(days=7)
"""An ephemeral version without ``valid_until`` is swept this long after it came in."""
SOURCE_ONLY_AGE = timedelta(days=30)
"""A source_only version without ``valid_until`` is swept this long after its source was last seen."""


def erased_reference(tenant_id: str, adapter: str, external_ref: str) -> str:
    """``erased:`` and a SHA-256: not readable, but found again when the same reference is added anew."""
    key = "\x1f".join((tenant_id, adapter, external_ref))
    return ERASED + hashlib.sha256(key.encode()).hexdigest()
