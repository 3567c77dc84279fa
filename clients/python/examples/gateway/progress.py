"""A progress bar that is drawn in place on a terminal, and line by line otherwise."""

import shutil
import sys
from types import TracebackType
from typing import Self

_WIDTH = 30


class Bar:
    """A progress bar. Use it in a `with` block, which ends its line."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._in_place = sys.stdout.isatty()
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._in_place and self._last:
            print()

    def show(self, share: float, text: str) -> None:
        """Draw the bar at a share of 0 to 1, followed by `text`."""
        filled = round(_WIDTH * min(max(share, 0.0), 1.0))
        line = f"{self._title}  [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}  {text}"
        line = line[: shutil.get_terminal_size().columns - 1] if self._in_place else line
        if line == self._last:
            return
        self._last = line
        print(f"\r\x1b[K{line}" if self._in_place else line, end="" if self._in_place else "\n", flush=True)

    def note(self, text: str) -> None:
        """Print a text on a separate line."""
        print(f"\r\x1b[K{text}" if self._in_place else text, flush=True)
        self._last = ""
