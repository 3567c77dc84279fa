"""Asynchronous reading and writing of lines on standard input and output.

Threads read and write, because an event loop cannot wait for regular files. They are daemon threads, so that a read
that never returns does not keep the process from exiting.
"""

import asyncio
import os
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress

from memoryd_server.json_rpc import MOST_MESSAGE_BYTES, MalformedMessage, oversized_message

_READ_BYTES = 64 * 1024
_QUEUED_LINES = 2
_KEPT_BYTES = 512


class LineSplitter:
    """Splits a stream of bytes into lines. A line of more than `most_bytes` is not kept, and becomes an error."""

    def __init__(self, most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._line = bytearray()
        self._start = b""
        self._is_oversized = False

    def feed(self, chunk: bytes) -> Iterator[bytes | MalformedMessage]:
        """Yield the lines that end in `chunk`, without blank ones."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            yield from self.end()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > self._most_bytes and not self._is_oversized:
            self._is_oversized = True
            self._start = bytes(self._line[:_KEPT_BYTES])
        if self._is_oversized:
            del self._line[:-_KEPT_BYTES]

    def end(self) -> Iterator[bytes | MalformedMessage]:
        """Yield the last line, if it is not blank; the next one begins."""
        line, self._line = bytes(self._line).strip(), bytearray()
        if self._is_oversized:
            yield oversized_message(self._start, line)
        elif line:
            yield line
        self._is_oversized = False


class StandardInput:
    """The lines of standard input, from `start` on. Create it on the event loop's thread."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._lines: asyncio.Queue[bytes | MalformedMessage | None] = asyncio.Queue(_QUEUED_LINES)
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()

    def start(self) -> None:
        """Start to read."""
        for work in (self._read, self._watch):
            threading.Thread(target=work, name="stdin", daemon=True).start()

    async def line(self) -> bytes | MalformedMessage | None:
        """Return the next line; None at the end."""
        return await self._lines.get()

    async def closed(self) -> None:
        """Wait until the writer of standard input is gone. Lines that it wrote before may still be unread."""
        await self._closed.wait()

    def _read(self) -> None:
        splitter = LineSplitter()
        # The loop is closed when the command ends.
        with suppress(RuntimeError, CancelledError):
            with suppress(OSError):
                while chunk := self._read_chunk():
                    for line in splitter.feed(chunk):
                        self._put(line)
            self._loop.call_soon_threadsafe(self._closed.set)
            for line in splitter.end():
                self._put(line)
            self._put(None)

    def _read_chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                _wait_for(self._descriptor, select.POLLIN)

    def _put(self, line: bytes | MalformedMessage | None) -> None:
        put = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(put, self._loop).result()
        except (RuntimeError, CancelledError):
            put.close()
            raise

    def _watch(self) -> None:
        """Report a writer that is gone while the lines before the end wait to be read."""
        poll = select.poll()
        with suppress(OSError, RuntimeError):
            poll.register(self._descriptor, 0)
            poll.poll()
            self._loop.call_soon_threadsafe(self._closed.set)


class StandardOutput:
    """Writes lines to standard output."""

    def __init__(self, write: Callable[[int, memoryview], int] = os.write, descriptor: int = 1) -> None:
        self._write = write
        self._descriptor = descriptor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stdout")

    async def send(self, line: bytes) -> None:
        """Write one line; wait while it is not read.

        Raises:
            OSError: the reader is gone.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write_all, line + b"\n")

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._write(self._descriptor, left) :]
            except BlockingIOError:
                _wait_for(self._descriptor, select.POLLOUT)


def _wait_for(descriptor: int, event: int) -> None:
    """Wait until a descriptor is ready that another process has made non-blocking."""
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()
