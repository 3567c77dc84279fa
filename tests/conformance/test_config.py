"""The resolved `memorySearch` settings are those of OpenClaw."""

import json
from pathlib import Path

import pytest

from memoryd_server.settings.loading import load

CASES = json.loads((Path(__file__).parent / "data" / "config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps([case["defaults"], case["overrides"]]))
def test_memory_search_resolves_as_in_the_reference(case, tmp_path):
    agents = {
        "defaults": {"memorySearch": case["defaults"]},
        "list": [{"id": "main", "memorySearch": case["overrides"]}],
    }
    file = tmp_path / "memoryd.json5"
    file.write_text(json.dumps({"agents": agents}), encoding="utf-8")
    settings = load(environ={}, home=Path("/home/u"), flags={"config": str(file)})
    resolved = settings.agent("main").memory_search.model_dump(mode="json", by_alias=True, exclude_none=True)
    # The version of the reference does not have this key.
    assert resolved.pop("rememberAcrossConversations") is False
    # A current OpenClaw does not start its gateway if the file with the reference's name is not OpenClaw's own.
    if resolved["store"]["path"] == "/home/u/.openclaw/memory/main.memoryd.sqlite":
        resolved["store"]["path"] = "/home/u/.openclaw/memory/main.sqlite"
    assert resolved == case["resolved"]
