"""A provider's own key goes to its own address only; ids of `models.providers`; the region of Bedrock; input types."""

import dataclasses

import pytest

from memoryd_server.app.config import agent_config
from memoryd_server.providers import gemini, openai
from memoryd_server.providers.pool import ProviderPool
from memoryd_server.settings.provider_address import OWN_HOSTS, bedrock_address, is_own_address

SECRET = "sk-of-the-test"
ELSEWHERE = "https://proxy.example/v1"


def load(home, *, remote=None, blocks=None, **search):
    own = {"agents": {"defaults": {"memorySearch": {**search, **({"remote": remote} if remote else {})}}}}
    return home.load(own={**own, **({"models": {"providers": blocks}} if blocks else {})})


def access(home, provider, **given):
    return load(home, provider=provider, **given).agent("").provider_access[provider]


def keys(found):
    return [key.get_secret_value() for key in found.keys]


def selection(home, **given):
    settings = load(home, **given)
    pool = ProviderPool()
    try:
        return pool.select(agent_config(settings.agent(""), settings).embedding)
    finally:
        pool.close()


KEYED = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "deepinfra": "DEEPINFRA_API_KEY",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
}


@pytest.mark.parametrize(("provider", "variable"), KEYED.items())
def test_a_key_of_the_environment_is_not_sent_to_another_address(home, provider, variable):
    home.environ[variable] = SECRET
    found = access(home, provider, remote={"baseUrl": ELSEWHERE})
    assert (keys(found), found.base_url) == ([], ELSEWHERE)
    assert f"its own key (env {variable}) is not sent there: set remote.apiKey" in found.problem
    assert selection(home, provider=provider, remote={"baseUrl": ELSEWHERE}).provider is None
    assert keys(access(home, provider)) == [SECRET]


@pytest.mark.parametrize("own", [{"apiKey": SECRET}, {"apiKey": "${UNSET}"}, {"apiKey": {"source": "env", "id": "X"}}])
def test_neither_the_key_nor_the_headers_of_a_block_are_sent_to_another_address(home, own):
    block = {**own, "baseUrl": "https://gateway.example/a", "headers": {"X-Secret": SECRET}}
    found = access(home, "openai", blocks={"openai": block}, remote={"baseUrl": "https://gateway.example/b"})
    assert (keys(found), found.headers) == ([], {})
    assert "is not sent there" in found.problem


@pytest.mark.parametrize("remote", [{"apiKey": "own"}, {"headers": {"Authorization": "Bearer own"}}])
def test_a_key_that_remote_itself_has_is_sent_to_its_address(home, remote):
    home.environ["OPENAI_API_KEY"] = SECRET
    found = access(home, "openai", remote={**remote, "baseUrl": ELSEWHERE})
    assert found.problem == ""
    assert keys(found) == (["own"] if "apiKey" in remote else [])
    assert SECRET not in [value.get_secret_value() for value in found.headers.values()]


def test_a_key_of_remote_that_names_an_unset_variable_sends_nothing(home):
    home.environ["OPENAI_API_KEY"] = SECRET
    found = access(home, "openai", remote={"apiKey": "${NONE}", "baseUrl": ELSEWHERE})
    assert keys(found) == []
    assert "names the variable NONE, which is not set" in found.problem


def test_another_address_without_any_key_works_as_before(home):
    found = access(home, "openai", remote={"baseUrl": ELSEWHERE})
    assert (keys(found), found.base_url, found.problem) == ([], ELSEWHERE, "")


@pytest.mark.parametrize(("provider", "variable"), [("ollama", "OLLAMA_API_KEY"), ("lmstudio", "LM_API_TOKEN")])
def test_a_server_that_needs_no_key_is_used_at_another_address_without_the_key(home, provider, variable):
    home.environ[variable] = SECRET
    found = access(home, provider, remote={"baseUrl": "http://gpu.example:1234"})
    assert (keys(found), found.problem) == ([], "")


