"""MemoryHistory lists every write of a file, and MemoryRestore restores each content, until the settings prune it."""

import asyncio
import itertools

import pytest

from memoryd_server.rpc.wire import make_page_token
from rpc.editing import (
    EDITS,
    all_versions,
    content,
    digest,
    files_of,
    forget,
    history,
    kind,
    move,
    restore,
    write,
)
from rpc.wire import check_refused, paths

PATH = "memory/a.md"


def ids(versions):
    return [version.version_id for version in versions]


async def writes(running, count, path=PATH):
    """Write a file so often, and return the contents, oldest first, and the IDs of the writes."""
    contents, made = [None], []
    for number in range(count):
        done = await write(running, path, contents[-1], content=f"version {number}\n")
        contents.append(f"version {number}\n")
        made.append(done.version_id)
    return contents, made


async def test_every_version_is_restored_byte_for_byte(serve, home):
    odd = [None, b"one\n", b"", b"\xff\xfe\r\nno line feed at the end", b"x" * 100_000, "é\n".encode() * 1_000]
    running = await serve(EDITS)
    made = []
    for before, after in itertools.pairwise(odd):
        # Bytes that are not UTF-8 cannot be sent, so another program writes these, and an edit replaces them.
        file = home.workspace / PATH
        if before is not None and file.read_bytes() != before:
            file.write_bytes(before)
        text = after.decode("utf-8", "ignore")
        made.append((await write(running, PATH, before, content=text)).version_id)
        file.write_bytes(after)
    for version_id, before in zip(made, odd, strict=False):
        done = await restore(running, version_id, content(home, PATH))
        assert content(home, PATH) == before
        assert done.content_sha256 == digest(before)
    # A restore is a write, and is undone as every write.
    latest = (await history(running, PATH)).versions[0]
    assert kind(latest) == "RESTORE"
    before_latest = odd[len(made) - 2]
    await restore(running, latest.version_id, content(home, PATH))
    assert content(home, PATH) == before_latest


async def test_a_page_token_continues_after_the_last_write_whatever_is_written_in_between(serve):
    running = await serve(EDITS)
    contents, made = await writes(running, 7)
    await write(running, "memory/other.md", content="x")
    first = await history(running, PATH, page_size=3)
    assert ids(first.versions) == made[:-4:-1]
    await write(running, PATH, contents[-1], content="newer\n")
    second = await history(running, PATH, page_size=3, page_token=first.next_page_token)
    third = await history(running, PATH, page_size=3, page_token=second.next_page_token)
    assert ids(first.versions) + ids(second.versions) + ids(third.versions) == made[::-1]
    assert third.next_page_token == ""
    assert len(await all_versions(running, page_size=2)) == 9
    assert len((await history(running, page_size=2_000)).versions) == 9
    past = await history(running, PATH, page_token=make_page_token("history", "0"))
    assert (ids(past.versions), past.next_page_token) == ([], "")


async def test_the_history_follows_moves_and_ends_at_the_old_path(serve, home):
    running = await serve(EDITS)
    contents, made = await writes(running, 2)
    moved = await move(running, PATH, "memory/b.md", contents[-1])
    changed = await write(running, "memory/b.md", contents[-1], content="changed\n")
    again = await write(running, PATH, content="another file\n")
    followed = await all_versions(running, "memory/b.md")
    assert ids(followed) == [changed.version_id, moved.version_id, *made[::-1]]
    assert [(kind(version), version.path, version.moved_from) for version in followed] == [
        ("REPLACE_CONTENT", "memory/b.md", ""),
        ("MOVE", "memory/b.md", PATH),
        ("REPLACE_CONTENT", PATH, ""),
        ("CREATE", PATH, ""),
    ]
    assert ids(await all_versions(running, PATH)) == [again.version_id, moved.version_id, *made[::-1]]
    # A version from before the move is restored to the file under its new path.
    await restore(running, made[1], "changed\n", path="memory/b.md")
    assert files_of(home) == {PATH: b"another file\n", "memory/b.md": b"version 0\n"}


async def test_differences_are_those_of_a_unified_diff_and_are_returned_on_request(serve):
    running = await serve(EDITS)
    await write(running, PATH, content="one\ntwo\n")
    changed = await write(running, PATH, "one\ntwo\n", replace={"old_text": "two", "new_text": "2"})
    await move(running, PATH, "memory/b.md", "one\n2\n")
    await write(running, "memory/b.md", "one\n2\n", delete_file={})
    assert {version.diff for version in (await history(running)).versions} == {""}
    diffs = [version.diff for version in (await history(running, include_diffs=True)).versions]
    assert diffs == [
        "--- memory/b.md\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-2\n",
        "",
        "--- memory/a.md\n+++ memory/a.md\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
        "--- /dev/null\n+++ memory/a.md\n@@ -0,0 +1,2 @@\n+one\n+two\n",
    ]
    (only,) = (await history(running, version_id=changed.version_id, include_diffs=True)).versions
    assert (only.version_id, only.diff, only.diff_truncated) == (changed.version_id, diffs[2], False)


