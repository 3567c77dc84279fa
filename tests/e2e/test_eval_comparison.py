"""`memoryd eval --compare` as people and scripts use it."""

import json
import re
import shutil

import pytest

from daemon_process import memoryd

NOTES = ["The harbour master is called Ilse.", "The ferry to the island was late.", "The lighthouse was painted red."]
QUERIES = [
    "who is the harbour master",
    "was the ferry late",
    "the colour of the lighthouse",
    "who built the harbour wall",
]
# So high that a query with a word that its note does not contain has no result.
STRICT = {"memoryd": {"abstainBelow": 0.95}}


def row(number, query, *, answerable=True):
    gold = [["MEMORY.md", 2 * number + 1, 2 * number + 1]] if answerable else []
    return {"id": str(number), "workspace": "notes", "query": query, "gold": gold, "kind": "fact", "lang": "en"}


ROWS = [row(number, query, answerable=number < len(NOTES)) for number, query in enumerate(QUERIES)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    data, config = home / "shore", home / "memoryd.json5"
    (data / "notes").mkdir(parents=True)
    (data / "notes" / "MEMORY.md").write_text("\n\n".join(NOTES) + "\n", "utf-8")
    (data / "other").mkdir()
    (data / "other" / "notes.txt").write_text("one\ntwo\n", "utf-8")

    def evaluate(*arguments, rows=ROWS, code=0, settings=None):
        (data / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
        config.write_text(json.dumps(settings or {}), "utf-8")
        options = ["--data", data, "--state-dir", home / "state", "--config", config, "--by", "dataset,kind"]
        done = memoryd("eval", "--keyword", *options, *arguments, home=home)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return evaluate


@pytest.fixture(scope="module")
def base(run, tmp_path_factory):
    file = tmp_path_factory.mktemp("results") / "base.json"
    run("--out", file)
    return file


@pytest.mark.slow
def test_a_table_shows_the_differences_between_two_runs(run, base):
    out = run("--compare", base, settings=STRICT).stdout
    assert f"Compared with {base} (keyword): 4 questions in both, 0 only in this run, 0 only in the other." in out
    numbers = r"3 +0 +1 +1\.000 +0\.667 +-0\.3333 +\[-1\.0000, \+0\.0000\] *\n"
    silent = r" +silent +1 +1 +0 +0\.000 +1\.000 +\+1\.0000 +\[\+1\.0000, \+1\.0000\] +\* *\n"
    for group in ("shore", "fact", "all"):
        assert re.search(rf"^{group} +recall@6 +{numbers}( +(hit|mrr|ndcg|shown)@\d+ .*\n)+{silent}", out, re.MULTILINE)


@pytest.mark.slow
def test_equal_runs_are_shown_as_unchanged(run, base):
    out = run("--compare", base, "--max-loss", "0").stdout
    for group in ("shore", "fact", "all"):
        assert re.search(rf"^{group} +unchanged +4 *$", out, re.MULTILINE)


@pytest.mark.slow
def test_the_comparison_is_in_the_json_and_not_in_the_file(run, base, tmp_path):
    new = tmp_path / "new.json"
    found = json.loads(run("--compare", base, "--json", "--out", new, settings=STRICT).stdout)
    comparison = found.pop("comparison")
    assert found == json.loads(new.read_text("utf-8"))
    assert found["question_metrics"] == ["recall@6", "hit@1", "mrr@10", "ndcg@10", "shown@6"]
    assert found["questions"]["shore/0"] == [1, 1, 1, 1, 1]
    assert found["questions"]["shore/3"] == {"answered_with_nothing": 1}
    assert comparison["file"] == str(base)
    assert comparison["overall"]["recall@6"]["difference"] == -0.3333
    assert comparison["by"]["kind"]["fact"] == comparison["overall"]


@pytest.mark.slow
def test_the_compared_file_may_be_replaced_by_the_run(run, base, tmp_path):
    file = shutil.copy(base, tmp_path)
    assert "-0.3333" in run("--compare", file, "--out", file, settings=STRICT).stdout
    assert "-0.3333" not in run("--compare", file, settings=STRICT).stdout


@pytest.mark.slow
@pytest.mark.parametrize(("most", "code"), [("0.33", 1), ("0.34", 0)])
def test_a_loss_above_the_limit_fails(run, base, most, code):
    done = run("--compare", base, "--max-loss", most, settings=STRICT, code=code)
    lines = [line for line in done.stderr.splitlines() if "decreased" in line]
    metrics = ["recall@6", "shown@6", "hit@1"] if code else []
    assert lines == [f"memoryd: {each} of dataset shore decreased by 0.3333, more than {most}" for each in metrics]


@pytest.mark.slow
def test_questions_of_only_one_run_are_counted(run, base):
    rows = [*ROWS[1:], row(0, QUERIES[0]) | {"id": "new"}]
    out = run("--compare", base, "--max-loss", "0", rows=rows).stdout
    assert "3 questions in both, 1 only in this run, 1 only in the other." in out
    run("--compare", base, "--max-loss", "0", "--limit", "2")


@pytest.mark.slow
def test_a_run_without_a_question_of_the_earlier_one_is_refused(run, base):
    done = run("--compare", base, rows=[ROWS[0] | {"id": "new"}], code=2)
    assert "has none of the questions of this run; compare runs of the same golden sets" in done.stderr


@pytest.mark.slow
def test_max_loss_fails_if_questions_of_the_earlier_run_are_left_out(run, base):
    moved = ROWS[0] | {"workspace": "other", "gold": [["notes.txt", 1, 1]]}
    done = run("--compare", base, "--max-loss", "1", rows=[moved, *ROWS[1:]], code=1)
    assert "1 queries of the earlier run are left out" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a results file of `memoryd eval`"),
        ('{"overall": {}, "by": {}}', "does not have the scores of each question that a comparison needs"),
    ],
)
def test_an_unusable_file_is_refused_before_the_run(run, tmp_path, content, message):
    file, out = tmp_path / "other.json", tmp_path / "out.json"
    file.write_text(content, "utf-8")
    assert f"{file} {message}" in run("--compare", file, "--out", out, code=2).stderr
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--compare", "base.json", "--by", ""]])
def test_max_loss_requires_a_comparison_and_a_label(run, arguments):
    assert "--max-loss requires --compare, and a label in --by" in run("--max-loss", "0.1", *arguments, code=2).stderr
