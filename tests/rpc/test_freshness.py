"""For each fault between the files and the index, a new file is found without a call, and Status reports the fault."""

import errno
import os
import shutil
import time

import pytest

from memoryd.v1 import memory_pb2
from memoryd_server.sources import watcher
from memoryd_server.sources.inotify import InotifyReader
from rpc.sync_streams import FULL
from rpc.wire import kinds, paths
from unit.sources.watching import polling_threads, reader_thread
from waiting import eventually

NATIVE, POLLING = memory_pb2.WATCHER_MODE_NATIVE, memory_pb2.WATCHER_MODE_POLLING
DEAD = memory_pb2.WATCHER_MODE_DEAD
STALE, READY = memory_pb2.INDEX_STATE_STALE, memory_pb2.INDEX_STATE_READY


def settings(*, reconcile_seconds=1, poll_seconds=0.2, extra_paths=()):
    search = {"sync": {"watchDebounceMs": 50}, "extraPaths": list(extra_paths)}
    ours = {"reconcileSeconds": reconcile_seconds, "watcher": {"pollSeconds": poll_seconds}}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": ours}


@pytest.fixture
def begin(serve, home):
    """Starts a daemon that watches, and waits until it has indexed the one note there is."""

    async def begin(**options):
        home.write(first="the first heron")
        flags = {name: options.pop(name) for name in ("workspace", "open_native") if name in options}
        running = await serve(settings(**options), background=True, **flags)
        await eventually(lambda: check_found(running, "heron", "memory/first.md"))
        return running

    return begin


async def check_found(running, query, path):
    return paths(await running.search(query)) == [path]


async def check_new_file_found(running, home, word="kestrel"):
    """A file that is written now is found without a call, and then Status says that nothing waits."""
    home.put(f"memory/{word}.md", f"a {word} hovers")
    await eventually(lambda: check_found(running, word, f"memory/{word}.md"))
    index = (await running.status()).index
    assert (index.dirty, index.pending_files, index.state) == (False, 0, READY)
    assert not index.HasField("oldest_unindexed_age")
    (source,) = index.sources
    on_disk = sum(1 for file in home.workspace.rglob("*.md"))
    assert (source.files_on_disk, source.files_indexed) == (on_disk, on_disk)


async def modes(running):
    return [watcher.mode for watcher in (await running.status()).watchers]


async def check_mode(running, mode, words="", *, at=0):
    """How a root is watched, why, and that it is a degradation exactly when it is less than native."""
    status = await running.status()
    watcher = status.watchers[at]
    assert (watcher.mode, words in watcher.reason) == (mode, True), watcher
    assert bool(watcher.reason) is (mode != NATIVE)
    return status


def the_watcher(running):
    return running.background().watcher


def shared_reader(running):
    """Return the thread that reads inotify for every agent."""
    return reader_thread(the_watcher(running))._reader


async def test_a_watchers_thread_that_is_killed_costs_one_pass(begin, home):
    running = await begin()
    thread = shared_reader(running)
    thread.stop()
    thread.join()
    status = await check_mode(running, DEAD, "thread")
    assert kinds(status.degradations) == ["WATCHER_IMPAIRED"]
    assert kinds((await running.search("heron")).info.degradations) == ["WATCHER_IMPAIRED"]
    await check_new_file_found(running, home)
    await eventually(lambda: is_native(running))
    assert not (await running.status()).degradations


async def is_native(running):
    return await modes(running) == [NATIVE]


async def test_a_descriptor_closed_under_the_watcher_costs_one_pass(begin, home):
    running = await begin()
    os.close(shared_reader(running)._inotify_fd)
    await check_mode(running, DEAD, "thread")
    await check_new_file_found(running, home)
    await eventually(lambda: is_native(running))
    await check_new_file_found(running, home, "stork")


@pytest.fixture
def mount_without_events(monkeypatch):
    monkeypatch.setattr(watcher, "mount_without_events", lambda _: "virtiofs")


async def test_a_polling_thread_that_is_killed_costs_one_pass(begin, home, mount_without_events):
    running = await begin()
    for emitter in polling_threads(the_watcher(running)):
        emitter.stop()
        emitter.join()
    await check_mode(running, DEAD, "polling thread")
    await check_new_file_found(running, home)
    await eventually(lambda: polls(running))


