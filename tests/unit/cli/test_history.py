"""Diffs at a terminal and elsewhere."""

import contextlib
import io

import pytest

from memoryd_server.cli.history import print_diff

DIFF = "--- memory/a.md\n+++ memory/a.md\n@@ -1 +1 @@\n-one\n+\x1b[2Jtwo\r\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(stream, **options):
    with contextlib.redirect_stdout(stream):
        print_diff(DIFF, **options)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def with_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_diff_is_unchanged_if_the_output_is_not_a_terminal():
    assert printed(io.StringIO()) == DIFF


def test_a_diff_at_a_terminal_has_colours_and_no_control_characters_of_the_file():
    *head, removed, added = printed(Terminal()).splitlines()
    assert "\x1b[31m" in removed
    assert "\x1b[32m" in added
    assert "[2Jtwo" in added
    assert "\x1b[2J" not in added
    assert not {"\x1b[31m", "\x1b[32m"} & set(head[0] + head[1])


def test_no_color_turns_colours_off(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(Terminal()) == "--- memory/a.md\n+++ memory/a.md\n@@ -1 +1 @@\n-one\n+[2Jtwo\n"


def test_a_cut_diff_is_marked(capsys):
    print_diff(DIFF, truncated=True)
    assert capsys.readouterr().err == "memoryd: the diff is longer than shown\n"
