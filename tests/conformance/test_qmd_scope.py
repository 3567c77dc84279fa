"""The same sessions as in OpenClaw are allowed to search with qmd."""

import json
from pathlib import Path

import pytest

from memoryd_server.app.plugins import session_scope
from memoryd_server.qmd.config import allows
from memoryd_server.sessions.context import SessionKey
from memoryd_server.settings.memory import QmdSettings

DATA = json.loads((Path(__file__).parent / "data" / "qmd_scope.json").read_text("utf-8"))


def scope(name):
    written = DATA["scopes"][name]
    return None if written is None else session_scope(QmdSettings.model_validate({"scope": written}))


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["session_key"] or "none")
def test_a_session_may_search_as_the_rules_say(case):
    assert {name: allows(scope(name), case["session_key"]) for name in DATA["scopes"]} == case["allowed"]


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["session_key"] or "none")
def test_a_key_is_taken_apart_as_in_the_reference(case):
    parsed = SessionKey.parse(case["session_key"])
    told = {"key": parsed.key, "channel": parsed.channel, "chat_type": parsed.chat_type}
    assert {name: value for name, value in told.items() if value} == case["parsed"]


def test_by_default_only_direct_chats_may_search():
    default = session_scope(QmdSettings())
    allowed = {case["session_key"]: allows(default, case["session_key"]) for case in DATA["cases"]}
    assert allowed == {case["session_key"]: case["allowed"]["dmOnly"] for case in DATA["cases"]}
