"""Who follows an import: bars on a terminal, else only what failed."""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from corbits_memory.cli.output import clean, note, on_terminal

if TYPE_CHECKING:
    from rich.progress import TaskID


class QuietWatcher(AbstractContextManager["QuietWatcher"]):
    """Tells what failed, and nothing else."""

    def stored(self, size: int, documents: int) -> None:
        pass

    def refused(self, origin: str, problem: str) -> None:
        note(f"{clean(origin)}: {clean(problem)}")

    def embedding(self, done: int, total: int) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class BarWatcher(QuietWatcher):
    """Two bars: bytes of text stored, vectors made."""

    def __init__(self, total_bytes: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._documents = 0
        self._storing = self._progress.add_task(
            "Storing", total=None if total_bytes is None else max(total_bytes, 1), unit=""
        )
        self._embedding: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def stored(self, size: int, documents: int) -> None:
        self._documents += documents
        self._progress.update(self._storing, advance=size, unit=f"{self._documents:,} documents")

    def refused(self, origin: str, problem: str) -> None:
        self._progress.console.print(
            f"{clean(origin)}: {clean(problem)}", markup=False, highlight=False, soft_wrap=True
        )

    def embedding(self, done: int, total: int) -> None:
        if self._embedding is None:
            self._progress.update(self._storing, completed=self._progress.tasks[0].total)
            self._embedding = self._progress.add_task("Embedding", total=total, unit="")
        self._progress.update(
            self._embedding, completed=done, total=total, unit=f"{done:,}/{total:,} vectors"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def make_watcher(total_bytes: int | None) -> QuietWatcher:
    """``total_bytes`` None: nobody knows how much text there is."""
    return BarWatcher(total_bytes) if on_terminal() else QuietWatcher()
