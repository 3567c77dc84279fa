"""What a session key says: whether it names the agent's main session, and whether a direct chat."""

import pytest

from memoryd_server.search.query import CitationMode
from memoryd_server.sessions.context import SessionKey, wants_citations


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
    assert SessionKey.parse(key).is_main_session(agent_id)


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
    assert not SessionKey.parse(key).is_main_session("main")


KEYS = [
    ("", True),
    ("agent:main:main", True),
    ("agent:main:telegram:direct:123", True),
    ("agent:main:telegram:dm:123", True),
    ("agent:main:telegram:group:123", False),
    ("agent:main:discord:channel:456", False),
    ("agent:main:slack:channel:c1:thread:2", False),
    ("telegram:group:123", False),
    ("AGENT:Main:Telegram:GROUP:123", False),
    ("agent:group:main", True),
    ("agent:channel:telegram:direct:1", True),
    ("agent:main:groupie", True),
    ("group", False),
    (" agent:main:discord:channel:4 ", False),
]


@pytest.mark.parametrize(("key", "direct"), KEYS)
def test_a_session_is_direct_unless_a_part_of_its_key_says_group_or_channel(key, direct):
    parsed = SessionKey.parse(key)
    assert parsed.is_direct is direct
    assert wants_citations(CitationMode.AUTO, parsed) is direct
    assert wants_citations(CitationMode.ON, parsed) is True
    assert wants_citations(CitationMode.OFF, parsed) is False
