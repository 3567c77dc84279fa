"""The plugin's recall before a turn, in a real OpenClaw: what the model receives, and what OpenClaw stores."""

import json
import sqlite3

import pytest

from daemon_process import end, start
from openclaw_host import ModelServer, OpenClawHome, pack_plugin, require_openclaw

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUESTION = "What day was that billing deployment moved to?"
NOTE = "# Log\n\nThe billing deployment moved to Thursday because of the audit.\n"
OPENING, CLOSING = "<relevant-memories>", "</relevant-memories>"
MOST_TURNS = 8


class Agent:
    """An agent of a real OpenClaw whose plugin recalls, its model, and a daemon of the same home."""

    def __init__(self, folder, package):
        self.model = ModelServer("billing deployment")
        self.home = OpenClawHome(
            folder / "openclaw",
            {
                "defaults": {"model": {"primary": "mock/m1"}},
                "models": {"providers": {"mock": self.model.provider}},
                "tools": {"toolSearch": {"enabled": False}},
                "memory": {
                    "search": {
                        "provider": "none",
                        "experimental": {"sessionMemory": True},
                        "sources": ["memory", "sessions"],
                    }
                },
            },
        )
        (self.home.workspace / "memory" / "2026-02-08.md").write_text(NOTE)
        for day in range(10, 30):
            other = self.home.workspace / "memory" / f"2026-03-{day}.md"
            other.write_text(f"# Log\n\nWe watered the plants and sorted box {day}.\n")
        self.home.install(package)
        settings = json.loads(self.home.config.read_text())
        entries = settings["plugins"]["entries"]
        entries["memory-core"] = {"enabled": False}
        entries["memoryd"] |= {"config": {"recall": True}, "hooks": {"allowConversationAccess": True}}
        self.home.config.write_text(json.dumps(settings))
        self.daemon = start(None, self.home.state, home=self.home.folder, listen=f"unix:{self.home.state}/m.sock")

    def close(self):
        end(self.daemon.process)
        self.model.close()

    def turn(self, message):
        """Send a message, and return the messages of the first request that the model received for it."""
        before = len(self.model.requests)
        self.home.run("agent", "--message", message, "--agent", "main", "--json")
        return [json.dumps(each["content"]) for each in self.model.requests[before]["messages"]]

    def transcript(self):
        """Return the events of the transcripts, as OpenClaw stored them."""
        path = self.home.state / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            rows = database.execute(
                "SELECT event_json FROM transcript_events WHERE event_json IS NOT NULL ORDER BY seq"
            )
            return [row[0] for row in rows]


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    require_openclaw()
    agent = Agent(tmp_path_factory.mktemp("recall"), pack_plugin(tmp_path_factory.mktemp("package")))
    with agent.home.gateway():
        yield agent
    agent.close()


def test_the_model_receives_a_block_that_is_not_stored(agent):
    # A turn does not wait longer than 300 ms for the block, which is too short for a busy machine.
    sent = next((sent for _ in range(MOST_TURNS) if OPENING in str(sent := agent.turn(QUESTION))), None)
    assert sent is not None, agent.home.gateway_log()
    with_block = [message for message in sent if OPENING in message]
    assert len(with_block) == 1
    block, _, message = with_block[0].partition(CLOSING)
    assert "memory/2026-02-08.md#L1-L3" in block
    assert "moved to Thursday because of the audit" in block
    assert QUESTION in message

    # The history of the next turn has the message without the block, and small talk gets none.
    history = agent.turn("thanks!")
    assert OPENING not in str(history)
    assert sum(QUESTION in each for each in history) >= 1
    stored = agent.transcript()
    assert sum(QUESTION in event for event in stored) >= 1
    assert OPENING not in str(stored)

    agent.daemon.memoryd("index")
    files = json.loads(agent.daemon.memoryd("search", QUESTION, "--json", "--max-results", "20").stdout)["results"]
    snippets = [hit["snippet"] for hit in files]
    assert any(QUESTION in snippet for snippet in snippets), "the transcript is indexed"
    assert not any("relevant-memories" in snippet for snippet in snippets)
