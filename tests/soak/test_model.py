"""The model of the soak test finds what it is meant to find."""

from pathlib import Path

import pytest
from grpc import StatusCode

from memoryd.client import MemorydError
from soak.daemon import Usage
from soak.evidence import Evidence
from soak.model import AgentModel, Append, EntryModel, Note, is_part_of_edit, token_of
from soak.report import judge_growth
from soak.world import wrong_text

LOG = "memory/log.md"


@pytest.fixture
def agent():
    return AgentModel("main", Path("w"), Path("s"))


def sent(agent, number, **fields):
    append = Append(token_of(number), LOG, f"- {token_of(number)} heron\n- end", **fields)
    agent.sending(append)
    return append


def test_tokens_differ_and_have_one_length():
    tokens = {token_of(number) for number in range(20_000)}
    assert len(tokens) == 20_000
    assert {len(token) for token in tokens} == {7}


def test_an_acknowledged_append_must_be_there_once(agent):
    append = sent(agent, 1, answer=(1, 2))
    assert agent.wrong_copies(LOG, f"{append.text}\n") == []
    for content in ("", f"{append.text}\n{append.text}\n", append.text[:-1]):
        assert agent.wrong_copies(LOG, content)


def test_an_append_without_an_answer_may_be_missing_but_not_doubled_or_torn(agent):
    append = sent(agent, 1)
    assert agent.wrong_copies(LOG, "") == agent.wrong_copies(LOG, append.text) == []
    for content in (f"{append.text}\n{append.text}\n", append.text[:-1]):
        assert agent.wrong_copies(LOG, content)


def test_a_text_of_no_version_is_wrong(agent):
    agent.notes["memory/notes/a.md"] = Note("memory/notes/a.md", [("x", "one\ntwo\n"), ("y", "three\n")], 2)
    append = sent(agent, 1)
    assert not wrong_text(agent, "memory/notes/a.md", "two")
    assert not wrong_text(agent, "memory/notes/a.md", "one\nree\n")
    assert wrong_text(agent, "memory/notes/a.md", "two\nfour")
    assert not wrong_text(agent, LOG, f"\n{append.text}\n")
    assert wrong_text(agent, LOG, "never sent")
    assert wrong_text(agent, "memory/strange.md", "heron")


def test_entries_that_are_lost_doubled_forgotten_or_strange_are_found():
    model = EntryModel(stored={"1": "a", "2": "b"}, forgotten={"3": "c"}, sent={"a", "b", "c", "d"})
    assert model.problems([("1", "a"), ("2", "b"), ("4", "d")]) == []
    for listed in (
        [("1", "a")],
        [("1", "a"), ("2", "b"), ("3", "c")],
        [("1", "a"), ("2", "b"), ("4", "a")],
        [("1", "a"), ("2", "b"), ("2", "b")],
        [("1", "a"), ("2", "changed")],
    ):
        assert model.problems(listed)


@pytest.mark.parametrize(
    ("code", "reason", "down", "violations"),
    [
        (StatusCode.INTERNAL, "INTERNAL", False, 1),
        (StatusCode.INTERNAL, "", True, 1),
        (StatusCode.UNKNOWN, "", True, 1),
        (StatusCode.UNAVAILABLE, "", False, 1),
        (StatusCode.UNAVAILABLE, "", True, 0),
        (StatusCode.UNAVAILABLE, "INDEX_UNAVAILABLE", False, 1),
        (StatusCode.UNAVAILABLE, "EMBEDDING_UNAVAILABLE", False, 0),
        (StatusCode.ABORTED, "SYNC_CONFLICT", False, 0),
    ],
)
def test_statuses_are_judged(code, reason, down, violations, capsys):
    evidence = Evidence(down=down)
    evidence.failed("MemorySearch", MemorydError(code, reason), began=100.0)
    assert len(evidence.failures) == violations


def test_growth_is_judged_from_the_second_round_on(capsys):
    evidence = Evidence()
    steady = [Usage(mib, 60, 40, 1, 1.0) for mib in (100.0, 200.0, 205.0, 203.0)]
    judge_growth(steady, evidence)
    assert evidence.failures == []
    judge_growth([*steady, Usage(300.0, 70, 40, 1, 1.0)], evidence)
    assert len(evidence.failures) == 2


@pytest.mark.parametrize("line", ["edit 53", "edit ", "edit", "ed", "dit 53", " 53", "53", "3"])
def test_a_part_of_the_line_of_an_editor_is_known(line):
    assert is_part_of_edit(line)


@pytest.mark.parametrize("line", ["edit 53 edit 54", "edited 53", "53 edit", "x", "edit x"])
def test_any_other_line_is_not(line):
    assert not is_part_of_edit(line)
