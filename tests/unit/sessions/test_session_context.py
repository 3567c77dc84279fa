"""A session's context: the right files in the right order, within the budget, and what was cut can be read."""

import os
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.agent.files import read_range
from memoryd_server.sessions import context
from memoryd_server.sessions.context import MOST_CHARS, MOST_TOTAL_CHARS, USER_CHARS, load_context
from memoryd_server.sessions.daily_notes import StartupContext, log_paths
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots
from properties import examples

TODAY = date(2026, 2, 8)
YESTERDAYS, TODAYS = "memory/2026-02-07.md", "memory/2026-02-08.md"
MOST_BYTES = 8 * 1024 * 1024


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "memory").mkdir()
    return tmp_path


def put(workspace, **texts):
    names = {"long_term": "MEMORY.md", "yesterday": YESTERDAYS, "today": TODAYS}
    for name, text in texts.items():
        (workspace / names[name]).write_bytes(text if isinstance(text, bytes) else text.encode())


def load(workspace, *, main=True, budget=None, today=TODAY, most_bytes=MOST_BYTES, **startup):
    return load_context(
        FolderCorpus(Roots(str(workspace))),
        main_session=main,
        today=today,
        max_total_chars=budget,
        max_file_bytes=most_bytes,
        startup=StartupContext(**startup),
    )


def texts(files):
    return {file.path: file.text for file in files}


def test_the_private_main_session_loads_the_long_term_memory_first(workspace):
    put(workspace, long_term="I", yesterday="am", today="here\n")
    files = load(workspace)
    assert [(f.path, f.text, f.start_line, f.end_line) for f in files] == [
        ("MEMORY.md", "I", 1, 1),
        (YESTERDAYS, "am", 1, 1),
        (TODAYS, "here\n", 1, 2),
    ]
    assert not any(file.truncated or file.problem for file in files)
    assert all(file.exists for file in files)


def test_only_the_main_session_is_shown_the_long_term_memory(workspace):
    put(workspace, long_term="secret", today="here")
    assert texts(load(workspace, main=False)) == {YESTERDAYS: "", TODAYS: "here"}


def test_files_that_are_not_there_are_named_all_the_same(workspace):
    files = load(workspace)
    assert [(file.path, file.exists, file.text, file.start_line) for file in files] == [
        ("MEMORY.md", False, "", 0),
        (YESTERDAYS, False, "", 0),
        (TODAYS, False, "", 0),
    ]


def test_the_older_name_of_the_long_term_memory_serves_where_the_newer_is_absent(workspace):
    (workspace / "memory.md").write_text("old name")
    assert load(workspace)[0].path == "memory.md"
    (workspace / "MEMORY.md").write_text("new name")
    assert load(workspace)[0].path == "MEMORY.md"


@pytest.mark.parametrize(
    ("today", "paths"),
    [
        (date(2026, 1, 1), ("memory/2025-12-31.md", "memory/2026-01-01.md")),
        (date(2028, 3, 1), ("memory/2028-02-29.md", "memory/2028-03-01.md")),
        (date(2026, 3, 1), ("memory/2026-02-28.md", "memory/2026-03-01.md")),
        (date.min, ("memory/0001-01-01.md",)),
        (date.max, ("memory/9999-12-30.md", "memory/9999-12-31.md")),
    ],
)
def test_the_logs_are_those_of_two_days_of_the_calendar(today, paths):
    assert log_paths(today) == paths


@pytest.mark.parametrize(
    ("budget", "shown"),
    [
        (1_000, ("a\nb\nc\nd", "1\n2\n3\n4", "5\n6\n7\n8")),
        (21, ("a\nb\nc\nd", "1\n2\n3\n4", "5\n6\n7\n8")),
        (20, ("a\nb\nc", "1\n2\n3\n4", "5\n6\n7\n8")),
        (12, ("a\nb", "3\n4", "7\n8")),
        (3, ("a", "4", "8")),
        (2, ("", "4", "8")),
        (1, ("", "", "8")),
    ],
)
def test_the_budget_is_shared_and_logs_keep_their_end(workspace, budget, shown):
    put(workspace, long_term="a\nb\nc\nd", yesterday="1\n2\n3\n4", today="5\n6\n7\n8")
    assert tuple(texts(load(workspace, budget=budget)).values()) == shown


def test_unused_budget_of_a_short_file_goes_to_the_others(workspace):
    put(workspace, long_term="x\n" * 500, yesterday="short", today="y\n" * 10)
    files = load(workspace, budget=100)
    assert [file.truncated for file in files] == [True, False, False]
    assert len(files[0].text) >= 100 - 5 - 20 - 2


