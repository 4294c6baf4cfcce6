"""Whose rows are too many to look at one by one: known for a while, so that not every search counts them."""

import hashlib
import time
from collections.abc import Callable

SECONDS = 60.0
"""What holds fewer rows by then is searched by the indexes until it is counted again: as right, and no slower."""
REMEMBERED = 10_000


class CrowdedScopes:
    """Scopes (what a caller may see, and by which filters) that held more than the limit when last counted, with the
    rows of their tenant.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[bytes, tuple[float, int]] = {}

    def rows(self, tenant_id: str, scope: str) -> int:
        """0 where that isn't known."""
        until, rows = self._known.get(_key(tenant_id, scope), (0.0, 0))
        return rows if until > self._clock() else 0

    def note(self, tenant_id: str, scope: str, rows: int) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[_key(tenant_id, scope)] = (self._clock() + SECONDS, rows)


def _key(tenant_id: str, scope: str) -> bytes:
    # Scopes may name thousands of documents.
    return hashlib.blake2b(f"{tenant_id}\0{scope}".encode(), digest_size=16).digest()
