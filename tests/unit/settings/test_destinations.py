"""To which addresses an agent may send text, by its settings, keys and variables."""

import pytest

from destinations import BROKEN, KEYS, NOTHING, OPENAI, SERVER, TABLE, VOYAGE, key_reference, new, old
from memoryd_server.app.config import agent_config
from memoryd_server.providers.pool import select
from memoryd_server.settings.layers import RefusedSettings
from openclaw_rows import put_own_profiles, put_secret, put_shared_profiles


def destinations(loaded):
    found = {}
    for agent_id, agent in loaded.agents.items():
        choice = select(agent_config(agent, loaded).embedding)
        second = choice.fallback() if choice.fallback and choice.requested != "none" else None
        used = [each.provider for each in (choice, second) if each and each.provider] if agent.enabled else []
        found[agent_id] = {provider.spec.endpoint.rstrip("/") for provider in used}
        for each in (choice, second):
            if each and each.provider:
                each.provider.close()
    return found


@pytest.mark.parametrize(("reference", "own", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_exactly_the_addresses_of_the_table_are_used(home, reference, own, expected):
    home.environ.update(KEYS)
    assert destinations(home.load(reference, own)) == expected


@pytest.mark.parametrize("search", [{}, {"provider": "auto"}], ids=["unset", "auto"])
@pytest.mark.parametrize(
    ("dotenv", "settings"),
    [
        ("OPENAI_API_KEY=k", {}),
        ("", {"env": {"vars": {"GEMINI_API_KEY": "k", "MISTRAL_API_KEY": "k"}}}),
        ("", {"env": {"VOYAGE_API_KEY": "k"}}),
        ("MY_KEY=k", {"models": {"providers": {"openai": {"apiKey": "${MY_KEY}"}}}}),
        ("MY_KEY=k", {"models": {"providers": {"openai": {"apiKey": "$MY_KEY"}}}}),
        ("MY_KEY=k", {"models": {"providers": {"openai": {"apiKey": key_reference("MY_KEY")}}}}),
        ("MY_KEY=k", {"models": {"providers": {"openai": {"headers": {"Authorization": "Bearer ${MY_KEY}"}}}}}),
        ("", {"env": {"vars": {"OPENAI_API_KEY": "k"}}, "models": {"providers": {"openai": {"apiKey": " "}}}}),
    ],
    ids=str,
)
def test_auto_in_the_older_layout_chooses_no_provider_by_a_variable_of_a_file(home, search, dotenv, settings):
    home.write(home.state / ".env", dotenv)
    assert destinations(home.load({**old(**search), **settings})) == NOTHING


@pytest.mark.parametrize("search", [{}, {"provider": "auto"}], ids=["unset", "auto"])
@pytest.mark.parametrize(
    "key",
    [None, "openai:default", key_reference("PROCESS"), {**key_reference("MY_KEY"), "source": "store"}],
    ids=str,
)
def test_auto_in_the_older_layout_chooses_no_provider_by_a_key_that_0_1_0_did_not_find(home, search, key):
    home.environ["PROCESS"] = "k"
    profile = {"type": "api_key", "provider": "openai", "key": "k"}
    put_secret(home.state, "MY_KEY", "k")
    put_shared_profiles(home.state, {"openai:default": profile})
    put_own_profiles(home.state, {"openai:own": profile})
    models = {"models": {"providers": {"openai": {"apiKey": key}}}}
    assert destinations(home.load({**old(**search), **models})) == NOTHING
    assert destinations(home.load({**old(provider="openai"), **models})) == {"main": {OPENAI}}
    file = home.state / "agents" / "main" / "agent" / "auth-profiles.json"
    home.write(file, {"profiles": {"openai:file": profile}})
    found = destinations(home.load({**old(**search), **models}))
    assert found == ({"main": {OPENAI}} if key is None else NOTHING)


def test_auto_in_the_older_layout_sends_nothing_to_a_server_whose_address_is_in_a_variable_of_a_file(home):
    home.write(home.state / ".env", f"SERVER={SERVER}")
    assert destinations(home.load(old(remote={"baseUrl": "${SERVER}"}))) == NOTHING
    home.environ["SERVER"] = SERVER
    assert destinations(home.load()) == {"main": {SERVER}}


def test_auto_in_the_older_layout_prefers_a_key_of_the_process_to_one_of_a_file(home):
    home.write(home.state / ".env", "OPENAI_API_KEY=k")
    home.environ["VOYAGE_API_KEY"] = "k"
    assert destinations(home.load(old(provider="auto"))) == {"main": {VOYAGE}}


def test_providers_that_are_named_use_the_variables_of_files(home):
    home.write(home.state / ".env", "OPENAI_API_KEY=k")
    settings = {"env": {"vars": {"VOYAGE_API_KEY": "k"}}}
    for search in (old, new):
        found = destinations(home.load({**search(provider="openai", fallback="voyage"), **settings}))
        assert found == {"main": {OPENAI, VOYAGE}}
    assert destinations(home.load({**new(provider="auto"), **settings})) == {"main": {OPENAI}}
    assert destinations(home.load({**new(), **settings})) == NOTHING


def test_the_reason_names_the_file_with_the_key_and_the_setting_that_uses_it(home):
    home.write(home.state / ".env", "OPENAI_API_KEY=k")
    loaded = home.load(old())
    reason = select(agent_config(loaded.agent(""), loaded).embedding).reason
    assert f'the key in {home.state / ".env"}: OPENAI_API_KEY is used only if the provider is "openai"' in reason


def test_nothing_is_sent_to_the_fallback_of_a_provider_of_the_settings_whose_secret_is_missing(home):
    home.environ.update(KEYS)
    blocks = {"mine": {"baseUrl": SERVER, "apiKey": key_reference("UNSET")}}
    settings = {**new(provider="mine", model="m", fallback="openai"), "models": {"providers": blocks}}
    loaded = home.load(settings)
    assert destinations(loaded) == NOTHING
    assert "the variable UNSET is not set" in select(agent_config(loaded.agent(""), loaded).embedding).reason
    home.environ["UNSET"] = "k"
    assert destinations(home.load(settings)) == {"main": {SERVER, OPENAI}}


@pytest.mark.parametrize("reference", BROKEN, ids=str)
def test_a_file_that_cannot_be_used_is_refused_and_blocks_providers(home, reference):
    home.environ.update(KEYS)
    with pytest.raises(RefusedSettings) as caught:
        home.load(reference)
    assert caught.value.blockers