@pytest.mark.parametrize(("budget", "text", "lines"), [(8, "word wor", (1, 1)), (4, "word", (1, 1))])
def test_of_a_line_that_does_not_fit_the_beginning_is_kept(workspace, budget, text, lines):
    put(workspace, today="word word word")
    [file] = [file for file in load(workspace, main=False, budget=budget) if file.text]
    assert (file.text, file.start_line, file.end_line, file.truncated) == (text, *lines, True)


def test_empty_lines_at_the_end_do_not_hide_a_line_that_does_not_fit(workspace):
    put(workspace, today="first\n" + "x" * 50 + "\n\n")
    file = load(workspace, main=False, budget=10)[-1]
    assert (file.text, file.start_line, file.end_line) == ("x" * 10, 2, 2)


def test_no_character_is_cut_in_two(workspace):
    put(workspace, today="ab\N{COMBINING ACUTE ACCENT}cd")
    assert load(workspace, main=False, budget=2)[-1].text == "a"


def test_bytes_that_are_no_text_are_shown_as_such(workspace):
    put(workspace, today=b"a\xffb")
    assert load(workspace)[-1].text == "a\N{REPLACEMENT CHARACTER}b"


def test_a_file_that_cannot_be_read_is_reported_and_the_others_are_shown(workspace):
    (workspace / "secret").write_text("secret")
    (workspace / "MEMORY.md").symlink_to(workspace / "secret")
    put(workspace, yesterday="x" * 100, today="here")
    long_term, yesterday, today = load(workspace, most_bytes=50)
    assert (long_term.text, long_term.exists, "link" in long_term.problem) == ("", True, True)
    assert (yesterday.text, "50 bytes" in yesterday.problem) == ("", True)
    assert (today.text, today.problem) == ("here", "")