def test_the_key_of_a_compatible_server_without_another_address_goes_to_the_only_one(home):
    blocks = {"openai-compatible": {"apiKey": SECRET}}
    assert keys(access(home, "openai-compatible", blocks=blocks, remote={"baseUrl": ELSEWHERE})) == [SECRET]
    blocks["openai-compatible"]["baseUrl"] = "https://other.example"
    assert keys(access(home, "openai-compatible", blocks=blocks, remote={"baseUrl": ELSEWHERE})) == []


@pytest.mark.parametrize(
    ("provider", "address", "configured", "own"),
    [
        ("openai", "https://api.openai.com/v1", "", True),
        ("openai", "https://API.openai.com:443", "", True),
        ("openai", "https://eu.api.openai.com/v1", "", True),
        ("openai", "http://api.openai.com/v1", "", False),
        ("openai", "https://api.openai.com:8443/v1", "", False),
        ("openai", "https://api.openai.com.evil.example/v1", "", False),
        ("openai", "https://evil-api.openai.com.example", "", False),
        ("openai", "https://api.openai.com@evil.example/v1", "", False),
        ("openai", "https://api.openai.com/v1", "https://gateway.example/v1", False),
        ("openai", "https://gateway.example/v1/", "https://gateway.example/v1", True),
        ("openai", "https://gateway.example/v2", "https://gateway.example/v1", False),
        ("openai", "https://[bad", "", False),
        ("openai", "https://api.openai.com:port", "", False),
        ("ollama", "http://localhost:11434", "", True),
        ("ollama", "http://127.0.0.1:11435", "", False),
        ("ollama", "https://ollama.com", "", True),
        ("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", "", True),
        ("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com.evil.example", "", False),
        ("acme", "https://api.openai.com/v1", "", False),
    ],
)
def test_which_addresses_are_a_providers_own(provider, address, configured, own):
    assert is_own_address(provider, address, configured) is own


def test_the_default_addresses_of_the_providers_are_their_own():
    defaults = {
        "openai": openai.OPENAI_BASE_URL,
        "gemini": gemini.BASE_URL,
        "voyage": openai.VOYAGE_BASE_URL,
        "mistral": openai.MISTRAL_BASE_URL,
        "deepinfra": openai.DEEPINFRA_BASE_URL,
        "lmstudio": openai.LMSTUDIO_BASE_URL,
    }
    assert set(OWN_HOSTS) - set(defaults) == {"ollama"}
    assert [name for name, url in defaults.items() if not is_own_address(name, url, "")] == []


@pytest.mark.parametrize("api", [None, "openai-completions", "openai-responses"])
def test_an_id_of_the_settings_is_a_compatible_provider(home, api):
    block = {"baseUrl": "https://acme.example/v1", "apiKey": SECRET, "headers": {"X-Team": "t"}}
    blocks = {"acme": {**block, **({"api": api} if api else {})}}
    found = access(home, "acme", blocks=blocks)
    assert (keys(found), found.base_url, found.api) == ([SECRET], "https://acme.example/v1", "openai-compatible")
    chosen = selection(home, provider="acme", model="m", blocks=blocks)
    assert (chosen.provider.spec.provider, chosen.provider.spec.endpoint) == ("acme", "https://acme.example/v1")
    assert load(home, provider="acme", model="m", blocks=blocks).warnings == ()
    assert "acme has no default model" in selection(home, provider="acme", blocks=blocks).reason


def test_a_compatible_server_has_the_default_model_of_the_older_layout_only(home):
    settings = load(home, provider="openai-compatible", remote={"baseUrl": ELSEWHERE})
    agent = settings.agent("")
    assert agent_config(agent, settings).embedding.remotes[0].model == "text-embedding-3-small"
    search = agent.memory_search.model_copy(update={"model": ""})
    without = dataclasses.replace(agent, memory_search=search)
    assert agent_config(without, settings).embedding.remotes[0].model == ""


def test_an_id_of_the_settings_may_be_ollama(home):
    blocks = {"box": {"api": "ollama", "baseUrl": "http://box.example:11434"}}
    chosen = selection(home, provider="box", blocks=blocks).provider
    assert (chosen.spec.provider, chosen.spec.model) == ("box", "nomic-embed-text")


