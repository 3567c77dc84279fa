"""MemoryGet with `include_chunks`: the lines of the chunks that the index has of the returned lines."""

import json
import threading

import pytest

from rpc.qmd_calls import qmd_settings

LINE = "the heron stands near the weir and waits for a fish\n"


def lines_of(reply):
    return [(chunk.start_line, chunk.end_line) for chunk in reply.chunks]


async def every_chunk(running, path):
    """Return the chunks of a file as its own index has them, from single lines of it."""
    total, found = (await running.get(path)).total_lines, set()
    for line in range(1, total + 1):
        chunks = lines_of(await running.get(path, start_line=line, line_count=1, include_chunks=True))
        assert all(first <= line <= last for first, last in chunks)
        found |= set(chunks)
    return sorted(found)


async def test_chunks_that_overlap_the_returned_lines_are_named_in_their_order(serve, home):
    home.write(a=LINE * 100)
    running = await serve()
    await running.synced()
    whole = lines_of(await running.get("memory/a.md", include_chunks=True))
    assert len(whole) > 1
    assert whole == await every_chunk(running, "memory/a.md")
    assert (whole[0][0], whole[-1][1]) == (1, 101)
    (file,) = (await running.files()).files
    assert file.chunks == len(whole)
    part = lines_of(await running.get("memory/a.md", start_line=60, line_count=5, include_chunks=True))
    assert part == [(first, last) for first, last in whole if first <= 64 and last >= 60]
    assert part != whole
    assert lines_of(await running.get("memory/a.md", start_line=1_000, include_chunks=True)) == []


async def test_without_the_request_there_are_no_chunks_and_the_index_is_not_read(serve, home):
    home.write(a=LINE.strip())
    running = await serve()
    await running.synced()
    index, threads = running.memory().index, []
    read = index.store.read
    index.store.read = lambda *args: threads.append(threading.get_ident()) or read(*args)
    assert lines_of(await running.get("memory/a.md")) == []
    assert threads == []
    assert lines_of(await running.get("memory/a.md", include_chunks=True)) == [(1, 1)]
    assert threads
    assert threading.get_ident() not in threads


async def test_chunks_are_those_of_the_file_as_it_was_indexed(serve, home):
    home.write(a="# Harbour\n\na heron\n", new="a gull\n")
    running = await serve()
    await running.synced()
    chunks = lines_of(await running.get("memory/a.md", include_chunks=True))
    assert chunks
    home.write(a="# Harbour\n\na heron\n\n# Pier\n\na gull\n", pending="not indexed")
    assert lines_of(await running.get("memory/a.md", include_chunks=True)) == chunks
    reply = await running.get("memory/pending.md", include_chunks=True)
    assert (reply.text, lines_of(reply)) == ("not indexed", [])


async def test_a_transcript_has_the_chunks_with_a_message_in_the_lines(serve, home):
    def message(text):
        return json.dumps({"type": "message", "message": {"role": "user", "content": text}}) + "\n"

    quiet = json.dumps({"type": "custom"}) + "\n"
    home.say("s.jsonl", quiet, message("heron " * 900), quiet, quiet, message("gull"), message("crane"), quiet)
    settings = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
    running = await serve({"agents": {"defaults": {"memorySearch": settings}}})
    await running.synced()
    whole = lines_of(await running.get("sessions/s.jsonl", include_chunks=True))
    assert whole
    assert (whole[0][0], whole[-1][1]) == (2, 6)
    for line, expected in ((1, False), (2, True), (3, False), (5, True), (6, True), (7, False)):
        found = await running.get("sessions/s.jsonl", start_line=line, line_count=1, include_chunks=True)
        assert bool(found.chunks) == expected, line


async def test_at_most_two_thousand_chunks_are_named(serve, home):
    home.write(a="".join(f"# Heading {number}\n" for number in range(2_500)))
    running = await serve({"agents": {"defaults": {"memorySearch": {"chunking": {"tokens": 16, "overlap": 0}}}}})
    await running.synced()
    reply = await running.get("memory/a.md", line_count=2_000, include_chunks=True)
    assert reply.end_line == 2_000
    assert 1 <= len(reply.chunks) <= 2_000


async def test_a_file_is_read_although_the_index_is_damaged(serve, home):
    home.write(a="a heron")
    running = await serve()
    await running.synced()
    home.store.change(sqlite="DROP TABLE chunks")
    reply = await running.get("memory/a.md", include_chunks=True)
    assert (reply.text, lines_of(reply)) == ("a heron", [])


@pytest.mark.folder_only("qmd searches the files of a workspace")
async def test_with_qmd_a_file_is_read_and_has_no_chunks(serve, qmd_home, fake):
    running = await serve(qmd_settings(fake.path))
    reply = await running.get("memory/a.md", include_chunks=True)
    assert "a crane" in reply.text
    assert lines_of(reply) == []
