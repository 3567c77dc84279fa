"""MEMORY.md is for the agent's private main session; whatever may be something else is something else."""

import pytest

from memoryd_server.backend.session_keys import is_main_session


@pytest.mark.parametrize(
    ("key", "agent_id"),
    [
        ("main", "main"),
        ("main", "work"),
        ("agent:main:main", "main"),
        ("agent:work:main", "work"),
        (" Agent:Work:MAIN ", "work"),
        ("agent:main:main:thread:1712.55", "main"),
        ("main:thread:7", "main"),
    ],
)
def test_the_agent_s_own_main_session_is_private(key, agent_id):
    assert is_main_session(key, agent_id)


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        "agent:work:main",
        "agent:main",
        "agent:main:",
        "agent::main",
        "agent:main:telegram:direct:42",
        "agent:main:telegram:group:-100",
        "agent:main:slack:channel:c1",
        "agent:main:slack:channel:main",
        "agent:main:subagent:main",
        "agent:main:main:subagent:x",
        "agent:main:main:group:1",
        "agent:main:main:thread",
        "agent:main:main:thread:",
        "agent:main:cron:job",
        "agent:main:main2",
        "group:main",
        "subagent:main",
        "thread:main",
        "global",
        "MAIN:",
    ],
)
def test_any_other_session_is_not(key):
    assert not is_main_session(key, "main")
