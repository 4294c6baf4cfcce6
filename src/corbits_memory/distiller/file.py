"""A cursor in a file: for a distiller that has a server and no database. One machine, POSIX."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corbits_memory.distiller.cursors import FAILURES_READ, LEASE_SECONDS, Consumer, CursorState, Failure
from corbits_memory.errors import ConfigError

STATE_VERSION = 1


class FileCursors:
    """The lease is a lock on the file beside it, which the system takes back when its holder dies.

    Raises ``ConfigError`` for a file that can't be used or is another consumer's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def claim(
        self, consumer: Consumer, *, after: int = 0, impatient: bool = False
    ) -> "FileLease | None":
        lock = self._lock()
        if lock is None:
            return None
        try:
            state = self._read(consumer, after)
            if state["not_before"] > time.time() and not impatient:
                os.close(lock)
                return None
        except BaseException:
            with suppress(OSError):
                os.close(lock)
            raise
        return FileLease(state, lambda: self._write(state), lock)

    async def state(self, consumer: Consumer) -> CursorState:
        state = self._read(consumer, 0)
        lock = self._lock()
        if lock is not None:
            os.close(lock)
        return CursorState(
            position=state["position"],
            held=lock is None,
            waits=max(0.0, state["not_before"] - time.time()),
            dead=sum(one["dead"] for one in state["failures"].values()),
        )

    async def failures(
        self, consumer: Consumer, *, after: int = 0, limit: int = FAILURES_READ
    ) -> Sequence[Failure]:
        found = _by_number(self._read(consumer, 0)["failures"])
        dead = [(seq, one) for seq, one in found if one["dead"] and seq > after]
        return [
            Failure(
                seq=seq,
                version_id=one["version_id"],
                attempts=one["attempts"],
                reason=one["reason"],
                failed_at=datetime.fromtimestamp(one["failed_at"], UTC),
            )
            for seq, one in dead[:limit]
        ]

    async def retry(self, consumer: Consumer, seqs: Sequence[int] | None = None) -> int:
        def change(state: dict[str, Any]) -> int:
            asked = [
                one
                for seq, one in _by_number(state["failures"])
                if one["dead"] and (seqs is None or seq in seqs)
            ]
            for one in asked:
                one.update(dead=False, attempts=0)
            return len(asked)

        done = self._change(consumer, change)
        if done is None:
            raise ConfigError(f"A distiller works with {self._path}; end it first.")
        return done

    async def move(self, consumer: Consumer, position: int) -> bool:
        def change(state: dict[str, Any]) -> bool:
            state.update(position=position, not_before=0.0)
            return True

        return bool(self._change(consumer, change))

    def _change(self, consumer: Consumer, change: Callable[[dict[str, Any]], int]) -> int | None:
        lock = self._lock()
        if lock is None:
            return None
        try:
            state = self._read(consumer, 0)
            done = change(state)
            self._write(state)
            return done
        finally:
            os.close(lock)

    def _lock(self) -> int | None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Beside it: the file itself is replaced with each change.
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"The distiller can't use {self._path}: {error.strerror}.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _read(self, consumer: Consumer, after: int) -> dict[str, Any]:
        named = asdict(consumer)
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {
                "version": STATE_VERSION,
                "consumer": named,
                "position": after,
                "not_before": 0.0,
                "failures": {},
            }
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"The distiller can't read {self._path}.") from None
        try:
            state = json.loads(text)
            kept = state["consumer"]
            usable = state["version"] == STATE_VERSION and isinstance(state["position"], int)
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self._path} is no file of a distiller; name another one.") from None
        if not usable:
            raise ConfigError(f"{self._path} is of another release; name another one.")
        if kept != named:
            raise ConfigError(f"{self._path} is another distiller's; name another file.")
        return dict(state)

    def _write(self, state: Mapping[str, Any]) -> None:
        """In one step: whoever is killed here leaves the old state or the new one."""
        new = self._path.with_name(f"{self._path.name}.new")
        with open(new, "w", encoding="utf-8", opener=_private) as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


class FileLease:
    """A cursor's state, written down with each change."""

    seconds = LEASE_SECONDS
    """Of no account: the lock is held as long as this process lives."""

    def __init__(self, state: dict[str, Any], write: Callable[[], None], lock: int) -> None:
        self._state = state
        self._write = write
        self._lock = lock
        self.position: int = state["position"]
        waiting = [(seq, one) for seq, one in _by_number(state["failures"]) if not one["dead"]]
        self.attempts = {seq: int(one["attempts"]) for seq, one in waiting[:FAILURES_READ]}

    async def renew(self) -> None:
        """Nothing has to be done for it."""

    async def settle(self, seq: int) -> None:
        found = self._state["failures"].get(str(seq))
        if found is not None and not found["dead"]:
            del self._state["failures"][str(seq)]
        self._move(seq, wait=0.0)

    async def fail(
        self, *, seq: int, version_id: str, attempts: int, reason: str, dead: bool, wait_seconds: float
    ) -> None:
        self._state["failures"][str(seq)] = {
            "version_id": version_id,
            "attempts": attempts,
            "reason": reason,
            "dead": dead,
            "failed_at": time.time(),
        }
        self._move(seq if dead else 0, wait=wait_seconds)

    async def wait(self, seconds: float) -> None:
        self._move(0, wait=seconds)

    async def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _move(self, seq: int, *, wait: float) -> None:
        self._state.update(
            position=max(self._state["position"], seq), not_before=time.time() + wait if wait else 0.0
        )
        self._write()


def _by_number(failures: Mapping[str, Any]) -> list[tuple[int, Any]]:
    return sorted((int(seq), one) for seq, one in failures.items())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
