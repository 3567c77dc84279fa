"""`plugins.entries.memory-lancedb.config`: the reference's keys, as strict as there."""

import json

import pytest

from memoryd_server.app.config import agent_config
from memoryd_server.entries.model import EntryConfig

KEY = {"apiKey": "sk-of-the-test"}


def plugin(config=None, *, slot="memory-lancedb", **entry):
    around = {**entry, **({} if config is None else {"config": config})}
    return {"plugins": {"slots": {"memory": slot}, "entries": {"memory-lancedb": around}}}


def entries(home, *arguments, own=None, **entry):
    settings = home.load(reference=plugin(*arguments, **entry), own=own)
    return EntryConfig.from_plugins(agent_config(settings.agent(""), settings).plugins)


def test_the_defaults_are_the_reference_s(home):
    found = entries(home, {"embedding": KEY})
    assert found.enabled
    assert (found.auto_capture, found.auto_recall, found.capture_max_chars) == (False, True, 500)
    assert (found.location.uri, found.dimensions) == (str(home.state / "memory" / "lancedb" / "main"), 1536)
    (remote,) = found.embedding.remotes
    assert (remote.provider, remote.model, remote.keys) == ("openai", "text-embedding-3-small", ("sk-of-the-test",))


@pytest.mark.parametrize(
    ("given", "on"),
    [
        ({}, True),
        ({"slot": "memory-core"}, False),
        ({"enabled": False}, False),
        ({"slot": "memory-core", "own": {"memoryd": {"entries": {"enabled": True}}}}, True),
        ({"enabled": False, "own": {"memoryd": {"entries": {"enabled": True}}}}, True),
    ],
)
def test_entries_are_on_by_the_slot_or_by_our_own_key(home, given, on):
    assert entries(home, **given).enabled is on


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"embeding": KEY}, "embeding"),
        ({"embedding": {"apiKey": " "}}, "must not be blank"),
        ({"embedding": {**KEY, "model": "mine"}}, "dimensions"),
        ({"embedding": {**KEY, "dimensions": "1536"}}, "dimensions"),
        ({"autoRecall": "yes"}, "autoRecall"),
        ({"storageOptions": {"region": "${NOT_SET}"}}, "NOT_SET"),
    ],
)
def test_settings_that_openclaw_refuses_are_refused(home, config, said):
    message = home.refused(reference=plugin(config))
    assert "plugins.entries" in message
    assert said in message


@pytest.mark.parametrize(
    ("model", "dimensions", "sent", "length"),
    [
        ("text-embedding-3-small", None, None, 1536),
        ("text-embedding-3-large", None, None, 3072),
        ("text-embedding-3-large", 256, 256, 256),
        ("mine", 768, None, 768),
    ],
)
def test_dimensions_are_sent_to_models_that_take_them_alone(home, model, dimensions, sent, length):
    given = {**KEY, "model": model, **({"dimensions": dimensions} if dimensions else {})}
    found = entries(home, {"embedding": given})
    assert (found.embedding.remotes[0].dimensions, found.dimensions) == (sent, length)


def test_a_key_and_the_options_of_a_store_may_come_from_the_environment(home):
    home.environ |= {"MY_KEY": "sk-there", "MY_SECRET": "sesame"}
    config = {
        "embedding": {"apiKey": "${MY_KEY}"},
        "dbPath": "s3://bucket/x/",
        "storageOptions": {"aws_secret_access_key": "${MY_SECRET}"},
    }
    found = entries(home, config)
    assert found.embedding.remotes[0].keys == ("sk-there",)
    assert (found.location.uri, found.location.options) == ("s3://bucket/x/main", {"aws_secret_access_key": "sesame"})
    assert "sesame" not in repr(found)
    described = json.dumps(home.load(reference=plugin(config)).describe())
    assert "s3://bucket/x/" in described
    assert not any(secret in described for secret in ("sesame", "sk-there", "sk-of"))


def test_a_key_whose_variable_is_not_set_leaves_no_provider_and_says_why(home):
    found = entries(home, {"embedding": {"apiKey": "${NOT_SET}"}})
    assert "NOT_SET" in found.embedding.remotes[0].problem


def test_a_relative_path_is_resolved_from_its_settings_file(home):
    assert entries(home, {"dbPath": "db"}).location.uri == str(home.state / "db" / "main")
    assert entries(home, {"dbPath": "~/db"}).location.uri == str(home.path / "db" / "main")


def test_without_a_provider_of_their_own_entries_use_the_agent_s(home):
    own = {"agents": {"defaults": {"memorySearch": {"provider": "none"}}}}
    assert entries(home, own=own).embedding.provider == "none"


def access(home, **embedding):
    settings = home.load(reference=plugin({"embedding": embedding}))
    return settings.agent("").entry_access


def test_entries_use_the_key_of_a_provider_only_if_the_settings_name_it(home):
    home.environ["OPENAI_API_KEY"] = "of-the-variable"
    unnamed = access(home)
    assert (unnamed.keys, "embedding.provider" in unnamed.problem) == ((), True)
    named = access(home, provider="openai")
    assert ([key.get_secret_value() for key in named.keys], named.problem) == (["of-the-variable"], "")


def test_key_of_openai_is_not_sent_to_another_address_of_entries(home):
    home.environ["OPENAI_API_KEY"] = "of-the-variable"
    assert access(home, provider="openai", baseUrl="https://elsewhere.invalid/v1").keys == ()
    assert len(access(home, provider="openai", baseUrl="https://api.openai.com/v1").keys) == 1


def test_entries_of_another_provider_send_nothing(home):
    home.environ["GEMINI_API_KEY"] = "of-the-variable"
    found = access(home, provider="gemini", **KEY)
    assert (found.keys, 'the provider "gemini"' in found.problem) == ((), True)


def test_keys_of_entries_that_are_not_implemented_are_warnings_with_their_consequence(home):
    config = {"embedding": KEY, "recallMaxChars": 400, "customTriggers": ["note that"]}
    first, second = home.load(reference=plugin(config)).warnings
    assert "memory-lancedb.config.recallMaxChars: a key of OpenClaw" in first
    assert second.endswith("SuggestCapture uses only its own phrases")
