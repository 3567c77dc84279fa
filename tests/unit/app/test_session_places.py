"""The place of OpenClaw's sessions, by `session.store`."""

from pathlib import Path

import pytest

from memoryd_server.app.session_places import session_places
from memoryd_server.settings.loading import load

STATE = Path("/home/user/.openclaw")
USUAL = "/home/user/.openclaw/agents/main/agent/openclaw-agent.sqlite"


@pytest.mark.parametrize(
    ("store", "folder", "database"),
    [
        ("", f"{STATE}/agents/main/sessions", USUAL),
        ("/data/sessions.json", "/data", "/data/openclaw-agent.sqlite"),
        ("/data/{agentId}/sessions.json", "/data/main", "/data/main/openclaw-agent.sqlite"),
        (
            "/x/agents/{agentId}/sessions/sessions.json",
            "/x/agents/main/sessions",
            "/x/agents/main/agent/" + Path(USUAL).name,
        ),
        ("/data/{agentId}.json", "/data", "/data/main.sqlite"),
        ("/data/{agentId}.sqlite", "/data", "/data/main.sqlite"),
        ("relative/sessions.json", f"{STATE}/agents/main/sessions", USUAL),
    ],
)
def test_a_store_moves_the_database_and_the_folder(store, folder, database):
    found = session_places(store, STATE, "main", only_agent=True)
    assert (str(found.folder), str(found.database)) == (folder, database)


def test_a_store_of_several_agents_is_used_only_if_it_names_the_agent():
    assert str(session_places("/data/sessions.json", STATE, "main", only_agent=False).database) == USUAL
    named = session_places("/data/{agentId}.sqlite", STATE, "main", only_agent=False)
    assert str(named.database) == "/data/main.sqlite"


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ('{"session": {"store": "/data/sessions.json"}}', "/data/sessions.json"),
        ('{"session": {"store": 7}}', ""),
        ('{"session": []}', ""),
        ("{}", ""),
    ],
)
def test_the_store_is_read_from_the_settings_of_openclaw(tmp_path, text, store):
    (tmp_path / "openclaw.json").write_text(text)
    assert load(environ={"OPENCLAW_STATE_DIR": str(tmp_path)}, home=tmp_path).session_store == store
