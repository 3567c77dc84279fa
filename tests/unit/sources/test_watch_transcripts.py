"""The watcher reports transcripts separately from notes, because a sync per message would be too many."""

import pytest

from memoryd_server.sources.watch_scope import WatcherMode
from unit.sources.watching import QUIET, SOON, WAYS, Changes, modes, watching


@pytest.fixture
def sessions(tmp_path):
    folder = tmp_path / "state" / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    (folder / "old.jsonl").write_text("{}\n")
    return folder


ACTS = {
    "begun": lambda folder: (folder / "new.jsonl").write_text("{}\n"),
    "grown": lambda folder: (folder / "old.jsonl").open("a").write("{}\n"),
    "rotated": lambda folder: (folder / "old.jsonl").rename(folder / "old.jsonl.reset.1"),
    "deleted": lambda folder: (folder / "old.jsonl").unlink(),
}
NON_ACTS = {
    "another file written": lambda folder: (folder / "sessions.json").write_text("{}"),
    "a note written": lambda folder: (folder / "note.md").write_text("x"),
    "a lock taken": lambda folder: (folder / "old.jsonl.lock").touch(),
    "a folder made": lambda folder: (folder / "new.jsonl").mkdir(),
    "a transcript read": lambda folder: (folder / "old.jsonl").read_text(),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("options", WAYS, ids=["native", "polling"])
@pytest.mark.parametrize("act", [*ACTS, *NON_ACTS])
def test_a_transcript_event_is_no_note_event(roots, sessions, act, options):
    transcripts = Changes()
    with watching(roots, sessions=str(sessions), on_transcripts=transcripts, **options) as (watcher, notes):
        assert modes(watcher)["sessions"] is (WatcherMode.POLLING if options["polling"] else WatcherMode.NATIVE)
        (ACTS | NON_ACTS)[act](sessions)
        assert transcripts.arrive(SOON if act in ACTS else QUIET) is (act in ACTS)
        assert notes.total == 0


def test_a_note_event_arrives_with_transcripts_watched(roots, workspace, sessions):
    transcripts = Changes()
    with watching(roots, sessions=str(sessions), on_transcripts=transcripts) as (_, notes):
        (workspace / "memory" / "new.md").write_text("x")
        assert notes.arrive()
        assert transcripts.total == 0


def test_a_folder_that_is_made_later_is_taken_up(roots, tmp_path):
    folder = tmp_path / "sessions"
    transcripts = Changes()
    with watching(roots, sessions=str(folder), on_transcripts=transcripts) as (watcher, _):
        (status,) = [root for root in watcher.status() if root.root == "sessions"]
        assert (status.mode, status.present) == (WatcherMode.DEAD, False)
        folder.mkdir()
        watcher.check()
        assert modes(watcher)["sessions"] is WatcherMode.NATIVE
        transcripts.settle()
        (folder / "a.jsonl").write_text("{}\n")
        assert transcripts.arrive()


def test_where_transcripts_are_no_source_nothing_watches_them(roots):
    with watching(roots) as (watcher, _):
        assert list(modes(watcher)) == ["."]
