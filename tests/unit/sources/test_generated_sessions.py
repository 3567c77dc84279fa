"""Sessions of the gateway itself are left out by their keys."""

import json

import pytest

from memoryd_server.sources.folder_corpus import FolderCorpus, discover_transcripts
from memoryd_server.sources.generated_sessions import (
    entry_links,
    generated_sessions,
    is_cron_run,
    read_generated_sessions,
)
from memoryd_server.sources.roots import Roots
from transcript_fixture import TranscriptFixture, assistant, user

CRON = "agent:main:cron:0b1c:run:7"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (CRON, True),
        (f"{CRON}:subagent:1", True),
        ("Agent:Main:Cron:0b1c:Run:7", True),
        ("agent:main:cron:0b1c", False),
        ("agent:main:cron:0b1c:run:", False),
        ("agent:main:telegram:group:cron:0b1c:run:7", False),
        ("agent:main:main", False),
        ("cron:0b1c:run:7", False),
    ],
)
def test_the_key_of_a_scheduled_run_is_recognized(key, expected):
    assert is_cron_run(key) is expected


def generated_keys(entries):
    return generated_sessions({key: entry_links(entry) for key, entry in entries.items()})


def test_runs_their_children_dreams_and_isolated_heartbeats_are_no_conversations():
    entries = {
        CRON: {"sessionId": "a"},
        "agent:main:subagent:b": {"spawnedBy": CRON},
        "agent:main:subagent:c": {"parentSessionKey": "agent:main:subagent:b"},
        "agent:main:subagent:d": {"spawnedBy": "agent:other:cron:x:run:1"},
        "agent:main:dreaming-narrative-light": None,
        "agent:main:subagent:e": {"spawnedBy": "agent:main:dreaming-narrative-light"},
        "agent:main:main:heartbeat": {"heartbeatIsolatedBaseSessionKey": "agent:main:main"},
    }
    kept = {
        "agent:main:main": {"sessionId": "m", "heartbeatIsolatedBaseSessionKey": ""},
        "agent:main:subagent:f": {"spawnedBy": "agent:main:main", "parentSessionKey": 5},
        "agent:main:cron:0b1c": {"sessionId": "base"},
        "agent:main:loop": {"spawnedBy": "agent:main:loop"},
        "odd": [],
    }
    assert generated_keys({**entries, **kept}) == set(entries)


def test_a_circle_of_sessions_below_a_run_ends():
    entries = {"a": {"spawnedBy": "b", "parentSessionKey": CRON}, "b": {"spawnedBy": "a"}}
    assert generated_keys(entries) == {"a", "b"}


def write(folder, *names):
    for name in names:
        (folder / name).write_text(user("hello"))


def names(folder):
    return [file.parts[-1] for file in discover_transcripts(folder).files]


def test_transcripts_of_scheduled_runs_are_not_discovered_rotated_or_not(tmp_path):
    write(tmp_path, "a.jsonl", "b.jsonl", "b.jsonl.deleted.2026-01-01", "c-topic.jsonl")
    store = {
        "agent:main:main": {"sessionId": "a"},
        CRON: {"sessionId": "b"},
        "agent:main:cron:j:run:2": {"sessionId": "c", "sessionFile": str(tmp_path / "c-topic.jsonl")},
    }
    (tmp_path / "sessions.json").write_text(json.dumps(store))
    assert names(tmp_path) == ["a.jsonl"]
    assert discover_transcripts(tmp_path).issues == ()


@pytest.mark.parametrize(
    "text", ["{:cron:", '[":cron:"]', '{":cron:": ' + "[" * 100_000, '"dreaming-narrative-"', "\x00:cron:"]
)
def test_a_list_of_sessions_that_cannot_be_read_is_reported_and_leaves_nothing_out(tmp_path, text):
    write(tmp_path, "a.jsonl")
    (tmp_path / "sessions.json").write_text(text)
    found = discover_transcripts(tmp_path)
    assert len(found.files) == 1
    assert "sessions.json cannot be read" in found.issues[0]


def test_a_link_in_place_of_the_list_is_not_followed(tmp_path):
    (tmp_path / "other.json").write_text(json.dumps({CRON: {"sessionId": "a"}}))
    (tmp_path / "sessions.json").symlink_to(tmp_path / "other.json")
    generated, problem = read_generated_sessions(tmp_path)
    assert not generated
    assert "sessions.json" in problem


def test_without_a_list_nothing_is_left_out(tmp_path):
    write(tmp_path, "a.jsonl")
    assert read_generated_sessions(tmp_path) == (frozenset(), "")
    assert names(tmp_path) == ["a.jsonl"]


def test_a_scheduled_run_is_removed_from_the_index_and_can_still_be_read(tmp_path):
    index = TranscriptFixture(tmp_path).open()
    try:
        index.say("run.jsonl", user("[cron:0b1c nightly] Report."), assistant("The quince report is done."))
        index.say("main.jsonl", user("A question about the quince."))
        index.sync()
        assert index.found("quince") == ["sessions/main.jsonl", "sessions/run.jsonl"]
        (index.sessions / "sessions.json").write_text(json.dumps({CRON: {"sessionId": "run"}}))
        index.sync()
        assert index.found("quince") == ["sessions/main.jsonl"]
    finally:
        index.close()
    corpus = FolderCorpus(Roots(str(tmp_path)), str(index.sessions))
    assert corpus.resolve("sessions/run.jsonl").parts == ("run.jsonl",)
