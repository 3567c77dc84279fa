"""Starts, asks and ends one worker process. One thread asks; any may end it."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.foreign_text import valid_text
from memoryd_server.providers import worker

LOADING_SECONDS = 120.0
ANSWER_SECONDS = 600.0
_ENDING_SECONDS = 2.0
_MOST_ERROR_BYTES = 65_536


class WorkerEnded(Exception):
    """The process ended, or was ended because it did not answer; the message says how."""


class ModelRefused(Exception):
    """The model cannot be loaded; the message says why."""


class TextRefused(Exception):
    """The model cannot embed this text; the message says why."""


@dataclass(frozen=True, slots=True)
class WorkerVector:
    """A vector as float32 of this machine, unchecked, and the tokens read."""

    vector: bytes
    tokens: int


def command(path: Path, window: int, threads: int | None) -> list[str]:
    """The command of a worker for a model that reads `window` tokens. `threads` None means half the processors.

    llama.cpp's threads spin while they wait for each other. With as many as there are processors, anything else that
    runs makes them wait: on two busy ones two threads took 114 ms for a short question, one took 12 ms.
    """
    # -P: neither this folder nor the current one may shadow a library.
    return [
        *(sys.executable, "-P", worker.__file__),
        *(str(path), str(window), str(threads or max(1, _processors() // 2))),
    ]


def _processors() -> int:
    """Those that this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerProcess:
    """A worker, started at once. `load` waits until it is ready."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        # A session of its own: Ctrl-C at the terminal is for the daemon, which then ends its workers.
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and script
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )

    def load(self) -> None:
        """Waits until the model is loaded.

        Raises:
            ModelRefused: it cannot be.
            WorkerEnded: the process ended meanwhile.
        """
        header, _ = self._read(LOADING_SECONDS)
        if "error" in header:
            raise ModelRefused(valid_text(header["error"]))

    def embed(self, text: str) -> WorkerVector:
        """The vector of a text.

        Raises:
            TextRefused: the model has none for it.
            WorkerEnded: the process ended meanwhile.
        """
        assert self._process.stdin is not None  # noqa: S101 -- a pipe was asked for
        try:
            worker.write_frame(self._process.stdin, {"text": text})
        except (OSError, ValueError):
            raise self._ended() from None
        header, vector = self._read(ANSWER_SECONDS)
        if "error" in header:
            raise TextRefused(valid_text(header["error"]))
        return WorkerVector(vector, header["tokens"])

    def _read(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdout is not None  # noqa: S101 -- a pipe was asked for
        poller = select.poll()
        try:
            poller.register(self._process.stdout, select.POLLIN)
            if not poller.poll(seconds * 1000):
                self.kill()
                raise WorkerEnded(f"it gave no answer for {seconds:g} s and was ended")
            frame = worker.read_frame(self._process.stdout)
        except (OSError, ValueError):
            frame = None
        if frame is None:
            raise self._ended()
        return frame

    def _ended(self) -> WorkerEnded:
        self.kill()
        code = self._process.wait()
        how = f"with {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return WorkerEnded(f"it ended {how}{self._assertion()}")

    def _assertion(self) -> str:
        """What llama.cpp said as it gave up, if it did."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read(_MOST_ERROR_BYTES).decode("utf-8", "replace").splitlines()
            return next((f": {line.strip()[-200:]}" for line in lines if "GGML_ASSERT" in line), "")
        return ""

    def kill(self) -> None:
        """Ends the process at once, from any thread; whoever waits for an answer gets `WorkerEnded`."""
        self._process.kill()

    def close(self) -> None:
        """Lets the process end, ends it if it does not, and frees what it held. For the thread that asks."""
        assert self._process.stdin is not None  # noqa: S101 -- a pipe was asked for
        assert self._process.stdout is not None  # noqa: S101 -- a pipe was asked for
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
