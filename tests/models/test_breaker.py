import asyncio

import pytest

from corbits_memory.config import RerankConfig
from corbits_memory.errors import (
    EmbedError,
    EmbedHttpError,
    EmbedTimeoutError,
    RerankError,
    RerankHttpError,
    RerankTimeoutError,
)
from corbits_memory.models.breaker import BreakerOpenError, CircuitBreaker, is_outage
from corbits_memory.models.guarded import GuardedEmbedder, GuardedReranker
from corbits_memory.models.rerank import TeiReranker
from corbits_memory.ports import Embedder, Reranker
from tests.models.conftest import Answer, ModelServer
from tests.models.embedding import client, embed


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Service:
    """Fails as often as told, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise EmbedTimeoutError
        return "answer"


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def call(breaker: CircuitBreaker, service: Service) -> str:
    try:
        return await breaker.call(service, is_outage=is_outage)
    except BreakerOpenError as refused:
        return f"refused {refused.seconds:.0f}"
    except EmbedTimeoutError:
        return "failed"


async def test_it_opens_at_the_limit_and_then_calls_nobody(clock: Clock) -> None:
    breaker, service = CircuitBreaker(failures=3, cool_down=10, clock=clock), Service(99)
    assert [await call(breaker, service) for _ in range(2)] == ["failed"] * 2
    assert await call(breaker, service) == "failed"
    clock.now += 4
    assert [await call(breaker, service) for _ in range(50)] == ["refused 6"] * 50
    assert service.calls == 3


async def test_a_success_in_between_starts_the_count_anew(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=2, cool_down=10, clock=clock)
    for _ in range(5):
        assert await call(breaker, Service(1)) == "failed"
        assert await call(breaker, Service(0)) == "answer"


@pytest.mark.parametrize(("later", "calls"), [(9.9, 3), (10.0, 4)])
async def test_after_the_cool_down_a_call_goes_through(clock: Clock, later: float, calls: int) -> None:
    breaker, service = CircuitBreaker(failures=3, cool_down=10, clock=clock), Service(3)
    for _ in range(3):
        await call(breaker, service)
    clock.now += later
    await call(breaker, service)
    assert service.calls == calls
    assert breaker.is_open == (calls == 3)


async def test_failed_probes_double_the_rest_up_to_eightfold(clock: Clock) -> None:
    breaker, service = CircuitBreaker(failures=1, cool_down=10, clock=clock), Service(99)
    rests = []
    await call(breaker, service)
    for _ in range(6):
        refused = await call(breaker, service)
        rests.append(int(refused.split()[1]))
        clock.now += rests[-1]
        assert await call(breaker, service) == "failed"
    assert rests == [10, 20, 40, 80, 80, 80]


async def test_while_one_call_probes_the_others_are_refused(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=1, cool_down=10, clock=clock)
    await call(breaker, Service(1))
    clock.now += 10
    gate = asyncio.Event()

    async def slow() -> bool:
        return await gate.wait()

    probe = asyncio.create_task(breaker.call(slow, is_outage=is_outage))
    await asyncio.sleep(0)
    assert await call(breaker, Service(0)) == "refused 0"
    gate.set()
    assert await probe
    assert await call(breaker, Service(0)) == "answer"


async def test_a_probe_that_is_cancelled_lets_the_next_one_probe(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=1, cool_down=10, clock=clock)
    await call(breaker, Service(1))
    clock.now += 10
    probe = asyncio.create_task(breaker.call(asyncio.Event().wait, is_outage=is_outage))
    await asyncio.sleep(0)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert await call(breaker, Service(0)) == "answer"


@pytest.mark.parametrize(("waited", "opens"), [(0.9, False), (1.0, True)])
async def test_a_call_given_up_after_a_while_counts(clock: Clock, waited: float, opens: bool) -> None:
    breaker = CircuitBreaker(failures=1, cool_down=10, given_up=1.0, clock=clock)
    waiting = asyncio.create_task(breaker.call(asyncio.Event().wait, is_outage=is_outage))
    await asyncio.sleep(0)
    clock.now += waited
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert breaker.is_open is opens


async def test_many_failures_at_once_rest_as_long_as_one(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=2, cool_down=10, clock=clock)
    gate = asyncio.Event()

    async def fail() -> None:
        await gate.wait()
        raise EmbedTimeoutError

    calls = [asyncio.create_task(breaker.call(fail, is_outage=is_outage)) for _ in range(20)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls, return_exceptions=True)
    assert await call(breaker, Service(0)) == "refused 10"


async def test_an_error_that_shows_life_closes_it(clock: Clock) -> None:
    breaker = CircuitBreaker(failures=1, cool_down=10, clock=clock)
    await call(breaker, Service(1))
    clock.now += 10

    async def refuse() -> None:
        raise EmbedHttpError("no", http_status=400)

    with pytest.raises(EmbedHttpError):
        await breaker.call(refuse, is_outage=is_outage)
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (EmbedTimeoutError(), True),
        (RerankTimeoutError(), True),
        (EmbedHttpError("x"), True),
        (EmbedHttpError("x", http_status=429), True),
        (EmbedHttpError("x", http_status=500), True),
        (RerankHttpError("x", http_status=503), True),
        (EmbedHttpError("x", http_status=499), False),
        (EmbedHttpError("x", http_status=200), False),
        (RerankHttpError("x", http_status=400), False),
        (EmbedError("x"), False),
        (RerankError("x"), False),
        (OSError(), True),
    ],
)
def test_what_is_an_outage(error: Exception, outage: bool) -> None:
    assert is_outage(error) is outage


async def test_a_dead_embedding_endpoint_costs_following_queries_nothing(server: ModelServer) -> None:
    server.script(Answer({}, status=500, headers={"retry-after": "60"}))
    inner = client(server.url)
    embedder = GuardedEmbedder(inner)
    assert isinstance(embedder, Embedder)
    for _ in range(3):
        with pytest.raises(EmbedHttpError):
            await embedder.embed(["q"], purpose="query")
    asked = len(server.requests)
    with pytest.raises(EmbedError, match="left alone for another 30 s") as raised:
        await embedder.embed(["q"], purpose="query")
    assert raised.value.details == {"retry_after_seconds": pytest.approx(30, abs=1)}
    assert len(server.requests) == asked
    await embedder.aclose()


async def test_failing_passages_stop_no_query(server: ModelServer) -> None:
    server.script(*[Answer({}, status=500, headers={"retry-after": "60"})] * 3, embed)
    embedder = GuardedEmbedder(client(server.url))
    for _ in range(3):
        with pytest.raises(EmbedHttpError):
            await embedder.embed(["p"], purpose="passage")
    with pytest.raises(EmbedError, match="left alone"):
        await embedder.dims()
    assert len(await embedder.embed(["q"], purpose="query")) == 1
    assert await embedder.embed([], purpose="passage") == []
    await embedder.aclose()


async def test_a_dead_reranker_costs_following_calls_nothing(nobody: str) -> None:
    reranker = GuardedReranker(
        TeiReranker(RerankConfig(base_url=nobody, timeout_ms=10_000)),
        breaker=CircuitBreaker(failures=1),
    )
    assert isinstance(reranker, Reranker)
    with pytest.raises(RerankHttpError):
        await reranker.rerank("q", ["d"])
    with pytest.raises(RerankError, match="left alone"):
        await reranker.rerank("q", ["d"])
    assert await reranker.rerank("q", []) == []
    await reranker.aclose()
