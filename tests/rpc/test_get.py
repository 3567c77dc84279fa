"""MemoryGet reads what is there, line by line, and nothing else."""

import pytest
from google.protobuf.json_format import ParseDict

from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, check_refused

LONG = "".join(f"line {n}\n" for n in range(1, 5001))


async def check(running, path, *, text, lines, total, following=0, truncated=False, request=None):
    reply = await running.get(path, **(request or {}))
    assert (reply.path, reply.text) == (path, text)
    assert (reply.start_line, reply.end_line, reply.total_lines) == (*lines, total)
    assert (reply.next_start_line, reply.truncated) == (following, truncated)


@pytest.mark.parametrize(
    ("content", "request_", "expected"),
    [
        ("one\ntwo\nthree\n", {}, {"text": "one\ntwo\nthree\n", "lines": (1, 4), "total": 4}),
        ("one\ntwo\nthree", {}, {"text": "one\ntwo\nthree", "lines": (1, 3), "total": 3}),
        ("one\ntwo\nthree", {"start_line": 2}, {"text": "two\nthree", "lines": (2, 3), "total": 3}),
        ("one\ntwo\nthree", {"line_count": 1}, {"text": "one", "lines": (1, 1), "total": 3, "following": 2}),
        (
            "one\ntwo\nthree",
            {"start_line": 2, "line_count": 1},
            {"text": "two", "lines": (2, 2), "total": 3, "following": 3},
        ),
        ("one\ntwo\nthree", {"from_line": 2, "lines": 1}, {"text": "two", "lines": (2, 2), "total": 3, "following": 3}),
        (
            "one\ntwo\nthree",
            {"start_line": 3, "line_count": 2, "from_line": 1, "lines": 1},
            {"text": "three", "lines": (3, 3), "total": 3},
        ),
        ("one\ntwo", {"start_line": 3}, {"text": "", "lines": (3, 2), "total": 2}),
        ("one", {"start_line": 2**31 - 1}, {"text": "", "lines": (2**31 - 1, 2**31 - 2), "total": 1}),
        ("one", {"line_count": 2**31 - 1}, {"text": "one", "lines": (1, 1), "total": 1}),
        ("", {}, {"text": "", "lines": (1, 0), "total": 0}),
        ("\n", {}, {"text": "\n", "lines": (1, 2), "total": 2}),
        ("one\r\ntwo\r\n", {"line_count": 2}, {"text": "one\r\ntwo\r", "lines": (1, 2), "total": 3, "following": 3}),
        (b"caf\xe9\nna\xc3\xafve", {}, {"text": "caf\ufffd\nna\u00efve", "lines": (1, 2), "total": 2}),
        ("nul\0byte", {}, {"text": "nul\0byte", "lines": (1, 1), "total": 1}),
        ("---\ntitle: x\n---\nbody", {}, {"text": "---\ntitle: x\n---\nbody", "lines": (1, 4), "total": 4}),
    ],
)
async def test_a_range_is_returned_verbatim(serve, home, content, request_, expected):
    home.write(note=content)
    await check(await serve(), "memory/note.md", **expected, request=request_)


async def test_the_tool_s_arguments_may_have_openclaw_s_names(serve, home):
    home.write(note="one\ntwo\nthree")
    arguments = {"path": "memory/note.md", "from": 2, "lines": 1}
    running = await serve()
    reply = await running.stub.MemoryGet(ParseDict(arguments, pb.MemoryGetRequest()), timeout=TIMEOUT)
    assert (reply.text, reply.start_line, reply.next_start_line) == ("two", 2, 3)
    bad = pb.MemoryGetRequest(path="memory/note.md", from_line=0, lines=-1)
    call = running.stub.MemoryGet(bad, timeout=TIMEOUT)
    await check_refused(call, "INVALID_ARGUMENT", "INVALID_REQUEST", violations={"from_line", "lines"})