async def polls(running):
    return await modes(running) == [POLLING]


# The root comes and goes


async def check_away(running, place, *, files, at=0):
    """Status tells of the missing root, its files are neither shown nor forgotten."""
    status = await check_mode(running, DEAD, "missing", at=at)
    assert kinds(status.degradations) == ["SOURCE_SKIPPED"]
    assert (status.degradations[0].wanted, str(files) in status.degradations[0].reason) == (str(place), True)
    assert any(str(place) in issue for issue in status.source_issues)
    index = status.index
    assert (index.dirty, index.pending_files, index.state) == (True, files, STALE)
    assert index.sources[0].files_indexed == files + index.sources[0].files_on_disk
    assert 0 <= index.oldest_unindexed_age.ToMilliseconds() < 60_000
    answer = await running.search("heron")
    assert not answer.results
    assert answer.info.empty_reason == memory_pb2.EMPTY_REASON_FILES_GONE
    return status


async def passes(running, count=2):
    """Waits until so many reconcile passes have looked."""
    looks, engine = [], running.engine()
    plain, engine.compare = engine.compare, lambda: (looks.append(1), plain())[1]
    await eventually(lambda: len(looks) >= count)
    engine.compare = plain


@pytest.mark.slow
async def test_an_absent_workspace_keeps_its_rows_and_is_not_indexed_again(begin, home):
    running = await begin()
    revision = (await running.status()).index.revision
    home.workspace.rename(home.root / "away")
    await check_away(running, home.workspace, files=1)
    await passes(running)
    status = await check_away(running, home.workspace, files=1)
    assert status.index.revision == revision
    # Every search meets a file that is gone, and none of them starts a sync that could do nothing about it.
    runs = len(running.logged("complete-sync"))
    for _ in range(5):
        await running.search("heron")
    await passes(running)
    assert len(running.logged("complete-sync")) <= runs + 1
    (home.root / "away").rename(home.workspace)
    assert await check_found(running, "heron", "memory/first.md"), "it is found as soon as it is back"
    await check_new_file_found(running, home)
    await eventually(lambda: is_native(running))
    assert [line["indexed"] for line in running.logged("complete-sync")][1:].count(1) == 1, "only the new one is read"


async def test_a_workspace_deleted_and_made_again_is_watched_again(begin, home):
    running = await begin()
    shutil.rmtree(home.workspace)
    await check_away(running, home.workspace, files=1)
    (home.workspace / "memory").mkdir(parents=True)
    await check_new_file_found(running, home)
    await eventually(lambda: is_native(running))
    assert not (await running.status()).degradations
    assert not (await running.search("heron")).results
    await check_new_file_found(running, home, "stork")


@pytest.mark.slow
async def test_another_folder_in_its_place_is_the_workspace_now(begin, home):
    running = await begin()
    home.workspace.rename(home.root / "away")
    home.put("memory/other.md", "an avocet")
    await check_mode(running, DEAD, "replaced")
    await eventually(lambda: check_found(running, "avocet", "memory/other.md"))
    await check_new_file_found(running, home)
    (home.root / "away" / "memory" / "x.md").write_text("a shrike elsewhere")
    await passes(running)
    assert not (await running.search("shrike")).results
    assert not (await running.search("heron")).results


async def test_a_workspace_behind_a_link_follows_the_link(begin, home):
    link = home.root / "link"
    link.symlink_to(home.workspace)
    running = await begin(workspace=str(link))
    link.unlink()
    await check_away(running, link, files=1)
    other = home.root / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "b.md").write_text("an avocet")
    link.symlink_to(other)
    await eventually(lambda: check_found(running, "avocet", "memory/b.md"))
    assert not (await running.search("heron")).results
    await eventually(lambda: is_native(running))


async def test_an_extra_path_that_is_away_leaves_the_workspace_alone(begin, home):
    team = home.root / "team"
    team.mkdir()
    (team / "bird.md").write_text("an avocet")
    running = await begin(extra_paths=["../team"])
    await eventually(lambda: check_found(running, "avocet", "../team/bird.md"))
    team.rename(home.root / "away")
    status = await check_mode(running, DEAD, "missing", at=1)
    assert (status.watchers[0].mode, kinds(status.degradations)) == (NATIVE, ["SOURCE_SKIPPED"])
    home.write(more="a kestrel")
    await eventually(lambda: check_found(running, "kestrel", "memory/more.md"))
    assert (await running.status()).index.pending_files == 1
    (home.root / "away").rename(team)
    assert await check_found(running, "avocet", "../team/bird.md")
    await eventually(lambda: settled(running))


