"""ReaderHandle: one reader process as the daemon sees it, from its start to its end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Self

from memoryd_server import __version__
from memoryd_server.errors import DeadlineTooShort
from memoryd_server.readers import (
    Answer,
    CloseIndex,
    FrameDecoder,
    FrameError,
    IndexClosed,
    IndexOptions,
    Message,
    OpenIndex,
    Ready,
    ReleaseMemory,
    ResetVectors,
    Search,
    SearchFailure,
    VectorChanges,
    encode,
)
from memoryd_server.search import SearchAnswer

# -P: neither this folder nor the current one may shadow a library. The descriptor of the socket is added.
READER_COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "memoryd_server.readers.process", __version__)

MOST_UNANSWERED = 2
"""The searches in one process: the one that it runs, and the one that follows without a pause."""

_MOST_UNSENT_BYTES = 8 * 2**20
"""A process that leaves more unread is killed. Searches and changes of vectors are much smaller."""

# A process that has lost its connection ends by itself, after the search that it runs.
_ENDING_SECONDS = 0.5
_KILL_SECONDS = 2.0
_NO_THREAD_SECONDS = 0.5
_MOST_ERROR_BYTES = 4_096

_LATE = DeadlineTooShort.__name__

Notice = VectorChanges | ResetVectors | ReleaseMemory
"""A message without an answer. It matters only to a process that has the index open."""


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """How long a reader process may take, in seconds.

    A process that works on one search for `stall_seconds` gets no further ones until it has answered. The daemon makes
    that search too after `late_seconds`, or as soon as less time is left than the process has taken. A process is
    killed if it has not answered `grace_seconds` after the deadline of a search, if it has not closed an index within
    `close_seconds`, or is not ready within `start_seconds`.
    """

    stall_seconds: float = 1.0
    late_seconds: float = 5.0
    grace_seconds: float = 5.0
    close_seconds: float = 3.0
    start_seconds: float = 60.0


@dataclass(slots=True, eq=False)
class PendingSearch:
    """A search that waits for the answer of a reader process.

    `answer` becomes None if the daemon has to run the search. `outcome` then says why. If the process is still at work,
    `late_answer` becomes its answer, or None if there is none.
    """

    options: IndexOptions
    message: Search
    answer: asyncio.Future[SearchAnswer | None]
    outcome: str = ""
    late_answer: asyncio.Future[SearchAnswer | None] | None = None

    def end(self, answer: SearchAnswer | None, outcome: str) -> None:
        """Set the answer, or the late one. Ignored if it is set, or if the caller has left."""
        if not self.answer.done():
            self.outcome = outcome
            self.answer.set_result(answer)
        elif self.late_answer is not None and not self.late_answer.done():
            self.late_answer.set_result(answer)

    def overtake(self) -> None:
        """Let the daemon run the search, too. Ignored if the answer is set, or if the caller has left."""
        if not self.answer.done():
            self.late_answer = self.answer.get_loop().create_future()
            self.outcome = "late"
            self.answer.set_result(None)


class ReaderHandle(asyncio.Protocol):
    """One process. For the event loop's thread, except `kill`.

    `on_change` is called when the process can take another search, and when it has lost its connection.
    `on_failure` receives each failed search.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        errors: IO[bytes],
        on_change: Callable[[], None],
        on_failure: Callable[[SearchFailure], None],
    ) -> None:
        self._process, self._errors = process, errors
        self._on_change, self._on_failure = on_change, on_failure
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._opened: dict[str, IndexOptions] = {}
        self._unanswered: dict[int, PendingSearch] = {}
        self._closings: dict[int, asyncio.Future[None]] = {}
        self._last_answer_time = 0.0
        self._has_started = False
        self.is_ready = False
        self.is_stalled = False
        """Whether the process has worked on one search for so long that it gets no further ones."""
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    @classmethod
    async def start(
        cls, command: Sequence[str], on_change: Callable[[], None], on_failure: Callable[[SearchFailure], None]
    ) -> Self:
        """Start a process and return its handle; `started` is set when it is ready or has ended.

        Raises:
            OSError, RuntimeError: the system cannot start it, or the thread that starts it.
        """
        process, errors, connection = await asyncio.to_thread(_start, command)
        handle = cls(process, errors, on_change, on_failure)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: handle, sock=connection)
        except BaseException:
            process.kill()
            connection.close()
            raise
        return handle

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_available(self) -> bool:
        """Whether the process is expected to answer searches soon."""
        return self.is_ready and not self.is_stalled

    @property
    def unanswered(self) -> int:
        """The number of searches that the process has not answered."""
        return len(self._unanswered)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implement `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- that of a stream
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Implement `asyncio.Protocol`."""
        try:
            for message in self._decoder.feed(data):
                self._receive(message)
        except FrameError:
            self.kill()

    def _receive(self, message: Message) -> None:
        if isinstance(message, Answer):
            self._end_search(message.number, message.answer, "answered")
        elif isinstance(message, SearchFailure):
            self._on_failure(message)
            self._end_search(message.number, None, "late" if message.kind == _LATE else "failed")
        elif isinstance(message, IndexClosed):
            closing = self._closings.pop(message.number, None)
            if closing is not None and not closing.done():
                closing.set_result(None)
        elif isinstance(message, Ready):
            self.is_ready = self._has_started = True
            self.started.set()
            self._on_change()

    def _end_search(self, number: int, answer: SearchAnswer | None, outcome: str) -> None:
        search = self._unanswered.pop(number, None)
        self._last_answer_time = asyncio.get_running_loop().time()
        self.is_stalled = False
        if search is not None:
            search.end(answer, outcome)
        self._on_change()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the protocol
        """Implement `asyncio.Protocol`."""
        self.is_ready = False
        self.started.set()
        self.ended.set()
        unanswered, self._unanswered = self._unanswered, {}
        for search in unanswered.values():
            search.end(None, "ended")
        self._on_change()

    def pass_on(self, search: PendingSearch) -> None:
        """Send a search, with the options of its index if the process does not have them."""
        key = search.message.key
        try:
            frames = encode(search.message)
            if self._opened.get(key) is not search.options:
                frames = encode(OpenIndex(key, search.options)) + frames
        except FrameError:
            search.end(None, "unavailable")
            return
        if not self._unanswered:
            self._last_answer_time = asyncio.get_running_loop().time()
        self._opened[key] = search.options
        self._unanswered[search.message.number] = search
        self._send(frames)

    def notify(self, notice: Notice) -> None:
        """Send a notice if the process has the index open."""
        if notice.key in self._opened:
            self._send(encode(notice))

    def close_index(self, number: int, key: str) -> "asyncio.Future[None] | None":
        """Ask the process to close an index; return a future that completes when it has, or has ended.

        None means that the process does not have the index open.
        """
        if self._opened.pop(key, None) is None:
            return None
        closing = self._closings[number] = asyncio.get_running_loop().create_future()
        self._send(encode(CloseIndex(number, key)))
        return closing

    def _send(self, frames: bytes) -> None:
        if self._transport is None or self.ended.is_set():
            return
        self._transport.write(frames)
        if self._transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            self.kill()

    def check(self, now: float, limits: ReaderLimits) -> None:
        """End the searches that wait too long or whose deadline has passed, and kill a process that does not answer.

        `now` is the time of the event loop.
        """
        searches = tuple(self._unanswered.values())
        if not searches:
            return
        seconds = now - self._last_answer_time
        self.is_stalled = self.is_stalled or seconds > limits.stall_seconds
        # The process runs the first one, and may answer before the daemon: the daemon also needs the time that it took.
        deadline = searches[0].message.query.deadline
        if self.is_stalled and seconds > min(limits.late_seconds, deadline - now):
            searches[0].overtake()
        late = searches[1:] if self.is_stalled else ()
        for search in (*late, *(each for each in searches if now > each.message.query.deadline)):
            search.end(None, "late")
        if now > deadline + limits.grace_seconds:
            self.kill()

    def kill(self) -> None:
        """Kill the process, from any thread. `connection_lost` is called when it has ended."""
        with suppress(OSError):
            self._process.kill()

    def disconnect(self) -> None:
        """Close the connection. The process then ends after its current search."""
        if self._transport is not None:
            self._transport.abort()

    async def end(self) -> str:
        """Disconnect, wait for the end of the process, and return how it ended. Must be called exactly once."""
        self.disconnect()
        while True:
            try:
                how = await asyncio.to_thread(self._wait)
                break
            except RuntimeError:
                # The system cannot start a thread at the moment. A killed process keeps nothing but its id.
                self.kill()
                await asyncio.sleep(_NO_THREAD_SECONDS)
        closings, self._closings = self._closings, {}
        for closing in closings.values():
            if not closing.done():
                closing.set_result(None)
        return how

    def _wait(self) -> str:
        try:
            code = self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            try:
                code = self._process.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                return "it did not exit after SIGKILL"
        with self._errors:
            how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
            if self._has_started:
                # An error may quote the text of a search.
                return how
            self._errors.seek(0)
            lines = self._errors.read(_MOST_ERROR_BYTES).decode("utf-8", "replace").strip().splitlines()
        return f"{how}: {lines[-1][-200:]}" if lines else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _file_for_errors() -> IO[bytes]:
    """Return a file without a name, which the caller closes."""
    if sys.platform == "linux":
        # In memory, because a container may have no folder that can be written except that of the state. A hardened
        # kernel may refuse such a file.
        with suppress(OSError):
            return os.fdopen(os.memfd_create("memoryd-reader-errors"), "w+b")
    return tempfile.TemporaryFile()


def _start(command: Sequence[str]) -> tuple["subprocess.Popen[bytes]", IO[bytes], socket.socket]:
    """Start a process; return it, its standard error, and the daemon's end of the socket pair. Blocks."""
    with ExitStack() as opened:
        errors = opened.enter_context(_file_for_errors())
        ours, theirs = (opened.enter_context(each) for each in socket.socketpair())
        process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
            [*command, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[theirs.fileno()],
            # A separate session: Ctrl-C at the terminal must reach only the daemon, which then ends its processes.
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        opened.pop_all()
    return process, errors, ours
