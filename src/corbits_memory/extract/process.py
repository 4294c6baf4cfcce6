"""Starts the process that parses one file, and ends it in time."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any, cast

from corbits_memory import errors
from corbits_memory.errors import FileTooLargeError, FileTooSlowError, MemoryError, UnreadableFileError
from corbits_memory.extract.bounds import Bounds
from corbits_memory.extract.kinds import Kind
from corbits_memory.ports import ExtractedText

_KEPT = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "HOME", "LANG", "LD_LIBRARY_PATH")
"""What a parser gets of the environment: a Python, and none of the host's secrets."""
_BYTES_A_CHARACTER = 6
"""In JSON, at most."""
_ANSWERS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MemoryError) and "code" in vars(kind)
}


class Reading:
    """One file's process. :meth:`run` blocks until it has ended; :meth:`stop` ends it from another thread."""

    def __init__(self, kind: Kind, data: bytes, bounds: Bounds, *, mime_type: str | None = None) -> None:
        self._data = data
        self._bounds = bounds
        self._command = [sys.executable, "-P", "-m", "corbits_memory.extract.child", kind]
        self._command += [json.dumps(asdict(bounds)), *([mime_type] if mime_type else [])]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: type[MemoryError] | None = None

    def run(self) -> ExtractedText:
        """Raises what the file is refused with."""
        with self._started() as process:
            clock = threading.Timer(self._bounds.seconds, self.stop, [FileTooSlowError])
            clock.daemon = True
            clock.start()
            try:
                answer = self._talk(process)
            finally:
                clock.cancel()
                # Nothing is left of it, whatever happened here.
                process.kill()
        if self._ended is not None:
            raise self._ended
        return _told(answer)

    def stop(self, why: type[MemoryError] = MemoryError) -> None:
        with self._lock:
            self._ended = self._ended or why
            if self._process is not None:
                self._process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended is not None:
                raise self._ended
            self._process = subprocess.Popen(  # noqa: S603 - our own module, in this Python
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A library's warning may quote the file.
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
            return self._process

    def _talk(self, process: subprocess.Popen[bytes]) -> bytes:
        given, told = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        # It reads everything before it answers, so neither waits for the other.
        with suppress(BrokenPipeError), given:
            given.write(self._data)
        most = self._bounds.text_chars * _BYTES_A_CHARACTER + 1_000_000
        answer = told.read(most + 1)
        if len(answer) > most:
            raise FileTooLargeError
        return answer


def _told(answer: bytes) -> ExtractedText:
    try:
        told: dict[str, Any] = json.loads(answer)
    except ValueError:
        # It crashed, or the system ended it: for want of memory, or time.
        raise UnreadableFileError("The file is broken, or too large to read: its reader crashed.") from None
    if "error" in told:
        raise _ANSWERS.get(told["error"], UnreadableFileError)(told["message"])
    return ExtractedText(text=told["text"], title=told["title"])


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _KEPT or name.upper().startswith("PYTHON")
    }
