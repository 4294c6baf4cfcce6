"""How far a run is, or a comparison: a bar for whoever watches."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from corbits_memory.cli.output import on_terminal


class Bar:
    """Raw captures or queries, on a terminal; else nothing."""

    def __init__(self, title: str) -> None:
        self._progress: Any = None
        if on_terminal():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
            )
            self._task = self._progress.add_task(title, total=None, rate="", left="")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def show(self, progress: Mapping[str, Any]) -> None:
        """A run's own figures: all its workers count, and what was done before anybody watched."""
        if self._progress is not None:
            rate = progress["rate"]
            self._progress.update(
                self._task,
                completed=progress["done"],
                total=progress["total"],
                rate="" if rate is None else f"{rate:.1f}/s",
                left=_left(progress["seconds_left"]),
            )

    def asked(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)
            self._progress.update(self._task, left=_left(self._progress.tasks[self._task].time_remaining))

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f"{timedelta(seconds=round(seconds))} left"
