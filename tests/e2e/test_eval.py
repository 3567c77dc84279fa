"""`memoryd eval` as people and scripts use it."""

import json
import re

import pytest

from daemon_process import memoryd
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture

NOTES = {
    "dry": {
        "MEMORY.md": "# Lasting\n\nThe harbour master is called Ilse.\n",
        "memory/2026-01-02.md": "# Log\n\nThe ferry was late.\n",
    },
    "wet": {"memory/2026-01-03.md": "# Log\n\n会议在周五\n"},
}


def row(number, workspace, query, path, line=3, **more):
    gold = [[path, line, line]]
    return {
        "id": str(number),
        "workspace": workspace,
        "query": query,
        "gold": gold,
        "kind": "fact",
        "lang": "en",
    } | more


ROWS = [
    row(1, "dry", "harbour master", "MEMORY.md"),
    row(2, "dry", "xylophone", "MEMORY.md", kind="paraphrase"),
    row(3, "wet", "会议", "memory/2026-01-03.md", lang="zh", ref_date="2026-01-04"),
    row(4, "dry", "who plays the xylophone?", "MEMORY.md", kind="adversarial"),
]


@pytest.fixture
def run(tmp_path):
    data, state = tmp_path / "shore", tmp_path / "state"
    for workspace, files in NOTES.items():
        for path, text in files.items():
            file = data / workspace / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")

    def evaluate(*arguments, rows=ROWS):
        lines = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        (data / "queries.jsonl").write_text("\n".join(lines), "utf-8")
        return memoryd("eval", "--data", data, "--state-dir", state, *arguments, home=tmp_path)

    return evaluate


def check(done, *, code=0, out="", err=""):
    assert done.returncode == code, (done.stdout, done.stderr)
    assert re.search(out, done.stdout, re.DOTALL | re.MULTILINE), done.stdout
    assert re.search(err, done.stderr, re.DOTALL), done.stderr
    return done


def test_a_table_shows_each_group_and_the_whole(run, tmp_path):
    figures = r"( +[01]\.\d{3}){5}"
    check(run("--keyword"), out=rf"^kind .*^fact +2{figures}.*^lang .*^en +2{figures}.*^all +3{figures} +1 +1\.000")
    assert not list((tmp_path / "state").rglob("*.sqlite*"))


@pytest.mark.slow
def test_json_says_what_was_measured_and_of_what(run, tmp_path):
    out = tmp_path / "new" / "eval.json"
    found = json.loads(check(run("--json", "--by", "dataset/lang", "--out", out)).stdout)
    assert found == json.loads(out.read_text("utf-8"))
    assert (found["agent"], found["mode"], found["left_out"]) == ("main", "as configured", [])
    assert list(found["by"]) == ["dataset/lang"]
    assert found["by"]["dataset/lang"]["shore/zh"]["recall@6"] == 1
    assert found["overall"]["recall@6"] == 0.6667
    assert found["overall"]["answered_with_nothing"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("least", "code", "err"), [("0.6", 0, ""), ("0.7", 1, r"recall@6 is 0\.6667, below 0\.7")])
def test_a_recall_below_the_least_fails(run, least, code, err):
    check(run("--min-recall", least), code=code, out="^all", err=err)


@pytest.mark.slow
def test_a_limit_takes_so_many_of_each_dataset(run):
    found = json.loads(check(run("--json", "--limit", "1")).stdout)
    assert found["overall"]["queries"] == 1


@pytest.mark.slow
def test_an_ill_formed_row_is_reported_with_file_and_line(run):
    bad = {key: value for key, value in ROWS[1].items() if key != "query"}
    check(run(rows=[ROWS[0], bad]), code=2, err=r"shore/queries\.jsonl:2: 'query' must be")


@pytest.mark.slow
def test_questions_on_files_that_are_no_memory_are_left_out_and_said(run, tmp_path):
    (tmp_path / "shore" / "other").mkdir()
    (tmp_path / "shore" / "other" / "notes.txt").write_text("one\ntwo\nthree\n")
    other = row(9, "other", "two?", "notes.txt")
    done = check(run("--json", rows=[*ROWS, other]), err="left out: 1 queries on shore/other")
    assert json.loads(done.stdout)["overall"]["queries"] == 3
    check(run(rows=[other]), code=2, err="no query could be run")


