"""Transcripts as Markdown for qmd: current, masked, and gone when they are to be."""

import json
import os
import time

import pytest

from memoryd_server.qmd.config import QmdSessionsConfig
from memoryd_server.qmd.index import export_sessions

DAY_NS = 86_400_000_000_000


def message(role, text):
    return json.dumps({"type": "message", "message": {"role": role, "content": text}}) + "\n"


class Sessions:
    def __init__(self, folder, retention_days=None):
        self.transcripts, self.folder = folder / "sessions", folder / "qmd" / "sessions"
        self.transcripts.mkdir(parents=True)
        self.config = QmdSessionsConfig(self.transcripts, self.folder, retention_days)
        self.now_ns = time.time_ns

    def write(self, name, text, age_days=0.0):
        file = self.transcripts / name
        file.write_text(text)
        then = time.time() - age_days * 86_400
        os.utime(file, (then, then))
        return file

    def export(self, *, own_folder=True):
        export_sessions(self.config, own_folder=own_folder, now_ns=time.time_ns)
        return {file.name: file.read_text() for file in sorted(self.folder.glob("*.md"))}


@pytest.fixture
def sessions(tmp_path):
    return Sessions(tmp_path)


def test_spoken_messages_are_exported_under_the_sessions_name(sessions):
    sessions.write("s1.jsonl", message("user", "hello\n world") + "half a li")
    sessions.write("empty.jsonl", "")
    sessions.write("s1.jsonl.reset.2026-01-01", message("assistant", "earlier"))
    sessions.write("s2.jsonl.bak", message("user", "a backup"))
    sessions.write("notes.txt", message("user", "no transcript"))
    assert sessions.export() == {
        "empty.md": "# Session empty\n\n(empty)\n",
        "s1.md": "# Session s1\n\nUser: hello world\n",
        "s1.reset.2026-01-01.md": "# Session s1.reset.2026-01-01\n\nAssistant: earlier\n",
    }


def test_only_a_transcript_that_changed_is_written_again(sessions):
    file = sessions.write("s1.jsonl", message("user", "one"))
    sessions.write("s2.jsonl", message("user", "two"))
    sessions.export()
    exported = {path.name: path.stat() for path in sessions.folder.glob("*.md")}
    assert exported["s1.md"].st_mtime_ns == file.stat().st_mtime_ns
    sessions.write("s1.jsonl", message("user", "one") + message("assistant", "more"), age_days=-0.1)
    assert "Assistant: more" in sessions.export()["s1.md"]
    after = {path.name: path.stat().st_ino for path in sessions.folder.glob("*.md")}
    assert after["s2.md"] == exported["s2.md"].st_ino
    assert after["s1.md"] != exported["s1.md"].st_ino


def test_an_upgrade_that_masks_other_secrets_exports_every_transcript_again(sessions):
    sessions.write("s1.jsonl", message("user", "the door: DB_PASS=hunter2"))
    sessions.export()
    shown = sessions.folder / "s1.md"
    status = shown.stat()
    shown.write_text("# Session s1\n\nUser: the door: DB_PASS=hunter2\n")
    os.utime(shown, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert "hunter2" in sessions.export()["s1.md"], "an export of this version is not read again"
    (sessions.folder / ".export-version").write_text("1")
    assert "hunter2" not in sessions.export()["s1.md"]
    written = shown.stat().st_ino
    sessions.export()
    assert shown.stat().st_ino == written, "once is enough"


def test_a_transcript_that_is_gone_or_too_old_is_taken_away(tmp_path):
    sessions = Sessions(tmp_path, retention_days=30)
    gone = sessions.write("gone.jsonl", message("user", "x"))
    sessions.write("old.jsonl", message("user", "x"), age_days=31)
    sessions.write("young.jsonl", message("user", "x"), age_days=29)
    assert set(sessions.export()) == {"gone.md", "young.md"}
    gone.unlink()
    (sessions.folder / "foreign.md").write_text("left by somebody\n")
    assert set(sessions.export()) == {"young.md"}


def test_in_a_folder_that_the_settings_name_only_our_own_files_are_removed(sessions):
    sessions.write("s1.jsonl", message("user", "x"))
    sessions.export(own_folder=False)
    (sessions.folder / "diary.md").write_text("# Diary\n")
    (sessions.transcripts / "s1.jsonl").unlink()
    assert sessions.export(own_folder=False) == {"diary.md": "# Diary\n"}


def test_without_transcripts_there_is_nothing(tmp_path):
    sessions = Sessions(tmp_path)
    sessions.transcripts.rmdir()
    assert sessions.export() == {}


def test_links_are_not_followed(sessions, tmp_path):
    outside = tmp_path / "outside.jsonl"
    outside.write_text(message("user", "secret"))
    (sessions.transcripts / "link.jsonl").symlink_to(outside)
    assert sessions.export() == {}


def test_secrets_are_masked(sessions):
    sessions.write("s.jsonl", message("user", "my key: sk-abcdefghijklmnopqrstuvwxyz012345"))
    assert "abcdefghijkl" not in sessions.export()["s.md"]


def test_nobody_else_may_read_them(sessions):
    sessions.write("s.jsonl", message("user", "x"))
    sessions.export()
    assert (sessions.folder / "s.md").stat().st_mode & 0o077 == 0
