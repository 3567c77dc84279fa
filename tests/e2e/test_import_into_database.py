"""`memoryd import` of conversations with the memory files in PostgreSQL and a running daemon."""

import itertools
import json

import pytest

from daemon_process import end, memoryd, start
from e2e.test_import_command import SESSION, records
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture
from waiting import eventually

pytestmark = [pytest.mark.postgres, pytest.mark.skipif(bool(missing()), reason=missing())]

NUMBERS = itertools.count()


@pytest.fixture
def run(postgres_server, places):  # noqa: F811 -- the fixture
    """Import a session of Claude Code into an empty database."""
    home, _, state = places
    url = postgres_server.create_database(f"imports{next(NUMBERS)}")
    search = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
    settings = {"memoryd": {"store": {"url": url}}, "memory": {"search": search}}
    (state / "memoryd.json5").write_text(json.dumps(settings))
    session = home / f"{SESSION}.jsonl"
    session.write_text("".join(f"{line}\n" for line in records("Where does the pelican nest?", "On the pier.")))
    return lambda *options: memoryd("import", "claude-code", session, *options, "--state-dir", state, home=home)


async def test_a_running_daemon_is_notified_and_finds_the_conversation(places, run):
    home, _, state = places
    daemon = start(None, state, home=home)
    try:
        daemon.memoryd("index")
        for to, prefix in (("notes", "memory/imported/claude-code/2025-05-01-"), ("sessions", "sessions/import-")):
            done = run("--to", to)
            assert (done.returncode, done.stderr) == (0, "")
            first, second = done.stdout.splitlines()
            assert first.startswith("Imported 1 conversation: 1 new")
            assert second.startswith("Written to postgresql://")
            await eventually(lambda prefix=prefix: prefix in daemon.memoryd("search", "pelican nest").stdout)
            assert "0 new, 0 updated (0 B), 1 unchanged." in run("--to", to).stdout
    finally:
        end(daemon.process)