def test_transcripts_in_the_sessions_folder_of_a_workspace_are_searched(run, tmp_path):
    folder = tmp_path / "shore" / "talk" / "sessions"
    folder.mkdir(parents=True)
    message = {"role": "user", "content": "The tide table is in the blue drawer."}
    lines = [{"type": "session", "id": "s1"}, {"type": "message", "id": "1", "message": message}]
    (folder / "s1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    asked = row(7, "talk", "where is the tide table?", "sessions/s1.jsonl", line=2)
    found = json.loads(check(run("--json", "--keyword", rows=[asked])).stdout)
    assert found["questions"] == {"shore/7": [1, 1, 1, 1, 1]}
    assert [file.name for file in folder.iterdir()] == ["s1.jsonl"]


@pytest.mark.slow
def test_the_sessions_of_the_agent_are_no_part_of_the_evaluation(run, tmp_path):
    """`session.store` names a place outside of the state directory, which the evaluation replaces."""
    folder = tmp_path / "own"
    folder.mkdir()
    message = {"role": "user", "content": "The xylophone belongs to Ilse."}
    lines = [{"type": "session", "id": "s1"}, {"type": "message", "id": "1", "message": message}]
    (folder / "s1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    search = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    settings = {"session": {"store": str(folder / "sessions.json")}, "agents": {"defaults": {"memorySearch": search}}}
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "openclaw.json").write_text(json.dumps(settings), "utf-8")
    found = json.loads(check(run("--json", "--keyword")).stdout)
    assert found["questions"]["shore/4"] == {"answered_with_nothing": 1}


@pytest.mark.slow
def test_an_index_that_is_kept_is_used_again(run, tmp_path):
    keep = tmp_path / "kept"
    first = check(run("--keep", keep))
    indexes = sorted(keep.glob("*/memory/index.sqlite"))
    assert [index.parts[-3].split("-")[0] for index in indexes] == ["dry", "wet"]
    assert check(run("--keep", keep)).stdout == first.stdout
    assert sorted(keep.glob("*/memory/index.sqlite")) == indexes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "err"),
    [
        (["--by", "size"], 2, "--by: unknown label size; the labels are dataset, kind, lang"),
        (["--agent", "nobody"], 3, "no agent 'nobody'"),
        (["--limit", "0"], 2, "--limit"),
    ],
)
def test_an_impossible_evaluation_is_reported(run, arguments, code, err):
    check(run(*arguments), code=code, err=err)


@pytest.mark.postgres
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_database_gives_the_same_figures(run, postgres_server, tmp_path):  # noqa: F811 -- the fixture
    url = postgres_server.create_database("evaluation")
    transcript = tmp_path / "shore" / "dry" / "sessions" / "first.jsonl"
    transcript.parent.mkdir(parents=True)
    message = {"type": "message", "message": {"role": "user", "content": "the pilot boards at dawn"}}
    transcript.write_text(json.dumps(message) + "\n", "utf-8")
    rows = [*ROWS, row(5, "dry", "pilot boards", "sessions/first.jsonl", line=1)]
    files = json.loads(check(run("--json", "--keyword", rows=rows)).stdout)
    for _ in range(2):
        database = json.loads(check(run("--json", "--keyword", "--database", url, rows=rows)).stdout)
        assert database["questions"] == files["questions"]
        assert database["by"] == files["by"]
    assert files["overall"]["recall@6"] == 0.75
    with postgres_server.admin("evaluation") as admin:
        agents = admin.execute("SELECT count(DISTINCT agent_id) FROM memoryd.documents").fetchone()
    assert agents == (2,)


def test_a_database_that_is_no_url_is_refused(run, tmp_path):
    check(run("--database", "memoryd"), code=2, err="--database: the value is not a URL")
    keep = ("--keep", tmp_path / "kept", "--database", "postgresql://memoryd@/memoryd")
    check(run(*keep), code=2, err="--keep and --database exclude each other")
