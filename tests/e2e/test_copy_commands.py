"""`memoryd import folder` and `memoryd export folder`: what they print, their exit statuses and their effect."""

import itertools
import json
import os

import pytest

from daemon_process import end, memoryd, start
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

NUMBERS = itertools.count()
RECORD = '{"type":"message","message":{"role":"user","content":"the bittern booms"}}\n'


@pytest.fixture
def run(postgres_server, places):  # noqa: F811 -- the fixture
    """Run a command with an empty database."""
    home, _, state = places
    url = postgres_server.create_database(f"copies{next(NUMBERS)}")
    (state / "memoryd.json5").write_text(json.dumps({"memoryd": {"store": {"url": url}}}))
    return lambda *arguments: memoryd(*arguments, "--state-dir", state, home=home)


def test_an_imported_workspace_is_searched_and_exported_with_its_sessions(places, run, tmp_path):
    home, workspace, state = places
    sessions, out = tmp_path / "sessions", tmp_path / "new" / "out"
    sessions.mkdir()
    (sessions / "one.jsonl").write_text(RECORD)
    (workspace / "memory" / ".dreams").mkdir()
    (workspace / "memory" / ".dreams" / "state.json").write_text("{}")
    dry = run("import", "folder", workspace, "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()[0]) == (0, "Would copy 1 files (27 B); 0 were equal.")
    done = run("import", "folder", workspace, "--sessions", sessions)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Copied 1 files (27 B); 0 were equal.",
        "Compared 1 files afterwards: 0 differ.",
        "Left out 1 other files below memory/: they are not Markdown.",
        "Copied 1 transcripts (75 B); 0 were equal.",
        "Compared 1 transcripts afterwards: 0 differ.",
    ]
    daemon = start(None, state, home=home)
    try:
        daemon.memoryd("index")
        assert "memory/a.md:1" in daemon.memoryd("search", "ferry").stdout
    finally:
        end(daemon.process)
    assert run("export", "folder", out, "--sessions", out / "sessions").returncode == 0
    assert (out / "memory" / "a.md").read_bytes() == (workspace / "memory" / "a.md").read_bytes()
    assert (out / "sessions" / "one.jsonl").read_text() == RECORD
    report = json.loads(run("export", "folder", out, "--sessions", out / "sessions", "--json").stdout)
    assert (report["files"]["equal"], report["transcripts"]["equal"]) == (1, 1)
    assert (report["agent"], report["dryRun"]) == ("main", False)
    assert report["database"].startswith("postgresql://")


def test_files_that_differ_are_named_and_the_status_is_1_until_they_are_replaced(places, run, tmp_path):
    _, workspace, _ = places
    assert run("import", "folder", workspace).returncode == 0
    (workspace / "memory" / "a.md").write_text("edited")
    os.mkfifo(workspace / "memory" / "pipe.md")
    kept = run("import", "folder", workspace)
    assert kept.returncode == 1
    assert "memory/a.md differs and was kept; --replace replaces it" in kept.stderr
    assert "memory/pipe.md was skipped: it is a link or a special file" in kept.stderr
    report = json.loads(run("import", "folder", workspace, "--json").stdout)["files"]
    assert (report["conflicts"], list(report["skipped"])) == (["memory/a.md"], ["memory/pipe.md"])
    (workspace / "memory" / "pipe.md").unlink()
    replaced = run("import", "folder", workspace, "--replace")
    assert (replaced.returncode, replaced.stderr) == (0, "")
    assert "1 replaced." in replaced.stdout
    assert run("export", "folder", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "memory" / "a.md").read_text() == "edited"


