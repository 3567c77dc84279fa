"""The command in a home like that of a current OpenClaw: an included file, `.env` and `~/.clawdbot`."""

import json

from daemon_process import memoryd

SECRET = "key-of-this-test-0123456789"


def test_config_names_the_file_and_the_variables_of_each_value_and_shows_no_secret(tmp_path):
    state = tmp_path / ".clawdbot"
    state.mkdir()
    search = {"provider": "openai", "remote": {"headers": {"X-Team": "${TEAM_TOKEN}"}}}
    (state / "clawdbot.json").write_text(
        json.dumps({"agents": {"$include": "agents.json5"}, "env": {"vars": {"TEAM_TOKEN": SECRET}}})
    )
    (state / "agents.json5").write_text(
        json.dumps({"defaults": {"workspace": "${NOTES}/main", "memorySearch": search, "userTimezone": "${ZONE}"}})
    )
    (state / ".env").write_text(f'export NOTES="{tmp_path}/notes"\nZONE=Europe/Paris # here\nOPENAI_API_KEY={SECRET}\n')
    done = memoryd("config", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    shown = {entry["key"]: (entry["value"], entry["origin"]) for entry in json.loads(done.stdout)["settings"]}
    included = state / "agents.json5"
    assert shown["stateDir"] == (str(state), "default")
    assert shown["agents.list[main].workspace"] == (
        f"{tmp_path}/notes/main",
        f"{included}, ${{NOTES}} from {state}/.env: NOTES",
    )
    zone = ("Europe/Paris", f"{included}, ${{ZONE}} from {state}/.env: ZONE")
    assert shown["agents.defaults.userTimezone"] == zone
    value, origin = shown["agents.list[main].access.openai"]
    assert origin == f"{state}/.env: OPENAI_API_KEY"
    assert value == {"keys": ["***"], "headers": {"x-team": "***"}}
