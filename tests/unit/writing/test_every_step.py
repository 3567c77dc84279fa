"""An append killed at each of its system calls: the text occurs once, and nothing else has changed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memoryd_server.writing.ledger import AppendState, Ledger, LedgerEntry, encode
from unit.writing.patient import PatientAppender

pytestmark = pytest.mark.faults

CHILD = Path(__file__).parent / "killed_child.py"
LOG = "memory/2026-02-08.md"
TEXT = "- decided to keep the cache\n- 候鳥は北へ"
APPEND = {"text": TEXT, "path": LOG, "key": "k", "heading": ""}
MUTATING = {"mkdir", "open", "write"}


class KilledAppend:
    """A workspace and its ledger, as a dead process left them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.log = self.folder / "workspace" / LOG
        self.ledger = self.folder / "state" / "memory" / "main.appends"
        self.appender = PatientAppender(self.folder / "workspace", self.ledger)

    def written(self):
        return self.log.read_bytes() if self.log.exists() else b""

    def append(self, text=TEXT, key="k", heading=""):
        return self.appender.append(text, path=LOG, idempotency_key=key, heading=heading)

    def lines(self, answer):
        return b"\n".join(self.written().split(b"\n")[answer.start_line - 1 : answer.end_line]).decode()


@pytest.fixture
def beginning(tmp_path):
    """A folder to begin from, with the bytes that the log has before."""

    def make(before=b"", ledger=b"", name="b"):
        folder = tmp_path / name
        (folder / "workspace").mkdir(parents=True)
        fixture = KilledAppend(folder)
        if before:
            fixture.log.parent.mkdir()
            fixture.log.write_bytes(before)
        if ledger:
            fixture.ledger.parent.mkdir(parents=True)
            fixture.ledger.write_bytes(ledger)
        return folder

    return make


def killed(tmp_path, beginnings, **append):
    """Every outcome of the append killed at each call; there are more than a few, or the wrapping has failed."""
    folder = tmp_path / f"outcomes-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    command = [sys.executable, CHILD, folder, json.dumps({**APPEND, **append}), *beginnings]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {outcome["call"] for outcome in found} >= MUTATING
    return found


def check_retry(outcome, before, block, *, recover, heading=""):
    """The retry completes what the dead process began, and a second one finds it done."""
    fixture = KilledAppend(outcome["folder"])
    assert (before + block).startswith(fixture.written()), outcome
    assert fixture.written().startswith(before), outcome
    if recover:
        fixture.appender.recover()
        assert (before + block).startswith(fixture.written()), outcome
    answer = fixture.append(heading=heading)
    assert fixture.written() == before + block, outcome
    assert fixture.lines(answer) == block.decode().strip("\n"), outcome
    again = fixture.append(heading=heading)
    assert (again.start_line, again.end_line, again.already_appended) == (answer.start_line, answer.end_line, True)
    assert fixture.written() == before + block, outcome
    assert [file.name for file in fixture.ledger.parent.iterdir()] == ["main.appends"], outcome
    assert fixture.appender.issues() == ()


@pytest.mark.slow
@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize(
    ("before", "heading", "lead"),
    [
        (b"", "", ""),
        (b"earlier\n", "", ""),
        (b"no newline", "", "\n"),
        (b"earlier\n" + b"x" * 8_000 + b"\n", "Decisions", "\n## Decisions\n\n"),
    ],
)
def test_a_retry_makes_exactly_one_entry(tmp_path, beginning, *, before, heading, lead, recover):
    found = killed(tmp_path, [beginning(before)], heading=heading)
    assert len(found) > 15
    for outcome in found:
        check_retry(outcome, before, f"{lead}{TEXT}\n".encode(), recover=recover, heading=heading)


@pytest.mark.slow
@pytest.mark.parametrize("recover", [False, True])
def test_another_append_before_the_retry_is_kept_and_no_text_occurs_twice(tmp_path, beginning, recover):
    for outcome in killed(tmp_path, [beginning(b"earlier\n")]):
        fixture = KilledAppend(outcome["folder"])
        if recover:
            fixture.appender.recover()
        fixture.append("between", key="other")
        answer = fixture.append()
        assert fixture.append().start_line == answer.start_line
        texts = ["between\n", f"{TEXT}\n"]
        assert fixture.written().decode().removeprefix("earlier\n") in {"".join(texts), "".join(reversed(texts))}, (
            outcome
        )
        assert fixture.lines(answer) == TEXT


def test_an_edit_after_the_restart_does_not_make_the_text_stand_twice(tmp_path, beginning):
    for outcome in killed(tmp_path, [beginning(b"earlier\n")]):
        fixture = KilledAppend(outcome["folder"])
        fixture.appender.recover()
        whole = TEXT.encode() in fixture.written()
        fixture.log.write_bytes(b"# by hand\n\n" + fixture.written())
        answer = fixture.append()
        assert answer.already_appended == whole
        assert fixture.written().decode().count(TEXT) == 1, outcome


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_retry_that_is_killed_at_each_call_in_its_turn_loses_nothing(tmp_path, beginning):
    first = killed(tmp_path, [beginning(b"earlier\n")])
    second = killed(tmp_path, [outcome["folder"] for outcome in first], recover=True)
    assert len(second) > 10 * len(first)
    for outcome in second:
        check_retry(outcome, b"earlier\n", f"{TEXT}\n".encode(), recover=True)


def entry(key, state=AppendState.DONE):
    return LedgerEntry(key, LOG, 0, 5, "b" * 64, "c" * 64, 1, 1, state)


def known(fixture, keys):
    ledger = Ledger(str(fixture.ledger))
    with ledger.lock():
        return [key for key in keys if ledger.get(key) is not None and ledger.get(key).state is AppendState.DONE]


def test_a_rewrite_of_a_long_ledger_loses_no_key(tmp_path, beginning):
    keys = [f"k{number}" for number in range(40)]
    lines = b"".join(encode(entry(key, state)) for key in keys for state in (AppendState.PENDING, AppendState.DONE))
    found = killed(tmp_path, [beginning(b"earlier\n", lines)], compact_above=1_000)
    assert "replace" in {outcome["call"] for outcome in found}
    for outcome in found:
        check_retry(outcome, b"earlier\n", f"{TEXT}\n".encode(), recover=False)
        assert known(KilledAppend(outcome["folder"]), [*keys, "k"]) == [*keys, "k"], outcome


def test_a_repair_of_a_damaged_ledger_loses_no_readable_key(tmp_path, beginning):
    lines = encode(entry("a")) + b"\x00\xffgarbage\n" + encode(entry("b"))
    found = killed(tmp_path, [beginning(b"earlier\n", lines)])
    assert "replace" in {outcome["call"] for outcome in found}
    for outcome in found:
        fixture = KilledAppend(outcome["folder"])
        fixture.append()
        assert fixture.written() == b"earlier\n" + f"{TEXT}\n".encode(), outcome
        assert known(fixture, ["a", "b", "k"]) == ["a", "b", "k"], outcome
        assert sorted(file.name for file in fixture.ledger.parent.iterdir()) == ["main.appends", "main.appends.damaged"]
        assert fixture.ledger.with_name("main.appends.damaged").read_bytes() == lines
