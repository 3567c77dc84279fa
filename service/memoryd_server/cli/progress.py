"""Progress on standard error: a bar at a terminal, and for downloads, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memoryd_server.cli.options import complain

if TYPE_CHECKING:
    from memoryd_server.cli.connection import Connection

_MB = 1e6
_LINE_PERCENT = 10


class ProgressBar:
    """A progress bar on standard error, or nothing if that is not a terminal."""

    def __init__(self, show: Callable[[str, str, int, int | None], None] | None = None) -> None:
        self._show = show

    def update(self, label: str, completed: int, total: int | None, unit: str = "") -> None:
        """Show the counts; a `total` of None is unknown. Another `label` begins another bar in the same place."""
        if self._show is not None:
            self._show(label, unit, completed, total)


@contextmanager
def progress_bar(*, transient: bool) -> Iterator[ProgressBar]:
    """Show a progress bar on standard error if it is a terminal. A `transient` bar is removed at the end."""
    if not sys.stderr.isatty():
        yield ProgressBar()
        return
    from rich.console import Console  # noqa: PLC0415 -- not needed for help
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=transient) as progress:
        task = progress.add_task("", total=None, unit="", visible=False)
        shown = ""

        def show(label: str, unit: str, completed: int, total: int | None) -> None:
            nonlocal shown
            if label != shown:
                # The rate of the one says nothing about the other.
                progress.reset(task, description=label, visible=True)
                shown = label
            progress.update(task, completed=completed, total=total, unit=unit)

        yield ProgressBar(show)


def download_models(connection: Connection, agent: str) -> None:
    """Download the models that an agent's vectors need, unless another process is the daemon; show the progress."""
    if connection.local is None:
        return
    with _download_progress() as show:
        connection.local.download_models(agent, show)


@contextmanager
def _download_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function of a model, the bytes downloaded and the bytes in total, which shows them."""
    if not sys.stderr.isatty():
        yield _DownloadLines().show
        return
    from rich.console import Console  # noqa: PLC0415 -- as above
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def show(model: str, done: int, total: int) -> None:
            if model not in tasks:
                tasks[model] = progress.add_task(f"downloading {model}", completed=done)
            progress.update(tasks[model], completed=done, total=total)

        yield show


class _DownloadLines:
    """Prints a line when a download begins, and after each tenth of it."""

    def __init__(self) -> None:
        self._printed: dict[str, int] = {}

    def show(self, model: str, done: int, total: int) -> None:
        """Print the progress if it is due."""
        percent = done * 100 // max(1, total)
        if percent >= self._printed.get(model, 0):
            complain(f"downloading {model}: {done / _MB:.0f} of {total / _MB:.0f} MB ({percent} %)")
            self._printed[model] = percent // _LINE_PERCENT * _LINE_PERCENT + _LINE_PERCENT
