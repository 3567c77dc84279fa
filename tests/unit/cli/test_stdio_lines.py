"""Lines of standard input and output."""

import asyncio
import json
import os
import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.cli.stdio_lines import LineSplitter, StandardInput, StandardOutput
from memoryd_server.json_rpc import MalformedMessage


def split(chunks, most_bytes=100):
    splitter = LineSplitter(most_bytes)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*lines, *splitter.end()]


@given(text=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300)))
def test_lines_do_not_depend_on_the_chunks_in_which_they_arrive(text, cuts):
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[start:end] for start, end in pairwise(places)]
    assert split(chunks, 10**6) == [line.strip() for line in text.split(b"\n") if line.strip()]


def test_a_line_that_is_too_long_is_an_error_and_not_kept():
    splitter, part = LineSplitter(1_000), b"x" * 64_000
    tracemalloc.start()
    for _ in range(100):
        assert list(splitter.feed(part)) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(part)
    error, line = splitter.feed(b',"id":5}\n{"a":1}\n')
    assert isinstance(error, MalformedMessage)
    assert json.loads(error.response)["id"] == 5
    assert line == b'{"a":1}'


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    # A thread may still use the reader: if it were closed, the thread could read from the pipe of the next test, which
    # would have the same number.
    with suppress(OSError):
        os.close(writer)


async def filled(writer):
    """Write lines of 4 KiB until the pipe is full, and return the bytes written."""
    written = 0
    with suppress(BlockingIOError):
        while True:
            written += os.write(writer, b"x" * 4_095 + b"\n")
            await asyncio.sleep(0)
    return written


async def test_lines_are_read_as_fast_as_they_are_used(pipe):
    reader, writer = pipe
    lines = StandardInput(reader)
    lines.start()
    os.set_blocking(writer, False)
    assert await filled(writer) < 2**20
    assert await lines.line() == b"x" * 4_095


async def test_a_writer_that_is_gone_is_noticed_before_its_lines_are_read(pipe):
    reader, writer = pipe
    os.write(writer, b"a\n" * 1_000)
    lines = StandardInput(reader)
    lines.start()
    waiting = asyncio.ensure_future(lines.closed())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    os.close(writer)
    await asyncio.wait_for(waiting, 30)
    assert [await lines.line() for _ in range(1_001)] == [b"a"] * 1_000 + [None]


async def test_a_file_is_read_to_its_end(tmp_path):
    (tmp_path / "in").write_bytes(b"a\nb")
    with (tmp_path / "in").open("rb") as file:
        lines = StandardInput(file.fileno())
        lines.start()
        assert [await lines.line() for _ in range(3)] == [b"a", b"b", None]
        await lines.closed()


async def test_output_waits_for_its_reader_also_on_a_descriptor_that_does_not_block(pipe):
    reader, writer = pipe
    os.set_blocking(writer, False)
    sending = asyncio.ensure_future(StandardOutput(descriptor=writer).send(b"y" * 2**20))
    await asyncio.sleep(0.05)
    assert not sending.done()
    received = bytearray()
    while len(received) <= 2**20:
        received += await asyncio.to_thread(os.read, reader, 65_536)
    await sending
    assert received == b"y" * 2**20 + b"\n"


async def test_a_reader_that_is_gone_is_an_error(pipe):
    reader, writer = pipe
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        await StandardOutput(descriptor=writer).send(b"y")
