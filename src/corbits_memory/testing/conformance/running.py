"""How the tests of this package run: each in a loop of its own, on what the author's ``factory`` makes."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import pytest

from corbits_memory.ports import OpenableStore

Test = Callable[[Any, Any], Awaitable[None]]


class Conformance:
    """Tests of one port. A subclass makes the thing under test:

    >>> class TestMyStore(DocumentStoreConformance):
    ...     @pytest.fixture
    ...     def factory(self):
    ...         return lambda: MyStore("http://127.0.0.1:9000")

    The factory may be async. What it makes is opened and closed if it has ``open`` and ``close``, once a test; tests
    have tenants of their own, so everything may lie in one place.
    """

    exceptions: ClassVar[Mapping[str, str]] = {}
    """What is known not to hold: the name of a test, and why. A test that passes nevertheless fails."""

    @pytest.fixture
    def factory(self) -> Callable[[], Any]:
        """What makes the thing under test."""
        pytest.fail("override the fixture `factory`: what makes the thing under test, without arguments")

    def test_each_exception_names_a_test(self) -> None:
        assert [name for name in self.exceptions if not hasattr(self, name)] == []


def conforms(test: Test) -> Callable[[Any, Callable[[], Any]], None]:
    """An async test as one that needs no plugin. Its argument is what the factory made."""

    def run(self: Conformance, factory: Callable[[], Any]) -> None:
        reason = self.exceptions.get(test.__name__)
        if reason is None:
            asyncio.run(_run(self, test, factory))
            return
        try:
            asyncio.run(_run(self, test, factory))
        except Exception:  # noqa: BLE001 - however it fails, it was said to
            pytest.xfail(reason)
        pytest.fail(f"this holds, so it is no exception any more: {reason}")

    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    run.__module__ = test.__module__
    return run


async def _run(suite: Conformance, test: Test, factory: Callable[[], Any]) -> None:
    made = factory()
    subject = await made if inspect.isawaitable(made) else made
    if isinstance(subject, OpenableStore):
        await subject.open()
    try:
        await test(suite, subject)
    finally:
        close = getattr(subject, "close", None)
        if close is not None:
            await awaited(close())


async def awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def able(subject: object, port: Any) -> Any:
    """The subject, if it can do what this protocol tells; the test is skipped for another."""
    if not isinstance(subject, port):
        pytest.skip(f"{type(subject).__name__} is no {port.__name__}")
    return subject
