"""Prometheus metrics of one host. Labels name routes, never tenants, people or texts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
UNMATCHED = "unmatched"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """A registry of its own, so that two hosts in one process don't mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter(
            "corbits_memory_http_requests", "Requests answered.", labels, registry=self._registry
        )
        self._seconds = Histogram(
            "corbits_memory_http_request_seconds",
            "Time until a request was answered.",
            labels,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._pending = Gauge(
            "corbits_memory_pending_vectors",
            "Chunks that wait for a vector, all tenants together.",
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def observe(self, *, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route, str(status)).observe(seconds)

    def set_pending(self, chunks: int) -> None:
        self._pending.set(chunks)

    def render(self) -> bytes:
        return generate_latest(self._registry)
