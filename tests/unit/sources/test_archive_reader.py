"""Archives of OpenClaw's sessions: the active branch of a log, and the limits of what is read."""

import contextlib
import io
import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.model import FileStat
from memoryd_server.sources.archive_reader import MOST_ARCHIVE_EVENTS, ArchiveReader, ColdReader, ReadStopped
from memoryd_server.sources.compression import CompressedLines, DamagedArchive, zstd
from memoryd_server.sources.transcripts import START, ReadPosition

STAT = FileStat(10, 1, 1, 1, 1)
EMPTY_FRAME = zstd.compress(b"")
SKIPPED_FRAME = b"\x50\x2a\x4d\x18\x08\0\0\0ignored."


def open_archive(data, reader=ArchiveReader, **options):
    return reader(io.BytesIO(zstd.compress(data)), STAT, "s", **options)


def event(name, parent=None, text="A remark.", **more):
    message = {"role": "user", "content": text}
    return {"type": "message", "id": name, "parentId": parent, "message": message, **more}


def log(*events):
    return "".join(f"{json.dumps(each)}\n" for each in events).encode()


def cold(*events):
    lines = [{"kind": "event", "row": {"seq": number, "event_json": json.dumps(e)}} for number, e in enumerate(events)]
    return log({"kind": "header"}, *lines, {"kind": "fts", "row": {}})


def messages(reader):
    return [line.message.line for line in reader.lines(START) if line.message]


@contextlib.contextmanager
def memory_below(limit):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


COLD_LINE = b'{"kind":"event","row":{"seq":1,"event_json":"{}"}}\n'


@pytest.mark.parametrize(
    ("reader", "line", "wanted"),
    [
        (ArchiveReader, b"\n", "lines that are no events"),
        (ArchiveReader, b"[]\n", "lines that are no events"),
        (ColdReader, b'"event"\n', "lines that are no events"),
        (ColdReader, b'{"kind":"event"}\n', "lines that are no events"),
    ],
)
def test_a_bomb_of_lines_that_are_no_events_is_refused_within_little_memory(reader, line, wanted):
    stream = io.BytesIO(zstd.compress(line * ((64 << 20) // len(line))))
    with memory_below(16 << 20), pytest.raises(DamagedArchive, match=wanted):
        reader(stream, STAT, "s")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "line", "wanted"),
    [
        (ArchiveReader, b"{}\n", "500,000 events"),
        (ArchiveReader, b'{"id":"a"}\n', "500,000 events"),
        (ColdReader, COLD_LINE, "500,000 events"),
        (ColdReader, b"\n", "2,500,000 lines"),
    ],
)
def test_a_bomb_of_lines_or_events_is_refused(reader, line, wanted):
    with pytest.raises(DamagedArchive, match=wanted):
        open_archive(line * (6 * MOST_ARCHIVE_EVENTS), reader)


def test_an_event_with_too_many_lists_is_not_parsed():
    bomb = b'{"id":"b","parentId":"a","x":[' + b"[]," * (2 << 20) + b"[]]}\n"
    stream = io.BytesIO(zstd.compress(log(event("a")) + bomb + log(event("c", "a"))))
    with memory_below(64 << 20), ArchiveReader(stream, STAT, "s") as reader:
        assert messages(reader) == [1, 3]


def test_the_longest_ids_take_no_more_memory_than_short_ones():
    ids = ["x" * 20_000 + str(number) for number in range(1000)]
    data = log(*(event(name, parent) for name, parent in zip(ids, [None, *ids], strict=False)))
    stream = io.BytesIO(zstd.compress(data))
    assert len(data) > 40_000_000
    with memory_below(12 << 20):
        ArchiveReader(stream, STAT, "s")
    with ArchiveReader(stream, STAT, "s") as reader:
        assert len(messages(reader)) == 1000


@pytest.mark.parametrize(("reader", "line"), [(ArchiveReader, b"{}\n"), (ColdReader, COLD_LINE)])
def test_reading_ends_when_it_has_to_stop(reader, line):
    data = line * 1000
    calls = itertools.count()
    with pytest.raises(ReadStopped):
        open_archive(data, reader, should_stop=lambda: next(calls) >= 3)
    assert next(calls) == 4
    calls = itertools.count()
    with open_archive(data, reader, should_stop=lambda: next(calls) >= 20) as opened, pytest.raises(ReadStopped):
        list(opened.lines(START))


@pytest.mark.parametrize("line", [b"x" * (1 << 20) + b"\n", b'{"x":"' + b"x" * (20 << 20) + b'"}\n'])
def test_reading_checks_after_each_long_line_whether_it_has_to_stop(line):
    calls = itertools.count()
    with pytest.raises(ReadStopped):
        open_archive(line * 8, should_stop=lambda: next(calls) >= 3)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_line_that_is_too_long_is_one_line(compressed):
    data = log(event("a")) + b"x" * (40 << 20) + b"\n" + log(event("c", "a"))
    stream = io.BytesIO(zstd.compress(data) if compressed else data)
    with ArchiveReader(stream, STAT, "s", compressed=compressed) as reader:
        assert messages(reader) == [1, 3]
        assert reader.count_lines_from(START) == 3


@pytest.mark.parametrize(
    "data",
    [
        zstd.compress(b"a\n") + zstd.compress(b"b\n"),
        zstd.compress(b"a\n") + EMPTY_FRAME,
        zstd.compress(b"a\n") + SKIPPED_FRAME,
        zstd.compress(b"a\n") + b"x",
        EMPTY_FRAME * 1000 + zstd.compress(b"a\n"),
        SKIPPED_FRAME + zstd.compress(b"a\n"),
        SKIPPED_FRAME,
        b"",
    ],
)
def test_an_archive_that_is_not_exactly_one_frame_is_refused(data):
    with pytest.raises(DamagedArchive):
        list(CompressedLines(io.BytesIO(data), max_bytes=1 << 20, max_line_bytes=1 << 16))


def test_a_frame_of_too_many_compressed_bytes_is_refused():
    # Blocks that are empty, and not the last: each has a header of three bytes.
    stream = io.BytesIO(b"\x28\xb5\x2f\xfd\x00\x00" + bytes(3 << 20))
    with pytest.raises(DamagedArchive, match="more bytes than are read"):
        list(CompressedLines(stream, max_bytes=1 << 20, max_line_bytes=1 << 16))


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=20))
def test_the_lines_of_a_frame_are_those_of_its_contents(lines):
    stream = io.BytesIO(zstd.compress(b"".join(lines)))
    assert list(CompressedLines(stream, max_bytes=1 << 20, max_line_bytes=1 << 16)) == lines