def test_an_id_of_the_settings_may_be_the_fallback(home):
    blocks = {"acme": {"baseUrl": "https://acme.example/v1", "apiKey": SECRET}}
    settings = load(home, provider="ollama", fallback="acme/m", blocks=blocks)
    assert settings.warnings == ()
    fallback = agent_config(settings.agent(""), settings).embedding.fallback
    (remote,) = fallback.remotes
    assert (remote.api, remote.model, remote.base_url) == ("openai-compatible", "m", "https://acme.example/v1")


@pytest.mark.parametrize("api", ["anthropic-messages", "google-generative-ai", "", 5, None])
def test_an_id_with_another_api_is_not_used(home, api):
    home.environ.update({"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET})
    blocks = {"acme": {"api": api, "apiKey": SECRET, "baseUrl": "https://acme.example"}}
    chosen = selection(home, provider="acme", model="m", blocks=blocks)
    if api in ("", None):
        assert chosen.provider is not None
    else:
        assert chosen.provider is None
        assert "models.providers.acme.api is" in chosen.reason


@pytest.mark.parametrize("provider", ["acme", "github-copilot", "google"])
def test_an_unknown_id_takes_no_other_providers_key_and_is_reported(home, provider):
    home.environ.update(dict.fromkeys(KEYED.values(), SECRET))
    settings = load(home, provider=provider, fallback="openai")
    assert keys(settings.agent("").provider_access[provider]) == []
    chosen = selection(home, provider=provider, fallback="openai")
    assert (chosen.provider, chosen.fallback, chosen.is_configured) == (None, None, True)
    assert f"the provider {provider} is not supported by this version" in chosen.reason
    assert provider == "github-copilot" or any(f'"{provider}" is not known' in each for each in settings.warnings)


def test_the_new_presets_are_not_chosen_by_auto(home):
    home.environ.update({"LM_API_TOKEN": SECRET, "DEEPINFRA_API_KEY": SECRET, "AWS_BEARER_TOKEN_BEDROCK": SECRET})
    chosen = selection(home)
    assert (chosen.provider, chosen.is_configured) == (None, False)


@pytest.mark.parametrize(
    ("environ", "region"),
    [
        ({}, "us-east-1"),
        ({"AWS_REGION": "eu-west-3"}, "eu-west-3"),
        ({"AWS_REGION": " ", "AWS_DEFAULT_REGION": "ap-southeast-2"}, "ap-southeast-2"),
        ({"AWS_REGION": "us-gov-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}, "us-gov-west-1"),
    ],
)
def test_bedrocks_region_is_that_of_the_environment(environ, region):
    assert bedrock_address(environ) == f"https://bedrock-runtime.{region}.amazonaws.com"


def test_a_region_that_is_none_sends_nothing(home):
    home.environ.update({"AWS_REGION": "evil.example/#", "AWS_BEARER_TOKEN_BEDROCK": SECRET})
    found = access(home, "bedrock")
    assert (keys(found), found.base_url) == ([], "")
    assert "AWS_REGION is not the name of a region" in found.problem


def test_bedrock_reads_the_gateways_block(home):
    blocks = {"amazon-bedrock": {"baseUrl": "https://bedrock-runtime.eu-west-1.amazonaws.com", "apiKey": SECRET}}
    found = access(home, "bedrock", blocks=blocks)
    assert (keys(found), found.base_url) == ([SECRET], blocks["amazon-bedrock"]["baseUrl"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("", "")),
        ({"inputType": "text"}, ("text", "text")),
        ({"inputType": "text", "queryInputType": "query"}, ("query", "text")),
        ({"inputType": " ", "documentInputType": " passage "}, ("", "passage")),
    ],
)
def test_input_types_are_those_of_the_role_or_of_both(home, given, expected):
    settings = load(home, provider="openai-compatible", remote={"baseUrl": ELSEWHERE}, **given)
    (remote,) = agent_config(settings.agent(""), settings).embedding.remotes
    assert (remote.query_input_type, remote.document_input_type) == expected
