"""Limits of rates, in this process's memory: wrong tokens an address, requests a principal."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from starlette.exceptions import HTTPException
from starlette.requests import Request

KEYS_MAX = 10_000
"""Buckets that are kept; of more, those that were not touched for longest are forgotten."""

_SITE_BITS = 64
"""Of an IPv6 address: what one subscriber has, so that one of its many addresses is no new client."""


class TokenBuckets:
    """So many a minute for each key, all at once or spread. Holds at most ``keys_max`` keys."""

    def __init__(
        self,
        per_minute: int,
        *,
        keys_max: int = KEYS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60
        self._keys_max = keys_max
        self._clock = clock
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """What is in each bucket, and when that was looked at."""

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: Hashable) -> float:
        """Take one; 0.0 when there was one, else the seconds until there is, and nothing is taken."""
        level = self._level(key)
        if level < 1:
            return (1 - level) / self._per_second
        self._set(key, level - 1)
        return 0.0

    def give_back(self, key: Hashable) -> None:
        """Undo a :meth:`take`."""
        self._set(key, min(self._capacity, self._level(key) + 1))

    def _set(self, key: Hashable, level: float) -> None:
        self._levels[key] = (level, self._clock())
        self._levels.move_to_end(key)
        if len(self._levels) > self._keys_max:
            self._levels.popitem(last=False)

    def _level(self, key: Hashable) -> float:
        known = self._levels.get(key)
        if known is None:
            return self._capacity
        level, at = known
        return min(self._capacity, level + (self._clock() - at) * self._per_second)


def client_of(request: Request) -> str:
    """Who is on the other side: an IPv4 address, or the /64 of an IPv6 one.

    A proxy's word counts only where it is trusted; see ``trusted_proxies`` in the settings.
    """
    host = request.client.host if request.client is not None else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # What a trusted proxy passed on that is no address, or no address at all: one bucket for all of them.
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), _SITE_BITS), strict=False))
    return str(address)


def too_many(seconds: float) -> HTTPException:
    """The refusal, with the whole seconds to wait."""
    return HTTPException(429, headers={"retry-after": str(max(1, math.ceil(seconds)))})
