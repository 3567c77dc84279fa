"""Handle of one worker process: start, requests, end. One thread sends requests; any thread may kill the process."""

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
from typing import Any, Literal

from memoryd_server.foreign_text import valid_text
from memoryd_server.providers import worker

LOADING_SECONDS = 120.0
ANSWER_SECONDS = 600.0
SCORE_SECONDS = 60.0
_ENDING_SECONDS = 2.0
_MAX_ERROR_BYTES = 65_536


class WorkerEnded(Exception):
    """The process ended, or was killed because it did not answer; the message says how."""


class ModelRefused(Exception):
    """The model cannot be loaded; the message says why."""


class TextRefused(Exception):
    """The model cannot process this text; the message says why."""


@dataclass(frozen=True, slots=True)
class WorkerVector:
    """A vector as float32 in native byte order, unchecked, and the number of tokens read."""

    vector: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class WorkerScore:
    """A score, unchecked, and the number of tokens read."""

    score: float
    tokens: int


def command(task: Literal["embed", "rank"], path: Path, window: int, threads: int | None) -> list[str]:
    """Return the command of a worker for a model with a window in tokens. `threads` None means half the processors.

    llama.cpp's threads spin while they wait for each other. With as many threads as processors, any other load delays
    them: on two busy processors, a short query took 114 ms with two threads and 12 ms with one.
    """
    # -P: neither this folder nor the current one may shadow a library.
    return [
        *(sys.executable, "-P", worker.__file__, task),
        *(str(path), str(window), str(threads or max(1, _processors() // 2))),
    ]


def _processors() -> int:
    """Return the number of processors available to this process; of the machine if the system does not report it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerProcess:
    """A worker process, started on construction. `load` waits until it is ready."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the process
        # A separate session: Ctrl-C at the terminal must reach only the daemon, which then ends its workers.
        self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and script
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )

    def load(self) -> None:
        """Wait until the model is loaded.

        Raises:
            ModelRefused: the model cannot be loaded.
            WorkerEnded: the process ended first.
        """
        header, _ = self._read(LOADING_SECONDS)
        if "error" in header:
            raise ModelRefused(valid_text(header["error"]))

    def embed(self, text: str) -> WorkerVector:
        """Return the vector of a text.

        Raises:
            TextRefused: the model cannot embed the text.
            WorkerEnded: the process ended first.
        """
        header, vector = self._ask({"text": text}, ANSWER_SECONDS)
        return WorkerVector(vector, header["tokens"])

    def score(self, query: str, passage: str) -> WorkerScore:
        """Return the score of a passage for a query.

        Raises:
            TextRefused: the model cannot score the texts.
            WorkerEnded: the process ended first.
        """
        header, _ = self._ask({"query": query, "passage": passage}, SCORE_SECONDS)
        return WorkerScore(header["score"], header["tokens"])

    def _ask(self, request: dict[str, str], seconds: float) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        try:
            worker.write_frame(self._process.stdin, request)
        except (OSError, ValueError):
            raise self._ended() from None
        header, body = self._read(seconds)
        if "error" in header:
            raise TextRefused(valid_text(header["error"]))
        return header, body

    def _read(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdout is not None  # noqa: S101 -- it is a pipe
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
        """Return the failed assertion that llama.cpp printed; empty if there is none."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read(_MAX_ERROR_BYTES).decode("utf-8", "replace").splitlines()
            return next((f": {line.strip()[-200:]}" for line in lines if "GGML_ASSERT" in line), "")
        return ""

    def kill(self) -> None:
        """Kill the process immediately, from any thread; a waiting caller gets `WorkerEnded`."""
        self._process.kill()

    def close(self) -> None:
        """End the process, by force if necessary, and free its resources. For the thread that sends requests."""
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        assert self._process.stdout is not None  # noqa: S101 -- it is a pipe
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
