"""The comparison of peers: how results are judged, and how failures of a tool are reported."""

import json
import sys
from pathlib import Path

import pytest

# The scripts import each other by name. At the end of the path they do not replace other modules.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "peers"))

from comparison import Comparison
from judgement import Notes
from notes import SETS, Corpus, rename_dated
from peer import PeerUnavailableError, Setup, Shown
from report import question_lines, result

from memoryd_server.evaluation import read_golden_set

FILLER = "The quick brown fox jumps over the lazy dog near the river."


@pytest.fixture
def data(tmp_path):
    """Return a folder with all sets: a dated note with an answer in line 3, and a note without answers."""
    folder = tmp_path / "data"
    for name in SETS:
        memory = folder / name / "one" / "memory"
        memory.mkdir(parents=True)
        memory.joinpath("2024-01-02.md").write_text(f"# Day\n\nThe heron of {name} nests at the weir.\n\n{FILLER}\n")
        memory.joinpath("other.md").write_text(f"{FILLER}\n")
        row = {
            "id": "q1",
            "workspace": "one",
            "query": f"where does the heron of {name} nest?",
            "gold": [["memory/2024-01-02.md", 3, 3]],
            "kind": "fact",
            "lang": "en",
        }
        (folder / name / "queries.jsonl").write_text(json.dumps(row) + "\n")
    return folder


@pytest.fixture
def note(tmp_path):
    """Return the notes of a folder with one note of five lines."""
    (tmp_path / "memory").mkdir()
    lines = ["# Birds of the river", "", "The heron nests at the weir.", "", "The kingfisher needs clear water."]
    (tmp_path / "memory" / "birds.md").write_text("\n".join(lines))
    return Notes(tmp_path)


@pytest.fixture
def question(data):
    """Return a question that line 3 of `memory/xquad/one/2024-01-02.md` answers."""
    return Corpus(data).sample_questions()[[each.dataset for each in Corpus(data).sample_questions()].index("xquad")]


def judged(data, tmp_path, question, *results):
    Corpus(data, files=12).write(tmp_path / "notes")
    return Notes(tmp_path / "notes").judge(question, results)


ANSWER = "memory/xquad/one/2024-01-02.md"
TEXT = "The heron of xquad nests at the weir."


def test_result_that_shares_a_line_and_the_text_is_found_and_shown(data, tmp_path, question):
    judgement = judged(data, tmp_path, question, Shown(ANSWER, 5, 5, FILLER), Shown(ANSWER, 1, 3, f"# Day {TEXT}"))
    assert (judgement.recall, judgement.shown, judgement.rank) == (1.0, 1.0, 2)


def test_result_with_other_lines_is_not_found(data, tmp_path, question):
    judgement = judged(data, tmp_path, question, Shown(ANSWER, 4, 5, TEXT))
    assert (judgement.recall, judgement.shown, judgement.rank) == (0.0, 0.0, None)


def test_result_of_another_note_is_not_found(data, tmp_path, question):
    judgement = judged(data, tmp_path, question, Shown("memory/xquad/one/other.md", 1, 9, TEXT))
    assert (judgement.recall, judgement.shown, judgement.rank) == (0.0, 0.0, None)


def test_result_with_less_than_half_of_the_text_is_found_but_not_shown(data, tmp_path, question):
    judgement = judged(data, tmp_path, question, Shown(ANSWER, 1, 3, "The heron"))
    assert (judgement.recall, judgement.shown) == (1.0, 0.0)


def test_seventh_result_does_not_count(data, tmp_path, question):
    others = [Shown("memory/xquad/one/other.md", 1, 1, FILLER)] * 6
    judgement = judged(data, tmp_path, question, *others, Shown(ANSWER, 3, 3, TEXT))
    assert (judgement.recall, judgement.rank) == (0.0, None)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("The heron nests at the weir.", (3, 3)),
        ("... the HERON  nests\nat the weir ...", (3, 3)),
        ("# Birds of the river\nThe heron nests at the weir.", (1, 3)),
        ("Title that the tool adds\nThe heron nests at the weir.\n...\nThe kingfisher needs clear water.", (3, 5)),
        ("a summary which is not in the note", (1, 5)),
        ("", (1, 5)),
    ],
    ids=["one line", "other case and spaces", "two lines", "two fragments", "another text", "no text"],
)
def test_result_without_lines_gets_those_of_its_text(note, text, lines):
    span = note.span(Shown("memory/birds.md", None, None, text))
    assert (span.start_line, span.end_line) == lines


def test_result_without_lines_of_an_unknown_note_is_not_found(note):
    assert note.span(Shown("memory/none.md", None, None, "heron")).end_line == 1


def test_notes_are_filled_up_and_contain_the_answers(data, tmp_path):
    corpus = Corpus(data, files=20)
    corpus.write(tmp_path / "notes")
    assert len(list((tmp_path / "notes").rglob("*.md"))) == 20
    questions = corpus.sample_questions()
    assert {each.dataset for each in questions} == set(SETS)
    for each in questions:
        span = each.gold[0].span
        assert each.gold[0].text in (tmp_path / "notes" / span.path).read_text().split("\n")[span.start_line - 1]


def test_notes_with_answers_come_first(data, tmp_path):
    Corpus(data, files=6).write(tmp_path / "notes")
    assert {file.name for file in (tmp_path / "notes").rglob("*.md")} == {"2024-01-02.md"}