def test_errors_name_the_folder_and_create_nothing(places, run, tmp_path):
    _, workspace, state = places
    missing_folder, file = tmp_path / "missing", tmp_path / "file"
    file.write_text("")
    done = run("import", "folder", missing_folder)
    assert done.returncode != 0
    assert f"the folder '{missing_folder}' does not exist" in done.stderr
    done = run("import", "folder", workspace, "--sessions", missing_folder)
    assert done.returncode != 0
    assert str(missing_folder) in done.stderr
    done = run("export", "folder", file / "below")
    assert (done.returncode, f"{file / 'below'} cannot be created: Not a directory" in done.stderr) == (1, True)
    assert run("export", "folder", file).returncode == 2
    assert run("export", "folder", missing_folder, "--agent", "nobody").returncode != 0
    (state / "memoryd.json5").write_text("{}")
    done = run("export", "folder", missing_folder)
    assert done.returncode != 0
    assert "memoryd.store.url" in done.stderr
    assert not missing_folder.exists()


def test_a_lost_server_is_an_error(places, run, tmp_path):
    _, workspace, state = places
    settings = {"memoryd": {"store": {"url": f"postgresql://nobody@/none?host={tmp_path}"}}}
    (state / "memoryd.json5").write_text(json.dumps(settings))
    for arguments in (("import", "folder", workspace), ("export", "folder", tmp_path / "out")):
        done = run(*arguments)
        assert done.returncode not in {0, 2}
        assert "the PostgreSQL server cannot be used" in done.stderr
        assert "Traceback" not in done.stderr


def test_help_lists_both_commands(run, places):
    home, _, _ = places
    listed = memoryd("--help", home=home).stdout
    assert "import" in listed
    assert "export" in listed
    for verb in ("import", "export"):
        text = memoryd(verb, "folder", "--help", home=home).stdout
        assert {"--sessions", "--replace", "--dry-run", "--json", "--agent"} <= set(text.split())


def test_files_of_any_time_are_listed_and_found(places, run):
    home, workspace, state = places
    for number, seconds in enumerate((-5_000_000_000, -1, 9_300_000_000, 15_000_000_000)):
        file = workspace / "memory" / f"{number}.md"
        file.write_text(f"the ferry of time {number}")
        os.utime(file, (seconds, seconds))
    assert run("import", "folder", workspace).returncode == 0
    daemon = start(None, state, home=home)
    try:
        assert daemon.memoryd("index").returncode == 0
        listed = daemon.memoryd("files")
        assert (listed.returncode, listed.stdout.count("memory/")) == (0, 5), listed.stderr
        found = daemon.memoryd("search", "ferry", "--json")
        assert (found.returncode, found.stdout.count('"path"')) == (0, 5), found.stderr
    finally:
        end(daemon.process)


def test_forgotten_files_stay_out_of_the_index_after_an_import(places, run):
    home, workspace, state = places
    settings = (state / "memoryd.json5").read_text()
    (state / "memoryd.json5").write_text("{}")
    daemon = start(workspace, state, home=home)
    try:
        daemon.memoryd("index")
        assert daemon.memoryd("forget", "memory/a.md").returncode == 0
    finally:
        end(daemon.process)
    (state / "memoryd.json5").write_text(settings)
    with (state / "memory" / "main.forgotten").open("a") as file:
        file.write('{"session": "s1"}\n{"session": "a/b"}\n{"path": "../x.md", "sha256": "00"}\n')
    assert "forgotten" not in run("import", "folder", workspace, "--dry-run").stdout
    done = run("import", "folder", workspace)
    assert done.returncode == 0
    assert "Copied the list of 2 forgotten files and sessions" in done.stdout
    assert json.loads(run("import", "folder", workspace, "--json").stdout)["forgotten"] == 0
    daemon = start(None, state, home=home)
    try:
        daemon.memoryd("index")
        assert "memory/a.md" not in daemon.memoryd("search", "ferry").stdout
    finally:
        end(daemon.process)
    with (state / "memory" / "main.forgotten").open("a") as file:
        file.write("damaged\n")
    damaged = run("import", "folder", workspace)
    assert damaged.returncode == 1
    assert "1 lines of" in damaged.stderr