# The parent of each event: an earlier one, none, or one that is not in the log; or the event is no part of the tree.
PLACES = st.one_of(st.integers(0, 12), st.sampled_from([None, "unknown", "unnamed", "invalid"]))


@given(st.lists(PLACES, max_size=12), st.sampled_from(["archive", "cold"]))
def test_the_branch_of_any_log_is_read(places, kind):
    events, parents = [], {}
    for number, place in enumerate(places):
        if place in {"unnamed", "invalid"}:
            events.append(event(None) if place == "unnamed" else "no event")
            continue
        is_earlier = isinstance(place, int) and place in parents
        parents[number] = place if is_earlier else None if place is None else "unknown"
        events.append(event(str(number), str(place) if is_earlier else parents[number]))
    expected = {number for number, place in enumerate(places) if place == "unnamed"}
    at = max(parents, default=None)
    while at is not None:
        expected.add(at)
        if parents[at] == "unknown":
            expected |= {number for number in parents if number < at}
            break
        at = parents[at]
    data, reader = (log(*events), ArchiveReader) if kind == "archive" else (cold(*events), ColdReader)
    with open_archive(data, reader) as opened:
        assert messages(opened) == [number + 1 for number in sorted(expected)]
        assert opened.count_lines_from(START) == len(places)


def test_a_leaf_event_of_an_archive_selects_the_branch():
    data = log(event("a"), event("b", "a"), {"type": "leaf", "id": "c", "targetId": "a"})
    with open_archive(data) as reader:
        assert messages(reader) == [1]


def test_an_archive_that_is_replaced_while_it_is_open_is_read_as_far_as_possible():
    stream = io.BytesIO(zstd.compress(log(event("a"), event("b", "a"))))
    with ArchiveReader(stream, STAT, "s") as reader:
        stream.seek(0)
        stream.truncate()
        stream.write(zstd.compress(log(*(event(str(number)) for number in range(9)))))
        assert messages(reader) == [1, 2]


def test_the_digest_of_an_archive_depends_on_the_last_active_event():
    first, second = log(event("a"), event("b", "a")), log(event("a"), event("b"), event("c", "a"))
    digests = set()
    for data in (first, second):
        with open_archive(data) as reader:
            digests.add(reader.prefix_digest(ReadPosition(2, 2)))
    assert len(digests) == 2
