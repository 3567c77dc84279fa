"""Status counts files by root. The sums are those by source, and each file counts once."""

import json
import os
import time

import pytest

from memoryd.v1 import memory_pb2
from memoryd_server.sources.ignore import IGNORE_FILE, MOST_RULES
from rpc.qmd_calls import qmd_settings

MEMORY, SESSIONS = memory_pb2.SOURCE_MEMORY, memory_pb2.SOURCE_SESSIONS
WITH_SESSIONS = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}


def searching(**options):
    return {"agents": {"defaults": {"memorySearch": options}}}


async def checked(running):
    """Return the roots by name, after a check of the sums."""
    index = (await running.status()).index
    for source in index.sources:
        own = [root for root in index.roots if root.source == source.source]
        assert own
        assert sum(root.files_on_disk for root in own) == source.files_on_disk
        assert sum(root.files_indexed for root in own) == source.files_indexed
        assert sum(root.files_failed for root in own) == source.files_failed
    assert sum(root.pending_files for root in index.roots) == index.pending_files
    ages = [root.oldest_unindexed_age for root in index.roots if root.HasField("oldest_unindexed_age")]
    assert bool(ages) == index.HasField("oldest_unindexed_age")
    if ages:
        assert max(age.ToNanoseconds() for age in ages) == index.oldest_unindexed_age.ToNanoseconds()
    assert all(root.HasField("oldest_unindexed_age") == bool(root.pending_files) for root in index.roots)
    assert len({(root.root, root.source) for root in index.roots}) == len(index.roots)
    return {root.root: root for root in index.roots}


def counts(root):
    return root.files_on_disk, root.files_indexed, root.pending_files, root.files_failed


def say(home, name, text="a heron"):
    home.say(name, json.dumps({"type": "message", "message": {"role": "user", "content": text}}) + "\n")


@pytest.fixture
async def running(serve, home):
    home.write(a="a heron", b="a gull", large="x" * 500)
    home.put("../team/c.md", "a crane")
    home.put("notes/d.md", "a tern")
    say(home, "s.jsonl")
    settings = searching(extraPaths=["../team", "notes", "missing"], **WITH_SESSIONS)
    running = await serve({**settings, "memoryd": {"limits": {"maxFileBytes": 400}}})
    before = await checked(running)
    assert {name: counts(root) for name, root in before.items()} == {
        ".": (3, 0, 3, 0),
        "../team": (1, 0, 1, 0),
        "notes": (1, 0, 1, 0),
        "missing": (0, 0, 0, 0),
        # A transcript is read once it has grown.
        "sessions": (1, 0, 0, 0),
    }
    await running.synced()
    return running


async def test_each_root_has_its_own_counts(running, home):
    roots = await checked(running)
    assert list(roots) == [".", "../team", "notes", "missing", "sessions"]
    assert {name: counts(root) for name, root in roots.items()} == {
        ".": (3, 2, 0, 1),
        "../team": (1, 1, 0, 0),
        "notes": (1, 1, 0, 0),
        "missing": (0, 0, 0, 0),
        "sessions": (1, 1, 0, 0),
    }
    assert {root.source for name, root in roots.items() if name != "sessions"} == {MEMORY}
    assert roots["sessions"].source == SESSIONS
    assert [watcher.root for watcher in (await running.status()).watchers] == list(roots)


async def test_pending_files_and_their_age_belong_to_their_root(running, home):
    home.put("notes/new.md", "a heron")
    home.put("notes/d.md", "a tern that has changed")
    (home.root / "team" / "c.md").unlink()
    say(home, "new.jsonl")
    roots = await checked(running)
    pending = {name: root.pending_files for name, root in roots.items()}
    assert pending == {".": 0, "../team": 1, "notes": 2, "missing": 0, "sessions": 0}
    assert not roots["."].HasField("oldest_unindexed_age")
    assert counts(roots["../team"]) == (0, 1, 1, 0)


async def test_hidden_files_are_pending_in_their_root(running, home):
    team = home.root / "team"
    team.rename(home.root / "moved")
    team.symlink_to(home.root / "moved")
    home.put(f"notes/{IGNORE_FILE}", "x\n" * (MOST_RULES + 1))
    roots = await checked(running)
    assert counts(roots["notes"]) == (0, 1, 1, 1)
    assert counts(roots["."]) == (3, 2, 0, 1)


async def test_nested_roots_count_each_file_once(serve, home):
    home.write(a="a heron")
    for path in ("notes/a.md", "notes/inner/b.md", "notes/drafts/c.md", "plan.md"):
        home.put(path, "a heron")
    home.put(f"notes/{IGNORE_FILE}", "drafts/\n")
    running = await serve(searching(extraPaths=["notes", "notes/inner", "notes/drafts", "memory", "."]))
    await running.synced()
    roots = {name: counts(root)[:2] for name, root in (await checked(running)).items()}
    assert roots == {
        ".": (2, 2),
        "notes": (2, 2),
        "notes/inner": (0, 0),
        "notes/drafts": (1, 1),
        "memory": (0, 0),
    }


async def test_rows_of_a_root_that_is_no_longer_configured_are_pending(running, home):
    before = searching(extraPaths=["notes"])
    await running.daemon.reload(lambda: home.settings(before))
    roots = await checked(running)
    assert sum(root.pending_files for root in roots.values()) >= 1
    await running.synced()
    roots = await checked(running)
    assert {name: root.pending_files for name, root in roots.items()} == {".": 0, "notes": 0}


async def test_with_qmd_the_roots_are_counted_too(serve, qmd_home, fake):
    running = await serve(qmd_settings(fake.path))
    await running.synced()
    assert counts((await checked(running))["."])[0] == 1


@pytest.mark.slow
async def test_a_status_of_many_files_and_roots_takes_no_longer_than_the_comparison(serve, home):
    for number in range(300):
        home.put(f"../extra/{number}/a.md", "")
        home.put(f"../extra/{number}.md", "")
    home.many(5_000)
    extras = [f"../extra/{number}" for number in range(300)] + [f"../extra/{number}.md" for number in range(300)]
    running = await serve(searching(extraPaths=[*extras, "../extra"]))
    began = time.process_time()
    roots = await checked(running)
    assert time.process_time() - began < 5
    assert len(roots) == 602
    assert {counts(root)[0] for name, root in roots.items() if name.startswith("../extra/")} == {1}


async def test_a_name_that_is_not_utf_8_counts_in_its_root(serve, home):
    home.put("notes/a.md", "a heron")
    (home.workspace / "notes" / os.fsdecode(b"caf\xe9.md")).write_text("a heron")
    running = await serve(searching(extraPaths=["notes"]))
    await running.synced()
    assert counts((await checked(running))["notes"]) == (1, 1, 0, 1)