async def test_a_long_file_is_read_whole_by_following_next_start_line(serve, home):
    home.write(long=LONG)
    running = await serve()
    text, start, calls = [], 1, 0
    while start:
        reply = await running.get("memory/long.md", start_line=start)
        assert reply.end_line - reply.start_line + 1 <= 120
        text.append(reply.text)
        start, calls = reply.next_start_line, calls + 1
    assert "\n".join(text) == LONG
    assert calls == -(-5001 // 120)


async def test_more_than_two_thousand_lines_count_as_two_thousand(serve, home):
    home.write(long=LONG)
    reply = await (await serve()).get("memory/long.md", line_count=100_000)
    assert (reply.end_line, reply.next_start_line) == (2000, 2001)


async def test_no_reply_passes_256_kib_and_the_rest_follows(serve, home):
    wide = "\n".join("é" * 5_000 for _ in range(100))
    home.write(wide=wide)
    running = await serve()
    text, start = [], 1
    while start:
        reply = await running.get("memory/wide.md", start_line=start)
        assert len(reply.text.encode()) <= 256 * 1024
        assert not reply.truncated
        text.append(reply.text)
        start = reply.next_start_line
    assert "\n".join(text) == wide
    assert len(text) > 1


async def test_one_huge_line_is_cut_between_characters_and_says_so(serve, home):
    home.write(huge="漢" * 400_000 + "\nnext")
    running = await serve()
    reply = await running.get("memory/huge.md")
    assert reply.truncated
    assert 256 * 1024 - 3 < len(reply.text.encode()) <= 256 * 1024
    assert set(reply.text) == {"漢"}
    assert (reply.start_line, reply.end_line, reply.next_start_line) == (1, 1, 2)
    await check(running, "memory/huge.md", request={"start_line": 2}, text="next", lines=(2, 2), total=2)


async def test_a_line_of_exactly_256_kib_is_whole(serve, home):
    home.write(exact="x" * (256 * 1024) + "\ny")
    reply = await (await serve()).get("memory/exact.md")
    assert (len(reply.text), reply.truncated, reply.next_start_line) == (256 * 1024, False, 2)


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        ({"path": ""}, {"path"}),
        ({"path": " \n"}, {"path"}),
        ({"path": "memory/a.md", "start_line": 0}, {"start_line"}),
        ({"path": "memory/a.md", "line_count": 0}, {"line_count"}),
        ({"path": "x" * 4_097, "start_line": -1, "line_count": -1}, {"path", "start_line", "line_count"}),
    ],
)
async def test_bad_fields_are_all_named(serve, request_, violations):
    running = await serve()
    await check_refused(running.get(**request_), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations)


@pytest.mark.folder_only("documents in a database have no extra paths")
async def test_a_file_of_an_extra_path_is_read_under_its_own_name(serve, home):
    shared = home.root / "shared"
    shared.mkdir()
    (shared / "team.md").write_text("the team's notes")
    running = await serve({"agents": {"defaults": {"memorySearch": {"extraPaths": [str(shared)]}}}})
    await check(running, "../shared/team.md", text="the team's notes", lines=(1, 1), total=1)
    reply = await running.get(str(shared / "team.md"))
    assert (reply.path, reply.text) == ("../shared/team.md", "the team's notes")


async def test_a_file_above_the_size_limit_is_refused_and_not_a_fault(serve, home):
    home.write(big="x" * 2_000)
    running = await serve({"memoryd": {"limits": {"maxFileBytes": 1_000}}})
    await check_refused(running.get("memory/big.md"), "PERMISSION_DENIED", "PATH_NOT_ALLOWED", mentions="1000")


async def test_a_file_is_read_as_it_is_now_and_not_as_it_was_indexed(serve, home):
    home.write(note="before")
    running = await serve()
    await running.sync()
    home.write(note="after")
    await check(running, "memory/note.md", text="after", lines=(1, 1), total=1)