def test_renamed_notes_have_the_names_of_notes_without_dates(data, tmp_path):
    Corpus(data, files=12).write(tmp_path / "renamed")
    rename_dated(tmp_path / "renamed")
    corpus = Corpus(data, files=12, dated=False)
    corpus.write(tmp_path / "written")
    names = [
        sorted(file.relative_to(tmp_path / each) for file in (tmp_path / each).rglob("*.md"))
        for each in ("renamed", "written")
    ]
    assert names[0] == names[1]
    assert all((tmp_path / "renamed" / each.gold[0].span.path).exists() for each in corpus.sample_questions())
    assert [each.key for each in corpus.sample_questions()] == [each.key for each in Corpus(data).sample_questions()]


class FakePeer:
    """A tool that returns the right line of each question, unless a step fails."""

    modes = ("keywords",)
    interface = "a method call"
    version = "1"
    remarks = ("It knows the answers.",)

    def __init__(self, data, name="fake", *, failing=(), failing_searches=0):
        self.name = name
        self._questions = {each.text: each for name in SETS for each in read_golden_set(data / name)}
        self._failing, self._failing_searches = failing, failing_searches
        self.steps = []

    def _step(self, name):
        self.steps.append(name)
        if name in self._failing:
            raise RuntimeError(f"no {name} today")

    def set_up(self, setup):
        self._notes = setup.notes
        self._step("set_up")
        if "installation" in self._failing:
            raise PeerUnavailableError("fake is not installed: run `make fake`")

    def index(self):
        self._step("index")

    def start(self):
        self._step("start")

    def search(self, text, limit):
        self._step("search")
        # The first search of a tool is not one of the measured ones.
        if 1 < self.steps.count("search") <= self._failing_searches + 1:
            raise RuntimeError("no answer")
        name = text.removeprefix("where does the heron of ").removesuffix(" nest?")
        path = next(self._notes.glob(f"memory/{name}/one/*2024-01-02.md"))
        return [Shown(path.relative_to(self._notes).as_posix(), 3, 3, f"The heron of {name} nests at the weir.")]

    def processes(self):
        return []

    def stop(self):
        self._step("stop")

    def search_cold(self, text):
        self._step("search_cold")


def compared(data, tmp_path, *peers, undated=()):
    """Return the results of a comparison by the name of the tool, and the runs."""
    tmp_path.joinpath("run").mkdir()
    setup = Setup(tmp_path, tmp_path, "keywords", "", "", tmp_path)
    runs = Comparison(tmp_path / "run", Corpus(data, files=14), None).run(peers, setup, undated)
    return {run.peer.name: result(run) for run in runs}, runs


def test_tool_that_finds_everything_has_full_marks(data, tmp_path):
    results, runs = compared(data, tmp_path, FakePeer(data))
    assert results["fake"]["recall_at_6"] == results["fake"]["shown_at_6"]
    assert results["fake"]["recall_at_6"] == dict.fromkeys(("questions", "sets", *SETS), 1.0)
    assert results["fake"]["search"]["failed"] == 0
    assert results["fake"]["search"]["text_chars"] > 30
    assert results["fake"]["index"]["seconds"] >= 0
    assert results["fake"]["cold"]["seconds"] >= 0
    assert "names_without_dates" not in results["fake"]
    rows = [json.loads(line) for line in question_lines(runs)]
    assert {row["question"] for row in rows} == {f"{name}/q1" for name in SETS}
    assert {row["rank"] for row in rows} == {1}


def test_searches_without_a_process_come_after_the_end_of_the_process(data, tmp_path):
    peer = FakePeer(data)
    compared(data, tmp_path, peer)
    assert peer.steps.index("search_cold") > peer.steps.index("stop") > peer.steps.index("search")
    assert peer.steps[-1] == "stop"


def test_names_without_dates_are_measured_for_the_named_tools(data, tmp_path):
    results, _ = compared(data, tmp_path, FakePeer(data, "one"), FakePeer(data, "two"), undated=("two",))
    assert "names_without_dates" not in results["one"]
    assert results["two"]["names_without_dates"]["recall_at_6"]["questions"] == 1.0


def test_tool_that_is_not_installed_is_reported_with_the_remedy(data, tmp_path):
    results, _ = compared(data, tmp_path, FakePeer(data, "absent", failing=["installation"]), FakePeer(data))
    assert results["absent"] == {
        "tool": "absent",
        "mode": "keywords",
        "failure": "fake is not installed: run `make fake`",
    }
    assert results["fake"]["recall_at_6"]["questions"] == 1.0


@pytest.mark.parametrize("step", ["set_up", "index", "start"])
def test_failure_of_a_tool_does_not_end_the_others(data, tmp_path, step):
    broken = FakePeer(data, "broken", failing=[step])
    results, _ = compared(data, tmp_path, broken, FakePeer(data))
    assert f"no {step} today" in results["broken"]["failure"]
    assert "search" not in results["broken"]
    assert broken.steps[-1] == "stop"
    assert results["fake"]["recall_at_6"]["questions"] == 1.0


def test_failed_search_counts_as_one_that_finds_nothing(data, tmp_path):
    results, _ = compared(data, tmp_path, FakePeer(data, failing_searches=3))
    assert results["fake"]["recall_at_6"]["questions"] == 0.5
    assert results["fake"]["search"]["failed"] == 3
    assert "no answer" in results["fake"]["search"]["first_error"]
    assert "failure" not in results["fake"]


def test_tool_that_answers_nothing_is_not_asked_any_more(data, tmp_path):
    broken = FakePeer(data, failing_searches=100)
    results, _ = compared(data, tmp_path, broken)
    assert "5 searches failed" in results["fake"]["failure"]
    assert broken.steps.count("search") == 6


def test_tool_without_a_command_for_searches_keeps_its_other_figures(data, tmp_path):
    results, _ = compared(data, tmp_path, FakePeer(data, failing=["search_cold"]))
    assert results["fake"]["cold_failure"] == "no search_cold today"
    assert results["fake"]["recall_at_6"]["questions"] == 1.0
    assert "failure" not in results["fake"]
