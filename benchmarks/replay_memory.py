"""A process that loads a corpus, or replays it and says how much memory it took at most. Used by ``replay``."""

import asyncio
import resource
import subprocess
import sys
from contextlib import AsyncExitStack

from benchmarks import replay
from benchmarks.datasets import load_conversations


def peak(url: str, captures: int) -> float:
    """Megabytes resident at most in a worker of its own that replays so many captures."""
    for word in ("load", "work"):
        command = [sys.executable, "-m", "benchmarks.replay_memory", word, url, str(captures)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


async def _load(url: str, captures: int) -> None:
    documents = [d for data in load_conversations(1) for d in data.documents]
    async with AsyncExitStack() as stack:
        store = await replay.open_store(stack, url, replay.RemoteModel())
        await replay.add_all(store, replay.many(documents, captures))


async def _work(url: str) -> float:
    async with AsyncExitStack() as stack:
        await replay.run_to_its_end([await replay.open_store(stack, url, replay.RemoteModel())])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if sys.argv[1] == "load":
        asyncio.run(_load(sys.argv[2], int(sys.argv[3])))
    else:
        print(asyncio.run(_work(sys.argv[2])))