def test_without_a_budget_one_file_is_limited_all_the_same(workspace):
    put(workspace, today="x" * 79 + "\n", yesterday="line\n" * (MOST_CHARS // 5 + 10))
    yesterday, today = load(workspace, main=False)
    assert MOST_CHARS - 5 <= len(yesterday.text) <= MOST_CHARS
    assert (yesterday.truncated, today.truncated) == (True, False)


@given(
    st.lists(st.text("ab é漢\n\r", max_size=60), min_size=3, max_size=3),
    st.integers(1, 120),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))
def test_shown_text_is_within_the_budget_and_at_its_stated_lines(workspace, contents, budget):
    put(workspace, **dict(zip(("long_term", "yesterday", "today"), contents, strict=True)))
    files = load(workspace, budget=budget)
    assert sum(len(file.text) for file in files) <= budget
    for file, whole in zip(files, contents, strict=True):
        assert file.truncated == (file.text != whole)
        if not file.text:
            continue
        corpus, count = FolderCorpus(Roots(str(workspace))), file.end_line - file.start_line + 1
        lines = read_range(corpus, file.path, file.start_line, count, MOST_BYTES)
        assert lines.text.startswith(file.text) if file.start_line == file.end_line else lines.text == file.text
    if sum(map(len, contents)) <= budget:
        assert [file.text for file in files] == contents


def test_the_constants_leave_room_for_a_reply():
    assert 4 * 3 * context.MOST_CHARS < 1024 * 1024
    assert 4 * context.MOST_TOTAL_CHARS <= 2 * 1024 * 1024


def put_notes(workspace, *names, text="note"):
    """Write notes, each changed a second after the one before."""
    for number, name in enumerate(names):
        (workspace / "memory" / name).write_text(text)
        os.utime(workspace / "memory" / name, (1_000 + number, 1_000 + number))


def test_the_user_file_follows_the_long_term_memory_in_the_private_main_session_only(workspace):
    put(workspace, long_term="I", today="here")
    (workspace / "USER.md").write_text("born in Oslo")
    assert list(texts(load(workspace)).items())[:2] == [("MEMORY.md", "I"), ("USER.md", "born in Oslo")]
    assert list(texts(load(workspace, main=False))) == [YESTERDAYS, TODAYS]


def test_the_user_file_has_a_limit_of_its_own(workspace):
    put(workspace, long_term="m\n" * 5_000)
    (workspace / "USER.md").write_text("u\n" * 5_000)
    long_term, user, *_ = load(workspace)
    assert (long_term.truncated, len(long_term.text)) == (False, 10_000)
    assert (user.truncated, user.start_line) == (True, 1)
    assert USER_CHARS - 2 <= len(user.text) <= USER_CHARS


def test_a_user_file_that_is_a_link_is_reported(workspace):
    (workspace / "secret").write_text("secret")
    (workspace / "USER.md").symlink_to(workspace / "secret")
    user = load(workspace)[1]
    assert (user.path, user.text, "link" in user.problem) == ("USER.md", "", True)


def test_the_notes_of_a_day_follow_its_log(workspace):
    put_notes(workspace, "2026-02-08-b.md", "2026-02-07-x.md", "2026-02-08-a.md", "2026-02-06-old.md")
    assert [file.path for file in load(workspace, main=False)] == [
        YESTERDAYS,
        "memory/2026-02-07-x.md",
        TODAYS,
        "memory/2026-02-08-b.md",
        "memory/2026-02-08-a.md",
    ]


def test_of_many_notes_of_a_day_the_four_that_changed_last_are_loaded(workspace):
    put_notes(workspace, *(f"2026-02-08-{name}.md" for name in "feabdc"))
    slugged = [file.path for file in load(workspace, main=False)][2:]
    assert slugged == [f"memory/2026-02-08-{name}.md" for name in "abdc"]


def test_only_markdown_files_with_the_day_and_a_hyphen_are_notes(workspace):
    put_notes(workspace, "2026-02-08.txt", "2026-02-08-a.txt", "2026-02-08x.md", "2026-02-08-.MD", "x-2026-02-08-a.md")
    (workspace / "memory" / "2026-02-08-folder.md").mkdir()
    (workspace / "memory" / "2026-02-08-link.md").symlink_to(workspace / "memory" / "2026-02-08x.md")
    (workspace / "memory" / os.fsdecode(b"2026-02-08-\xff.md")).write_text("no text")
    assert [file.path for file in load(workspace, main=False)] == [YESTERDAYS, TODAYS]


def test_notes_that_the_ignore_file_excludes_are_not_loaded(workspace):
    put_notes(workspace, "2026-02-08-draft.md", "2026-02-08-kept.md")
    (workspace / ".memoryignore").write_text("*-draft.md\n")
    assert [file.path for file in load(workspace, main=False)][2:] == ["memory/2026-02-08-kept.md"]
    (workspace / ".memoryignore").write_text("*\n" * 1_000)
    assert [file.path for file in load(workspace, main=False)] == [YESTERDAYS, TODAYS]


def test_a_note_that_is_too_long_keeps_its_beginning_and_a_log_its_end(workspace):
    put(workspace, today="1\n2\n3")
    put_notes(workspace, "2026-02-08-a.md", text="1\n2\n3")
    _, log, note = load(workspace, main=False, max_file_chars=3)
    assert (log.text, note.text) == ("2\n3", "1\n2")


@pytest.mark.parametrize(
    ("startup", "paths"),
    [
        ({"daily_memory_days": 1}, [TODAYS, "memory/2026-02-08-a.md"]),
        ({"daily_memory_days": 3}, ["memory/2026-02-06.md", YESTERDAYS, TODAYS, "memory/2026-02-08-a.md"]),
        ({"enabled": False}, []),
    ],
)
def test_the_settings_select_the_days(workspace, startup, paths):
    put_notes(workspace, "2026-02-08-a.md")
    assert [file.path for file in load(workspace, main=False, **startup)] == paths


def test_the_limits_of_notes_do_not_apply_to_the_long_term_memory(workspace):
    put(workspace, long_term="m" * 500, yesterday="y" * 500, today="t" * 500)
    files = load(workspace, max_file_chars=100, max_total_chars=120)
    assert [len(file.text) for file in files] == [500, 60, 60]
    assert [len(file.text) for file in load(workspace, budget=90, max_total_chars=40)] == [50, 20, 20]


def test_a_note_above_the_size_limit_names_the_setting(workspace):
    put(workspace, long_term="m" * 50, today="t" * 50)
    long_term, _, today = load(workspace, max_file_bytes=20)
    assert (long_term.text, today.text) == ("m" * 50, "")
    assert today.problem == "it has more than 20 bytes (agents.defaults.startupContext.maxFileBytes)"
    assert "memoryd.limits" in load(workspace, most_bytes=10, max_file_bytes=20)[2].problem


def test_many_long_notes_are_limited_together(workspace):
    for day in range(1, 9):
        (workspace / "memory" / f"2026-02-0{day}.md").write_text("x" * MOST_CHARS)
        put_notes(workspace, f"2026-02-0{day}-a.md", text="y" * MOST_CHARS)
    files = load(workspace, main=False, daily_memory_days=14)
    assert sum(len(file.text) for file in files) <= MOST_TOTAL_CHARS
    assert len([file for file in files if file.text]) == 16
