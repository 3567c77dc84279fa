"""The recall section says what an agent has to do, with the tools it has, in the words that its session may see."""

import itertools
import re

import pytest

from memoryd_server.sessions.recall import TOOL_NAMES, recall_prompt

BOTH = ("memory_search", "memory_get")
EVERY = [
    (tools, cites, main)
    for tools in (BOTH, BOTH[:1], BOTH[1:])
    for cites, main in itertools.product((True, False), repeat=2)
]


def prompt(tools=BOTH, *, cites=True, main_session=True):
    return recall_prompt(tools, cites=cites, main_session=main_session)


@pytest.mark.parametrize(("tools", "cites", "main"), EVERY)
def test_the_prompt_names_the_available_tools_alone(tools, cites, main):
    text = prompt(tools, cites=cites, main_session=main)
    assert {name for name in TOOL_NAMES if name in text} == set(tools)
    assert text.startswith("## ")


@pytest.mark.parametrize("tools", [(), ("exec",), ("memory_searching", "get")])
def test_without_a_memory_tool_there_is_no_section(tools):
    assert prompt(tools) == ""


def test_the_search_comes_before_the_answer_and_the_reading_after_the_search():
    text = prompt()
    assert text.index("Before you answer") < text.index("memory_search") < text.index("memory_get")


@pytest.mark.parametrize(("tools", "cites", "main"), EVERY)
def test_the_prompt_asks_to_admit_gaps_and_to_write_down_facts(tools, cites, main):
    text = prompt(tools, cites=cites, main_session=main)
    assert "say that you looked" in text
    assert "asked to remember something, write it down" in text
    assert "memory/YYYY-MM-DD.md" in text


def test_paths_are_cited_only_where_citations_are_on():
    assert "path#line" in prompt()
    assert "path#line" not in prompt(cites=False)
    assert "do not name files or line numbers" in prompt(cites=False)


def test_only_the_private_main_session_hears_of_the_long_term_memory():
    assert "MEMORY.md" in prompt()
    assert "MEMORY.md" not in prompt(main_session=False)


@pytest.mark.parametrize(("tools", "cites", "main"), EVERY)
def test_the_prompt_is_short_and_the_same_every_day(tools, cites, main):
    text = prompt(tools, cites=cites, main_session=main)
    assert len(text) < 800
    assert not re.search(r"\d{4}", text)
    assert text == prompt(tools, cites=cites, main_session=main)
