"""How long connections waited for locks, from what Postgres writes into its log about it."""

import re
from collections import defaultdict
from pathlib import Path

LEAST_MS = 1
LOG_WAITS = {"log_lock_waits": "on", "deadlock_timeout": f"{LEAST_MS}ms", "log_line_prefix": "%u "}
"""Settings under which a server tells each wait of a millisecond or more, and whose it was."""

_WAIT = re.compile(rb"^(\S+) LOG:  process \d+ acquired \w+ on .* after (\d+\.\d+) ms$", re.MULTILINE)


class LockWaits:
    """Reads the log of a server that was started with :data:`LOG_WAITS`, from where it ends now."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._place = log.stat().st_size

    def read(self) -> dict[str, list[float]]:
        """Milliseconds of each wait that ended since the last reading, by login."""
        with self._log.open("rb") as log:
            log.seek(self._place)
            text = log.read()
        # A line that is being written is left to the next reading.
        text = text[: text.rfind(b"\n") + 1]
        self._place += len(text)
        waits = defaultdict(list)
        for login, milliseconds in _WAIT.findall(text):
            waits[login.decode()].append(float(milliseconds))
        return waits
