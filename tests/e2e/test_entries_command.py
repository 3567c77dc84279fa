"""`memoryd entry` through a daemon that runs, and what is behind it after kills."""

import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from entry_desk import needs_lancedb
from memoryd.client import MemorydError, connect
from memoryd.v1 import entry_service_pb2 as pb
from serving import end, serving, start

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


def test_the_verbs_store_recall_list_forget_export_and_import(folders):
    workspace, state, home = folders
    with serving(workspace, state, home=home) as served:
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
        check(run("entry", "forget", "otter"), out="Say which by --id")
        entry_id = json.loads(exported.splitlines()[0])["id"]
        check(run("entry", "forget", "--id", entry_id), out="Forgotten: ")
        check(run("entry", "forget", "--id", entry_id), code=3, err="ENTRY_NOT_FOUND")
        check(run("entry", "forget"), code=2, err="either --id or a text")
        check(run("entry", "import", "-", stdin=exported), out="1 entries stored, 1 were there")
        check(run("entry", "import", "-", stdin=exported), out="0 entries stored, 2 were there")
        newest, *_ = check(run("entry", "export")).splitlines()
        assert json.loads(newest)["text"] == "otters hide\nkeys"
        check(run("entry", "import", "-", stdin='{"text": "x"}\n{"txet": 1}\n'), code=2, err="line 2")
        check(run("entry", "list"), out="2 of 2 entries")
        check(run("doctor"), out="entries of main: 2 entries")


def test_entries_that_are_off_say_how_to_switch_them_on(folders):
    workspace, state, home = folders
    (state / "memoryd.json5").unlink()
    with serving(workspace, state, home=home) as served:
        check(served.memoryd("entry", "list"), code=1, err="memoryd.entries.enabled")


def write_until(address, stop, acknowledged, writer):
    """Stores entries, each until it is acknowledged, over whatever daemon answers."""
    with connect(address) as client:
        number = 0
        while not stop.is_set():
            key = f"{writer}-{number}"
            try:
                done = client.entries.remember(text=f"entry {key}", idempotency_key=key, timeout=5)
            except MemorydError:
                time.sleep(0.02)
                continue
            assert done.action in {
                pb.REMEMBER_ACTION_STORED,
                pb.REMEMBER_ACTION_ALREADY_STORED,
                pb.REMEMBER_ACTION_DUPLICATE,
            }
            acknowledged[f"entry {key}"] = done.entry.entry_id
            number += 1


@pytest.mark.faults
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.timeout(300)
def test_every_acknowledged_entry_is_there_once_however_often_the_daemon_is_killed(folders, kills):
    workspace, state, home = folders
    chance = random.Random(kills)
    acknowledged, stop = {}, threading.Event()
    served = start(workspace, state, home=home)
    with ThreadPoolExecutor(2) as writers:
        work = [writers.submit(write_until, served.address, stop, acknowledged, name) for name in "ab"]
        try:
            for _ in range(kills):
                before = len(acknowledged)
                waited = time.monotonic() + 30
                while len(acknowledged) < before + 5 and time.monotonic() < waited:
                    time.sleep(0.01)
                time.sleep(chance.random() * 0.1)
                end(served.process, signal.SIGKILL)
                served = start(workspace, state, home=home)
        finally:
            stop.set()
        for each in work:
            each.result()
    with connect(served.address) as client:
        found, token = [], ""
        while True:
            page = client.entries.list(page_size=1_000, page_token=token)
            found += [(entry.text, entry.entry_id) for entry in page.entries]
            token = page.next_page_token
            if not token:
                break
    end(served.process)
    assert len(acknowledged) >= 5 * kills
    assert len({text for text, _ in found}) == len(found), "something is there twice"
    assert acknowledged.items() <= dict(found).items(), "something that was acknowledged is gone"
    # What the last call of each writer stored may not have been acknowledged.
    assert len(found) <= len(acknowledged) + 2
