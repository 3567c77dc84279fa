"""An archive holds a session's last messages in a new file, once, and no secret."""

import copy
import json
import os
import re
import threading
import time
import uuid
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.errors import FileNotFound, PathNotAllowed, WorkspaceReadOnly
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from memoryd_server.sqlite import SqliteWriteHistory
from memoryd_server.writing import files
from memoryd_server.writing.archive import Archiver, ArchiveRequest
from memoryd_server.writing.folder_writer import FolderWriter
from properties import examples

ZONE = ZoneInfo("Europe/Berlin")
LOCAL = datetime(2026, 2, 8, 13, 5, tzinfo=ZONE)
KEY = "sk-live-0123456789abcdefghijklmnop"


def now_ms():
    return time.time_ns() // 1_000_000


def said(role, text, **more):
    return json.dumps(
        {"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}], **more}}
    )


def talk(*texts):
    """User and assistant in turn."""
    return "".join(said(("user", "assistant")[n % 2], text) + "\n" for n, text in enumerate(texts))


class ArchiveFixture:
    """A workspace and a sessions folder."""

    def __init__(self, folder):
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.sessions = folder / "sessions"
        self.sessions.mkdir()
        self.archiver = self.new_archiver()

    def new_archiver(self):
        return Archiver(
            FolderWriter(
                "main",
                Roots(str(self.workspace)),
                # Not opened: an archive is not in the history.
                SqliteWriteHistory(self.sessions / "none", max_age_seconds=1, max_bytes=1, now_ms=now_ms),
                ledger_path=str(self.sessions / "none"),
                max_file_bytes=1 << 20,
                now_ms=now_ms,
                new_id=lambda: uuid.uuid4().hex,
            )
        )

    def put(self, name, text, *, age=0):
        file = self.sessions / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(file, (1_770_000_000 - age,) * 2)

    def archive(self, transcript="abc", *, count=15, slug="talk", key="agent:main:main", local=LOCAL):
        request = ArchiveRequest(transcript, count, slug, key, local)
        return self.archiver.archive(self.corpus, request)

    @property
    def corpus(self):
        return FolderCorpus(Roots(str(self.workspace)), str(self.sessions))

    def text(self, path):
        return (self.workspace / path).read_text("utf-8")

    def files(self):
        return sorted(str(file.relative_to(self.workspace)) for file in self.workspace.rglob("*") if file.is_file())


@pytest.fixture
def place(tmp_path):
    return ArchiveFixture(tmp_path)


def test_the_archive_names_its_session_and_holds_its_messages(place):
    place.put("abc.jsonl", talk("how is the harbour?", "calm\n\n# and   cold"))
    done = place.archive()
    assert (done.path, done.messages, done.already) == ("memory/2026-02-08-talk.md", 2, False)
    assert place.text(done.path) == (
        "# Session: 2026-02-08 13:05+01:00 (Europe/Berlin)\n\n"
        "- Session key: agent:main:main\n- Session id: abc\n- Messages: 2\n\n"
        "## Conversation\n\nUser: how is the harbour?\n\nAssistant: calm # and cold\n"
    )
    assert place.files() == [done.path]


def test_commands_and_notices_do_not_count_among_the_last_messages(place):
    lines = talk("first", "second", "/new", "third", "/etc/hosts is missing", "HEARTBEAT_OK", "/model gpt now", "last")
    other = said("user", "from elsewhere", provenance={"kind": "inter_session"}) + "\n"
    place.put("abc.jsonl", lines + other * 20 + '{"type":"session"}\nnot json\n' + lines[:9])
    text = place.text(place.archive(count=3).path)
    shown = [line for line in text.splitlines() if line.startswith(("User:", "Assistant:"))]
    assert shown == ["Assistant: third", "User: /etc/hosts is missing", "Assistant: last"]


def test_secrets_are_masked_in_the_text_and_do_not_get_into_the_name(place):
    place.put("abc.jsonl", talk(f"deploy with OPENAI_API_KEY={KEY} tonight please", f"used Bearer {KEY}"))
    done = place.archive(slug="")
    assert KEY not in place.text(done.path)
    assert KEY[:10] not in done.path
    assert done.path == "memory/2026-02-08-deploy-tonight.md"
    assert KEY in (place.sessions / "abc.jsonl").read_text()


@pytest.mark.parametrize(
    ("said", "slug"),
    [
        (("How do we rename the staging database?", "so"), "rename-staging-database"),
        (("hi", "hello", "the printer on floor two is broken again", "oh"), "hi-printer-floor-two-broken"),
        (("Wie starte ich den Webserver neu?", "so"), "starte-webserver-neu"),
        (("Как переименовать базу данных?", "так"), "переименовать-базу-данных"),
        (("見積書の送付先を教えて", "はい"), "見積書の送付先を教えて"),
        (("https://example.com/a?b=c ../../etc/passwd", "no"), "etc-passwd"),
        (("word " * 50, "x"), "word-word-word-word-word-word"),
        (("x" * 500, "x"), "x" * 60),
        (("\N{GRINNING FACE} !!!", "?"), "1305"),
        (("the of and", "?"), "1305"),
    ],
)
def test_a_name_is_made_from_what_the_user_said_first_else_from_the_time(place, said, slug):
    place.put("abc.jsonl", talk(*said))
    assert place.archive(slug="").path == f"memory/2026-02-08-{slug}.md"


def test_nothing_is_ever_written_over(place):
    place.put("abc.jsonl", talk("one", "two"))
    first = place.archive()
    (place.workspace / first.path).write_text("edited by hand")
    place.put("abc.jsonl", talk("three", "four"))
    assert place.archive().path == "memory/2026-02-08-talk-2.md"
    place.put("abc.jsonl", talk("five", "six"))
    assert place.archive().path == "memory/2026-02-08-talk-3.md"
    assert place.text(first.path) == "edited by hand"
    assert "three" in place.text("memory/2026-02-08-talk-2.md")


@pytest.mark.parametrize("slug", ["talk", ""])
def test_a_call_that_is_repeated_writes_nothing(place, slug):
    place.put("abc.jsonl", talk("the of", "a"))
    first = place.archive(slug=slug)
    later = LOCAL.replace(hour=23, minute=59)
    after_midnight = datetime(2026, 2, 9, 0, 1, tzinfo=ZONE)
    place.put("abc.jsonl.reset.2026-02-08T12-05-30.000Z", talk("the of", "a"))
    (place.sessions / "abc.jsonl").unlink()
    for local in (LOCAL, later, after_midnight):
        again = place.archive(slug=slug, local=local)
        assert (again.path, again.messages, again.already) == (first.path, 2, True)
    assert place.files() == [first.path]


def test_another_session_that_said_the_same_has_its_own_archive(place):
    place.put("abc.jsonl", talk("one", "two"))
    place.put("def.jsonl", talk("one", "two"))
    assert place.archive("abc").path != place.archive("def").path


def test_of_many_calls_at_once_one_writes(place):
    place.put("abc.jsonl", talk("one", "two"))
    found = []
    threads = [threading.Thread(target=lambda: found.append(place.archive())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done.already for done in found) == [False] + [True] * 7
    assert place.files() == ["memory/2026-02-08-talk.md"]


@pytest.mark.parametrize(
    ("files", "asked", "shown"),
    [
        ({"abc.jsonl": ("live", 0)}, "abc", "live"),
        ({"abc.jsonl": ("live", 0)}, "abc.jsonl", "live"),
        ({"abc.jsonl.reset.1": ("old", 9), "abc.jsonl.reset.2": ("new", 5)}, "abc", "new"),
        ({"abc.jsonl.reset.1": ("old", 9), "abc.jsonl.reset.2": ("new", 5)}, "abc.jsonl", "new"),
        ({"abc.jsonl.reset.1": ("old", 9), "abc.jsonl.reset.2": ("new", 5)}, "abc.jsonl.reset.1", "old"),
        ({"abc.jsonl": ("/new", 0), "abc.jsonl.reset.1": ("before", 5)}, "abc", "before"),
        ({"abc.jsonl": ("", 0), "abc.jsonl.deleted.1": ("before", 5)}, "abc.jsonl", "before"),
        ({"abc.jsonl": ("live", 9), "abc.jsonl.reset.1": ("before", 0)}, "abc", "live"),
        ({"abc-topic-7.jsonl": ("topic", 0), "abcd.jsonl": ("other", 0)}, "abc", "topic"),
        ({"abc-topic-7.jsonl": ("topic", 0), "abc.jsonl.reset.1": ("before", 5)}, "abc", "before"),
    ],
)
def test_the_transcript_is_found_wherever_it_went(place, files, asked, shown):
    for name, (text, age) in files.items():
        place.put(name, talk(text) if text else "", age=age)
    assert f"User: {shown}\n" in place.text(place.archive(asked).path)


@pytest.mark.parametrize("content", ["", "\n", talk("/new"), '{"type":"session"}\n', b"\xff\xfe\0", '{"type":"mess'])
def test_where_nothing_was_said_nothing_is_written(place, content):
    place.put("abc.jsonl", content)
    done = place.archive()
    assert (done.path, done.messages, done.already) == ("", 0, False)
    assert place.files() == []


@pytest.mark.parametrize("asked", ["", ".", "..", "../abc.jsonl", "/etc/passwd", "a/b", "abc\0"])
def test_an_invalid_transcript_name_is_refused(place, asked):
    place.put("abc.jsonl", talk("one"))
    with pytest.raises(PathNotAllowed):
        place.archive(asked)


@pytest.mark.parametrize("asked", ["ab", "abcd.jsonl", "abc.jsonl.bak", "abc.jsonl.reset.9", "Abc"])
def test_a_missing_transcript_is_reported(place, asked):
    place.put("other.jsonl", talk("one"))
    place.put("abc.jsonl.bak", talk("one"))
    with pytest.raises(FileNotFound, match="sessions folder"):
        place.archive(asked)


def test_a_link_is_no_transcript(place, tmp_path):
    (tmp_path / "outside").write_text(talk("secret"))
    (place.sessions / "abc.jsonl").symlink_to(tmp_path / "outside")
    with pytest.raises(FileNotFound):
        place.archive()


def test_without_a_sessions_folder_there_is_no_transcript(place):
    place.sessions.rmdir()
    with pytest.raises(FileNotFound):
        place.archive()


def test_a_memory_folder_that_is_a_link_is_not_written_through(place, tmp_path):
    (tmp_path / "outside").mkdir()
    (place.workspace / "memory").symlink_to(tmp_path / "outside")
    place.put("abc.jsonl", talk("one"))
    with pytest.raises(PathNotAllowed):
        place.archive()
    assert list((tmp_path / "outside").iterdir()) == []


def test_an_existing_file_of_the_name_is_left_alone(place, tmp_path):
    place.put("abc.jsonl", talk("one"))
    memory = place.workspace / "memory"
    memory.mkdir()
    (memory / "2026-02-08-talk.md").symlink_to(tmp_path / "absent")
    (memory / "2026-02-08-talk-2.md").mkdir()
    assert place.archive().path == "memory/2026-02-08-talk-3.md"
    assert not (tmp_path / "absent").exists()


def test_a_file_system_without_second_names_is_served(place, monkeypatch):
    def link(*arguments, **options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files.os, "link", link)
    place.put("abc.jsonl", talk("one"))
    assert place.archive().path == "memory/2026-02-08-talk.md"
    place.put("abc.jsonl", talk("two"))
    assert place.archive().path == "memory/2026-02-08-talk-2.md"
    assert place.files() == ["memory/2026-02-08-talk-2.md", "memory/2026-02-08-talk.md"]


@pytest.mark.parametrize("links", [True, False])
def test_a_write_that_fails_leaves_nothing(place, monkeypatch, links):
    def write_all(fd, data):
        os.write(fd, data[:10])
        raise OSError(30, "Read-only file system")

    if not links:
        monkeypatch.setattr(files, "_rename_in_one_step", lambda *_: False)
    monkeypatch.setattr(files, "write_all", write_all)
    place.put("abc.jsonl", talk("one"))
    with pytest.raises(WorkspaceReadOnly):
        place.archive()
    assert place.files() == []


def test_remains_of_a_crashed_write_are_deleted_by_a_later_one(place):
    (place.workspace / "memory").mkdir()
    crashed, running = (place.workspace / "memory" / f".main.{name}archive.tmp" for name in ("", "f00d."))
    for draft in (crashed, running):
        draft.write_text("half")
    os.utime(crashed, (time.time() - 4_000,) * 2)
    place.put("abc.jsonl", talk("one"))
    # The younger one can be that of another daemon.
    assert sorted(["memory/.main.f00d.archive.tmp", place.archive().path]) == place.files()


def test_archives_of_two_daemons_with_one_workspace_are_all_kept(place):
    archivers = [place.archiver, place.new_archiver()]
    for number in range(80):
        place.put(f"s{number}.jsonl", talk(f"talk {number} " + "and more " * 2_000))
    paths = {}

    def archive(side):
        place_of_side = copy.copy(place)
        place_of_side.archiver = archivers[side]
        for number in range(side, 80, 2):
            paths[number] = place_of_side.archive(f"s{number}", slug=f"talk-{number}").path

    threads = [threading.Thread(target=archive, args=(side,)) for side in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 80
    assert all(f"talk {number} and" in place.text(path) for number, path in paths.items())


@pytest.mark.parametrize("name", ["a\nb.jsonl", b"\xff\xfe.jsonl"])
def test_a_file_whose_name_is_no_plain_text_is_no_transcript(place, name):
    file = place.sessions / os.fsdecode(name)
    file.write_text(talk("one"))
    with pytest.raises(FileNotFound, match="transcript"):
        place.corpus.last_messages(file.name, 5, lambda _: True)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=6), st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(80))
def test_whatever_was_said_is_one_line_a_message_in_a_file_that_is_new(place, texts, noise):
    place.put("abc.jsonl", noise + b"\n" + talk(*texts).encode() + noise)
    before = place.files()
    done = place.archive(slug="")
    text = place.text(done.path) if done.path else ""
    assert len(re.findall(r"^(?:User|Assistant): \S", text, re.MULTILINE)) == done.messages <= len(texts)
    assert len(re.findall(r"^#", text, re.MULTILINE)) == (2 if done.path else 0)
    assert set(place.files()) - set(before) == ({done.path} if done.path and not done.already else set())
    assert re.fullmatch(r"memory/2026-02-08-[^/\s]{1,63}\.md", done.path) or not done.path


def test_the_first_day_of_the_calendar_has_none_before_it(place):
    place.put("abc.jsonl", talk("one"))
    local = datetime.combine(date.min, datetime.min.time(), tzinfo=ZoneInfo("UTC"))
    assert place.archive(local=local).path == "memory/0001-01-01-talk.md"
    assert place.archive(local=local).already