async def test_large_differences_are_cut_and_fill_several_pages(serve):
    running = await serve(EDITS)
    texts = [f"line {number} \u20ac\n" * 20_000 for number in range(24)]
    seen = None
    for text in texts:
        await write(running, PATH, seen, content=text)
        seen = text
    first = await history(running, include_diffs=True)
    assert 1 <= len(first.versions) < len(texts)
    assert first.next_page_token
    versions = await all_versions(running, include_diffs=True)
    assert len(versions) == len(texts)
    assert len(set(ids(versions))) == len(texts)
    for version in versions:
        assert version.diff_truncated
        assert len(version.diff.encode()) <= 65_536


async def test_an_unknown_version_is_not_found_and_restores_nothing(serve, home):
    running = await serve(EDITS)
    await write(running, PATH, content="one\n")
    for call in (restore(running, "0" * 32, "one\n"), history(running, version_id="0" * 32)):
        await check_refused(call, "NOT_FOUND", "VERSION_NOT_FOUND")
    assert files_of(home) == {PATH: b"one\n"}


@pytest.fixture
async def two(serve, home):
    """A daemon with two agents, each of which has written the same file."""
    (home.root / "bob").mkdir()
    agents = [{"id": "main", "default": True}, {"id": "bob", "workspace": str(home.root / "bob")}]
    running = await serve({**EDITS, "agents": {"list": agents}})
    for agent_id in ("main", "bob"):
        await write(running, PATH, agent_id=agent_id, content=f"of {agent_id}\n")
    return running


async def test_the_history_of_another_agent_is_not_visible(two, home):
    (own,) = (await history(two, agent_id="main", include_diffs=True)).versions
    (foreign,) = (await history(two, agent_id="bob", include_diffs=True)).versions
    assert ("+of main\n" in own.diff, "+of bob\n" in foreign.diff) == (True, True)
    for call in (
        history(two, agent_id="main", version_id=foreign.version_id),
        restore(two, foreign.version_id, "of main\n", agent_id="main"),
        restore(two, foreign.version_id, None, agent_id="main", path="memory/b.md"),
    ):
        await check_refused(call, "NOT_FOUND", "VERSION_NOT_FOUND")
    assert files_of(home) == {PATH: b"of main\n"}
    # A token of a page holds a number only, which counts in the history of the agent that is named.
    token = make_page_token("history", "1000000")
    assert ids((await history(two, agent_id="main", page_token=token)).versions) == [own.version_id]


async def test_forgetting_for_one_agent_keeps_the_history_of_the_other(two, home):
    await forget(two, agent_id="main", path=PATH, delete_source=True)
    assert (await history(two, agent_id="main")).versions == []
    assert len((await history(two, agent_id="bob")).versions) == 1
    assert home.store.history_rows("bob") == (1, 1)


async def test_the_oldest_writes_are_removed_above_the_size_limit(serve, home):
    running = await serve({"memoryd": {"writes": "edit", "history": {"maxBytes": 20_000}}})
    seen, made = None, []
    for number in range(30):
        # Text that does not compress well.
        text = " ".join(digest(f"{number} {word}") for word in range(30))
        made.append((await write(running, PATH, seen, content=text)).version_id)
        seen = text
    kept = ids(await all_versions(running))
    assert 1 <= len(kept) < 30
    assert kept == made[::-1][: len(kept)]
    if home.store.is_sqlite:
        assert home.store.history_file().stat().st_size < 200_000
    await check_refused(restore(running, made[0], seen), "NOT_FOUND", "VERSION_NOT_FOUND")
    await restore(running, kept[-1], seen)


async def test_a_limit_of_zero_keeps_the_newest_write_only(serve):
    running = await serve({"memoryd": {"writes": "edit", "history": {"maxBytes": 0}}})
    contents, made = await writes(running, 4)
    assert ids(await all_versions(running)) == made[-1:]
    await restore(running, made[-1], contents[-1])


async def test_old_writes_are_removed_by_the_setting_for_days_after_a_reload(serve, home):
    running = await serve(EDITS)
    contents, made = await writes(running, 2)
    await running.stop()
    home.store.change_history(
        made[0],
        sqlite="UPDATE records SET time_ms = time_ms - 3 * 86400000 WHERE version_id = ?",
        postgres="UPDATE history_records SET time_ms = time_ms - 3 * 86400000 WHERE version_id = %s",
    )
    again = await serve({"memoryd": {"writes": "edit", "history": {"days": 4}}})
    assert ids(await all_versions(again)) == made[::-1]
    settings = {"memoryd": {"writes": "edit", "history": {"days": 2}}}
    assert not (await again.daemon.reload(lambda: home.settings(settings))).error
    await write(again, PATH, contents[-1], content="newer\n")
    assert made[0] not in ids(await all_versions(again))
    await check_refused(restore(again, made[0], "newer\n"), "NOT_FOUND", "VERSION_NOT_FOUND")


