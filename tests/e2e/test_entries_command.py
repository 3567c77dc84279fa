"""`memoryd entry` through a daemon that runs."""

import json

import pytest

from daemon_process import serving
from entry_fixture import needs_lancedb, open_entries

pytestmark = needs_lancedb

ON = {"memoryd": {"entries": {"enabled": True}}, "agents": {"defaults": {"memorySearch": {"provider": "none"}}}}


@pytest.fixture
def folders(tmp_path):
    workspace, state = tmp_path / "w", tmp_path / "s"
    workspace.mkdir()
    state.mkdir()
    (state / "memoryd.json5").write_text(json.dumps(ON))
    return workspace, state, tmp_path


def check(done, *, code=0, out="", err=""):
    assert done.returncode == code, done.stderr
    assert out in done.stdout
    assert err in done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_entry_is_stored_and_recalled(folders):
    workspace, state, home = folders
    with serving(workspace, state, home=home) as served:
        open_entries(served.address)
        check(served.memoryd("entry", "remember", "the heron nests", "--category", "fact"), out="Stored: ")
        check(served.memoryd("entry", "recall", "herons"), out="[fact] the heron nests")


@pytest.mark.slow
@pytest.mark.slow
def test_the_verbs_store_recall_list_forget_export_and_import(folders):
    workspace, state, home = folders
    with serving(workspace, state, home=home) as served:
        open_entries(served.address)
        run = served.memoryd
        check(run("entry", "remember", "the heron nests", "--category", "fact"), out="Stored: ")
        check(run("entry", "remember", "the heron nests"), out="Duplicate: ")
        check(run("entry", "remember", "-", "--importance", "0.25", stdin="otters hide\nkeys"), out="otters hide keys")
        check(run("entry", "recall", "herons"), out="[fact] the heron nests")
        check(run("entry", "recall", "herons"), out="degraded: ")
        found = json.loads(check(run("entry", "recall", "otter", "--json")))
        assert found["entries"][0]["entry"]["importance"] == 0.25
        check(run("entry", "list", "--category", "fact"), out="1 of 1 entries")
        exported = check(run("entry", "export"))
        assert [json.loads(line)["text"] for line in exported.splitlines()] == ["otters hide\nkeys", "the heron nests"]
        check(run("entry", "forget", "otter"), out="Give one with --id")
        entry_id = json.loads(exported.splitlines()[0])["id"]
        check(run("entry", "forget", "--id", entry_id), out="Deleted: ")
        check(run("entry", "forget", "--id", entry_id), code=3, err="ENTRY_NOT_FOUND")
        check(run("entry", "forget"), code=2, err="either --id or QUERY")
        check(run("entry", "import", "-", stdin=exported), out="1 entries stored, 1 existed already")
        check(run("entry", "import", "-", stdin=exported), out="0 entries stored, 2 existed already")
        newest, *_ = check(run("entry", "export")).splitlines()
        assert json.loads(newest)["text"] == "otters hide\nkeys"
        check(run("entry", "import", "-", stdin='{"text": "x"}\n{"txet": 1}\n'), code=2, err="line 2")
        check(run("entry", "list"), out="2 of 2 entries")
        check(run("doctor"), out="entries of main: 2 entries")


@pytest.mark.slow
def test_entries_that_are_off_say_how_to_switch_them_on(folders):
    workspace, state, home = folders
    (state / "memoryd.json5").unlink()
    with serving(workspace, state, home=home) as served:
        check(served.memoryd("entry", "list"), code=1, err="memoryd.entries.enabled")