async def settled(running):
    status = await running.status()
    return not status.index.dirty and not status.degradations


async def test_a_forced_sync_forgets_what_is_away(begin, home):
    running = await begin()
    home.workspace.rename(home.root / "away")
    await check_away(running, home.workspace, files=1)
    await running.synced(mode=FULL)
    status = await running.status()
    assert (status.index.files, status.index.dirty, list(status.degradations)) == (0, False, [])


# Events that do not come


async def test_a_mount_without_events_is_polled_and_reported(begin, home, mount_without_events):
    running = await begin(reconcile_seconds=3600)
    status = await check_mode(running, POLLING, "virtiofs")
    assert kinds(status.degradations) == ["WATCHER_IMPAIRED"]
    await check_new_file_found(running, home)


class Deaf(InotifyReader):
    """Watches can be had, and no event comes: a mount that nobody knows to be silent."""

    def watch(self, scope, on_change):
        return super().watch(scope, lambda: None)


async def test_events_that_never_come_are_made_up_for_and_the_root_is_polled(begin, home, monkeypatch):
    monkeypatch.setattr(watcher, "SKEW_NS", 0)
    monkeypatch.setattr(watcher, "LATE_NS", 1_000_000)
    running = await begin(open_native=Deaf)
    await check_mode(running, NATIVE)
    await check_new_file_found(running, home)
    await eventually(lambda: polls(running))
    status = await check_mode(running, POLLING, "without one")
    assert kinds(status.degradations) == ["WATCHER_IMPAIRED"]
    await check_new_file_found(running, home, "stork")


class Short(InotifyReader):
    def add(self, path, callback):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_without_inotify_watches_the_root_is_polled_and_says_so(begin, home):
    running = await begin(reconcile_seconds=3600, open_native=Short)
    status = await check_mode(running, POLLING, "max_user_watches")
    assert kinds(status.degradations) == ["WATCHER_IMPAIRED"]
    await check_new_file_found(running, home)


# What Status tells of waiting files


async def test_a_file_that_was_moved_here_has_waited_since_it_came_and_not_since_it_was_written(serve, home):
    home.write(first="the first heron")
    elsewhere = home.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "old.md").write_text("a heron of old")
    running = await serve()
    await running.sync()
    agreed = time.monotonic()
    assert not (await running.status()).index.dirty
    # A folder that is moved leaves its files' own times alone.
    elsewhere.rename(home.workspace / "memory" / "elsewhere")
    index = (await running.status()).index
    assert (index.dirty, index.pending_files) == (True, 1)
    age = index.oldest_unindexed_age.ToMilliseconds()
    assert age <= 1000 * (time.monotonic() - agreed)
    (home.workspace / "memory" / "first.md").unlink()
    index = (await running.status()).index
    assert (index.pending_files, index.HasField("oldest_unindexed_age")) == (2, True)
    assert age <= index.oldest_unindexed_age.ToMilliseconds() < 60_000


async def test_a_file_that_is_gone_waits_too(serve, home):
    home.write(first="the first heron")
    running = await serve()
    await running.sync()
    (home.workspace / "memory" / "first.md").unlink()
    index = (await running.status()).index
    assert (index.dirty, index.pending_files) == (True, 1)
    assert 0 <= index.oldest_unindexed_age.ToMilliseconds() < 60_000


@pytest.mark.slow
async def test_a_failed_pass_is_reported_and_the_next_one_makes_up_for_it(begin, home, monkeypatch):
    running = await begin()
    monkeypatch.setattr(the_watcher(running), "check", lambda: 1 / 0)
    await eventually(lambda: "ZeroDivisionError" in running.background().trouble)
    status = await running.status()
    assert kinds(status.degradations) == ["WATCHER_IMPAIRED"]
    assert "ZeroDivisionError" in status.degradations[0].reason
    await check_new_file_found(running, home)
    monkeypatch.undo()
    await eventually(lambda: running.background().trouble == "")
    assert not (await running.status()).degradations