async def test_forgetting_a_file_leaves_no_trace_of_it_in_the_history(serve, home):
    word = "xylophonographer"
    running = await serve(EDITS)
    await write(running, PATH, content=f"the {word}\n")
    await write(running, PATH, f"the {word}\n", content="harmless\n")
    await write(running, "memory/other.md", content="kept\n")
    await move(running, PATH, "memory/b.md", "harmless\n")
    reply = await forget(running, path="memory/b.md")
    assert reply.history_contents == 2
    assert content(home, "memory/b.md") == b"harmless\n"
    assert ids(await all_versions(running, "memory/b.md")) == []
    assert len(await all_versions(running)) == 1
    assert home.store.history_rows() == (1, 1)
    for forgotten in (word, "memory/b.md", PATH):
        assert home.store.places_of(forgotten, within="history") == []
    assert home.store.places_of("memory/other.md", within="history")


async def test_a_file_that_has_only_a_history_can_be_forgotten(serve, home):
    running = await serve(EDITS)
    await write(running, PATH, content="one\n")
    await write(running, PATH, "one\n", delete_file={})
    reply = await forget(running, path=PATH)
    assert (reply.history_contents, reply.source_files, reply.chunks) == (1, 0, 0)
    assert (await history(running)).versions == []
    await check_refused(forget(running, path=PATH), "NOT_FOUND", "FILE_NOT_FOUND", mentions="history")


async def test_forgetting_deletes_the_source_without_recording_it(serve, home):
    running = await serve(EDITS)
    done = await write(running, PATH, content="one\n")
    reply = await forget(running, path=PATH, delete_source=True)
    assert (reply.source_files, reply.history_contents) == (1, 1)
    assert files_of(home) == {}
    assert home.store.history_rows() == (0, 0)
    await check_refused(restore(running, done.version_id), "NOT_FOUND", "VERSION_NOT_FOUND")
    # The key and the path can be used again.
    await write(running, PATH, content="one\n")


async def test_forgetting_a_text_removes_the_contents_with_it_and_keeps_the_records(serve, home):
    secret = "sk-live-1234567890"
    running = await serve(EDITS)
    before = f"# Keys\n\nthe key is {secret}\n"
    made = [await write(running, PATH, content=before)]
    made.append(await write(running, PATH, before, content="no key\n"))
    made.append(await write(running, PATH, "no key\n", content="still none\n"))
    reply = await forget(running, text=secret)
    assert reply.history_contents == 1
    versions = await all_versions(running, include_diffs=True)
    assert ids(versions) == [each.version_id for each in made[::-1]]
    assert [version.restorable for version in versions] == [True, False, True]
    assert [bool(version.diff) for version in versions] == [True, False, False]
    await check_refused(restore(running, made[1].version_id, "still none\n"), "NOT_FOUND", "VERSION_NOT_FOUND")
    await restore(running, made[2].version_id, "still none\n")
    assert files_of(home) == {PATH: b"no key\n"}
    assert (await forget(running, text=secret)).history_contents == 0


async def test_forgetting_a_session_keeps_the_history(serve, home):
    home.say("s1.jsonl", '{"type":"message","message":{"role":"user","content":"heron"}}\n')
    running = await serve(EDITS)
    await write(running, PATH, content="one\n")
    assert (await forget(running, session_id="s1")).history_contents == 0
    assert len((await history(running)).versions) == 1


async def test_edits_during_a_forget_leave_nothing_from_before_it(serve, home):
    running = await serve(EDITS)
    for number in range(10):
        seen = content(home, PATH)
        await write(running, PATH, seen, content=f"secret {number}\n")

        async def edit(number=number):
            call = write(running, PATH, f"secret {number}\n", content=f"later {number}\n")
            await asyncio.gather(call, return_exceptions=True)

        async def forget_now():
            await asyncio.gather(forget(running, path=PATH, delete_source=True), return_exceptions=True)

        await asyncio.gather(edit(), forget_now())
        if content(home, PATH) is None:
            assert (await history(running, PATH)).versions == []
            assert home.store.history_rows() == (0, 0)


async def test_a_forgotten_file_that_is_written_again_has_a_new_history(serve, home):
    running = await serve(EDITS)
    await write(running, PATH, content="the heron\n")
    await forget(running, path=PATH)
    done = await write(running, PATH, "the heron\n", content="the kestrel\n")
    assert paths(await running.search("kestrel", min_revision=done.index_revision)) == [PATH]
    (version,) = await all_versions(running, PATH)
    assert version.before_sha256 == digest("the heron\n")
