"""Any range of a transcript's lines reads as what was said in them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.agent.files import MOST_BYTES, read_range
from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from memoryd_server.sources.transcript_text import parse_message
from transcript_fixture import TOOL, assistant, user

LINES = st.lists(st.sampled_from([user("a b"), assistant("c"), TOOL, "\n", "half\n", user("é" * 50)]), max_size=15)


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "workspace").mkdir()
    return FolderCorpus(Roots(str(tmp_path / "workspace")), str(tmp_path / "sessions"))


def read(corpus, start=1, count=2_000, path="sessions/s.jsonl"):
    return read_range(corpus, path, start, count, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, st.sampled_from(["", user("cut")[:-5], user("whole")[:-1]]), st.integers(1, 20), st.integers(1, 20))
def test_each_line_of_a_range_is_what_its_record_says_or_empty(corpus, lines, end, start, count):
    text = "".join(lines) + end
    Path(corpus.sessions, "s.jsonl").write_text(text)
    whole = [message.labelled if (message := parse_message(1, line)) else "" for line in text.split("\n")]
    whole = whole if end else whole[:-1]
    found = read(corpus, start, count)
    wanted = whole[start - 1 : start - 1 + count]
    assert found.text == "\n".join(wanted)
    assert (found.start_line, found.end_line) == (start, start + len(wanted) - 1)
    assert found.total_lines == len(whole)
    assert found.next_start_line == (found.end_line + 1 if wanted and found.end_line < len(whole) else 0)


def test_a_reply_is_bounded_and_says_where_to_go_on(corpus):
    Path(corpus.sessions, "s.jsonl").write_text("".join(user("x" * 100_000) for _ in range(5)))
    first = read(corpus)
    assert len(first.text.encode()) <= MOST_BYTES
    assert (first.end_line, first.next_start_line, first.total_lines) == (2, 3, 5)
    Path(corpus.sessions, "s.jsonl").write_text(user("x" * 500_000))
    assert read(corpus).truncated


@pytest.mark.parametrize(
    "path",
    [
        "sessions/../s.jsonl",
        "sessions/a/s.jsonl",
        "sessions//s.jsonl",
        "sessions/s.jsonl.bak",
        "sessions/s.json",
        "./sessions/s.jsonl",
        "sessions/s.jsonl\0",
        "sessions/link.jsonl",
        "sessions/folder.jsonl",
        "../sessions/s.jsonl",
    ],
)
def test_nothing_else_is_read_by_such_a_path(corpus, path):
    folder = Path(corpus.sessions)
    for name in ("s.jsonl", "s.jsonl.bak", "s.json", "a/s.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(user("hello"))
    (folder / "link.jsonl").symlink_to(folder / "s.jsonl")
    (folder / "folder.jsonl").mkdir()
    with pytest.raises(PathNotAllowed):
        read(corpus, path=path)
    assert read(corpus).text == "User: hello"
    with pytest.raises(FileNotFound):
        read(corpus, path="sessions/gone.jsonl")


def test_a_note_in_a_folder_of_the_same_name_is_a_note(corpus, tmp_path):
    (tmp_path / "workspace" / "sessions").mkdir()
    (tmp_path / "workspace" / "sessions" / "s.md").write_text("A note.")
    roots = Roots(corpus.roots.workspace, ("sessions",))
    found = read_range(FolderCorpus(roots, corpus.sessions), "sessions/s.md", 1, 10, 1_000)
    assert found.text == "A note."
