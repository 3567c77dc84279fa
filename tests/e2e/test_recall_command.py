"""`memoryd recall`, and the filters of `memoryd search`, `recall` and `files`, with a daemon and without one."""

import json
import subprocess
import time

import pytest

from daemon_process import COMMAND, environment, memoryd, serving
from entry_fixture import needs_lancedb, open_entries

NOTES = {
    "memory/2026-05-03-invoices.md": "---\ntags: [billing, '#Finance']\nproject: falcon\ntype: decision\nstatus: open\n"
    "---\n# Invoices\n\nInvoices are approved by Ilse on Fridays.\n",
    "memory/2026-04-20-invoices.md": "---\ntags: [billing]\nproject: heron\n---\n# Invoices\n\nInvoices: Jonas.\n",
    "memory/projects/2025-12-31.md": "# Invoices\n\nThe invoices were printed on paper.\n",
}
APRIL, MAY, DECEMBER = "memory/2026-04-20-invoices.md", "memory/2026-05-03-invoices.md", "memory/projects/2025-12-31.md"
QUESTION = "Who approves the invoices?"


def written(folder, notes=NOTES):
    for path, text in notes.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def served(home, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    with serving(written(tmp_path_factory.mktemp("workspace")), state, home=home) as daemon:
        assert daemon.memoryd("index").returncode == 0
        yield daemon


def found(done):
    assert (done.returncode, done.stderr) == (0, "")
    return {result["path"] for result in json.loads(done.stdout)["results"]}


def listed(done):
    assert (done.returncode, done.stderr) == (0, "")
    return {file["path"] for file in json.loads(done.stdout)}


FILTERS = {
    ("--since", "2026-05", "--path", "memory/", "--tag", "billing"): {MAY},
    ("--since", "2026"): {APRIL, MAY},
    ("--until", "2026-04"): {APRIL, DECEMBER},
    ("--path", "memory/projects/"): {DECEMBER},
    ("--path", "memory/projects/", "--path", "memory/2026-05"): {MAY, DECEMBER},
    ("--tag", "finance"): {MAY},
    ("--project", "falcon", "--project", "heron"): {APRIL, MAY},
    ("--project", "falcon", "--tag", "other"): set(),
    ("--type", "decision"): {MAY},
    ("--where", "status=open"): {MAY},
    ("--source", "memory"): {APRIL, MAY, DECEMBER},
}


@pytest.mark.slow
def test_a_search_and_a_list_are_narrowed_by_the_filters(served):
    for options, expected in FILTERS.items():
        assert found(served.memoryd("search", "--json", *options, "invoices")) == expected, options
        assert listed(served.memoryd("files", "--json", *options)) == expected, options


def test_a_recall_is_narrowed_by_a_filter(served):
    paths = []
    for options in ([], ["--until", "2026-04"], ["--tag", "billing", "--source", "memory"]):
        done = served.memoryd("recall", "--json", "--min-confidence", "0", *options, "invoices printed on paper")
        assert done.returncode == 0
        paths.append({item["path"] for item in json.loads(done.stdout)["items"]})
    assert paths == [{APRIL, MAY, DECEMBER}, {APRIL, DECEMBER}, {APRIL, MAY}]


def test_a_filter_without_a_match_is_explained(served):
    done = served.memoryd("search", "--tag", "nothing", "invoices")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No matches: ")
    assert "filter" in done.stdout


def test_a_recall_prints_the_block(served):
    done = served.memoryd("recall", "Who", "approves", "the", "invoices?")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<relevant-memories>\n")
    assert done.stdout.endswith("</relevant-memories>\n")
    assert f"{MAY}#L" in done.stdout
    assert "(2026-05-03)" in done.stdout
    assert "Invoices are approved by Ilse on Fridays." in done.stdout


def test_a_recall_without_anything_relevant_prints_nothing_and_says_why(served):
    done = served.memoryd("recall", "thanks!")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("memoryd: no query: ")
    done = served.memoryd("recall", "--explain", "How does the xylophone player tune her marimba?")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("memoryd: nothing relevant: ")
    assert "keyword search" in done.stderr


def test_a_recall_reads_standard_input_of_any_encoding(served):
    command = [*COMMAND, "recall", "--explain", "--state-dir", str(served.state), "-"]
    done = subprocess.run(
        command,
        env=environment(served.home),
        input=b"\xff\xfe log line\n" * 10_000 + b"\nWho approves the invoices?\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Invoices are approved by Ilse" in done.stdout.decode("utf-8")
    errors = done.stderr.decode("utf-8")
    assert "words: " in errors
    assert "tokens" in errors
    empty = served.memoryd("recall", "-", stdin="")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert empty.stderr.startswith("memoryd: no query: ")


def test_the_budget_and_the_confidence_are_passed_on(served):
    answer = json.loads(served.memoryd("recall", "--json", "--max-chars", "260", QUESTION).stdout)
    assert 0 < len(answer["block"]) <= 260
    answer = json.loads(served.memoryd("recall", "--json", "--max-tokens", "5", QUESTION).stdout)
    assert (answer["block"], answer["silentReason"]) == ("", "RECALL_SILENT_REASON_BUDGET_TOO_SMALL")
    question = "Which xylophone was printed on paper?"
    for least, recalled in (("0", True), ("1", False)):
        answer = json.loads(served.memoryd("recall", "--json", "--min-confidence", least, question).stdout)
        assert bool(answer["block"]) == recalled
    assert answer["silentReason"] == "RECALL_SILENT_REASON_NOTHING_RELEVANT"


def test_what_a_session_has_seen_is_not_printed_again(served):
    options = ("--remember-shown", "--session-key", "agent:main:cli:direct:1", QUESTION)
    assert "Ilse" in served.memoryd("recall", *options).stdout
    again = served.memoryd("recall", *options)
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("memoryd: already seen: ")
    # Other sessions have not seen it.
    assert "Ilse" in served.memoryd("recall", QUESTION).stdout


MISTAKES = {
    "a date": (["search", "--since", "2026-13", "x"], "'--since': '2026-13' is not a date; write YYYY-MM-DD, YYYY-MM"),
    "an order of dates": (["recall", "--since", "2026-05", "--until", "2026-04", "x"], "filter.until: is before"),
    "a condition": (["files", "--where", "status"], "'status' is not KEY=VALUE; write for example status=open"),
    "a source": (["search", "--source", "sesions", "x"], "'sesions' is not one of 'memory', 'sessions', 'entries'"),
    "an empty path": (["search", "--path", "", "x"], "filter.path_prefixes: has an element that is empty"),
    "no text": (["recall"], "there is no text; usage: memoryd recall TEXT"),
    "no session": (["recall", "--remember-shown", "x"], "--remember-shown requires --session-key"),
    "a budget": (["recall", "--max-tokens", "0", "x"], "max_tokens: "),
    "a confidence": (["recall", "--min-confidence", "2", "x"], "min_confidence: is 2.0; it must lie between 0 and 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_usage_error_that_says_what_to_do(served, mistake):
    arguments, expected = MISTAKES[mistake]
    done = served.memoryd(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr


def test_a_folder_of_notes_is_recalled_without_a_daemon_and_without_settings(tmp_path):
    home, notes = tmp_path / "home", tmp_path / "notes"
    home.mkdir()
    written(notes, {path.removeprefix("memory/"): text for path, text in NOTES.items()})
    done = memoryd("recall", "--workspace", notes, "--tag", "billing", "--since", "2026-05", QUESTION, home=home)
    assert done.returncode == 0
    assert "Invoices are approved by Ilse on Fridays." in done.stdout
    assert "Jonas" not in done.stdout
    assert f"init {notes}" in done.stderr
    assert not (home / ".openclaw").exists(), "the index of the user's own memory is not touched"


@pytest.mark.slow
def test_without_a_daemon_the_index_is_updated_first(tmp_path):
    workspace, options = written(tmp_path / "w"), ("--state-dir", tmp_path / "s", "--workspace", tmp_path / "w")
    assert "Ilse" in memoryd("recall", QUESTION, *options, home=tmp_path).stdout
    (workspace / "memory" / "2026-06-01.md").write_text("The cranes are inspected by Aiko.\n", "utf-8")
    shown = memoryd("recall", "--remember-shown", "--session-key", "s", "who inspects cranes?", *options, home=tmp_path)
    assert "Aiko" in shown.stdout
    assert "no daemon is running, so what is shown now is not remembered" in shown.stderr


@pytest.mark.slow
def test_without_a_memory_the_reason_says_how_to_set_one_up(tmp_path):
    done = memoryd("recall", "where is the ferry?", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no memory file is indexed; " in done.stderr
    assert "To set up a memory: " in done.stderr
    assert "init FOLDER" in done.stderr


@pytest.mark.slow
@needs_lancedb
def test_entries_are_searched_if_they_are_named_and_have_no_lines(tmp_path):
    settings = {"memoryd": {"entries": {"enabled": True}}, "memory": {"search": {"provider": "none"}}}
    workspace, state = written(tmp_path / "w"), tmp_path / "s"
    state.mkdir()
    (state / "memoryd.json5").write_text(json.dumps(settings), "utf-8")
    with serving(workspace, state, home=tmp_path) as daemon:
        open_entries(daemon.address)
        assert daemon.memoryd("index").returncode == 0
        assert daemon.memoryd("entry", "remember", "The herons nest by the weir").returncode == 0
        both = ("search", "--source", "memory", "--source", "entries")
        line = daemon.memoryd(*both, "herons").stdout.splitlines()[0]
        score, path = line.split(" ")
        assert 0 < float(score) <= 1
        assert path.startswith("entries/")
        assert ":" not in path
        assert "No matches" in daemon.memoryd("search", "herons").stdout
        assert "The herons nest by the weir" in daemon.memoryd("recall", "where do the herons nest?").stdout
        today = time.strftime("%Y")
        assert "herons" in daemon.memoryd("recall", "--since", today, "where do the herons nest?").stdout
        assert daemon.memoryd("recall", "--path", "memory/", "where do the herons nest?").stdout == ""
