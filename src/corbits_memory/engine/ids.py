"""New ids: time-ordered, so that "then by id" means "then by age"."""

import uuid_utils

from corbits_memory.core.ids import encode_number


def new_id(prefix: str) -> str:
    """``<prefix>_<22 base62 digits>`` of a UUIDv7 that never goes back within this process."""
    return encode_number(prefix, uuid_utils.uuid7().int)
