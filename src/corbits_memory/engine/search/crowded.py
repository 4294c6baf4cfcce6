"""Whose rows are too many to look at one by one: known for a while, so that not every search counts them."""

import hashlib
import time
from collections.abc import Callable

SECONDS = 60.0
"""What holds fewer rows by then is searched by the indexes until it is counted again: as right, and no slower."""
REMEMBERED = 10_000


class CrowdedScopes:
    """Scopes (what a caller may see, and by which filters) that held more than the limit when last counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[bytes, float] = {}

    def holds(self, tenant_id: str, scope: str) -> bool:
        return self._until.get(_key(tenant_id, scope), 0.0) > self._clock()

    def note(self, tenant_id: str, scope: str) -> None:
        if len(self._until) >= REMEMBERED:
            self._until.clear()
        self._until[_key(tenant_id, scope)] = self._clock() + SECONDS


def _key(tenant_id: str, scope: str) -> bytes:
    # Scopes may name thousands of documents.
    return hashlib.blake2b(f"{tenant_id}\0{scope}".encode(), digest_size=16).digest()
