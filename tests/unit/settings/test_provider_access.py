"""Where an embedding provider is reached and with what key: which place counts, and what never happens unasked."""

import json

import pytest

from memoryd_server.providers.gemini import BASE_URL as GEMINI_BASE_URL
from memoryd_server.providers.ollama import BASE_URL as OLLAMA_BASE_URL
from memoryd_server.providers.openai import MISTRAL_BASE_URL, OPENAI_BASE_URL, VOYAGE_BASE_URL
from memoryd_server.settings.resolved import changed_keys

SECRET = "sk-of-the-test"
PLACES = ("remote", "block", "profile", "environment")


def settings_of(home, *, remote=None, blocks=None, profiles=None, **search):
    if profiles is not None:
        home.write(home.state / "agents" / "main" / "agent" / "auth-profiles.json", {"profiles": profiles})
    own = {"agents": {"defaults": {"memorySearch": {**search, **({"remote": remote} if remote else {})}}}}
    return home.load(own={**own, **({"models": {"providers": blocks}} if blocks else {})})


def access(home, provider="openai", **given):
    return settings_of(home, **{"provider": provider, **given}).agent("").provider_access[provider]


def keys(found):
    return [key.get_secret_value() for key in found.keys]


def headers(found):
    return {name: value.get_secret_value() for name, value in found.headers.items()}


def profile(key, provider="openai", kind="api_key"):
    return {"type": kind, "provider": provider, "key": key}


@pytest.mark.parametrize("first", range(4), ids=PLACES)
def test_a_key_is_taken_from_the_first_place_that_has_one(home, first):
    given = {
        "remote": {"apiKey": "remote"} if first <= 0 else {"apiKey": " "},
        "blocks": {"openai": {"apiKey": "block" if first <= 1 else ""}},
        "profiles": {"openai:default": profile("profile" if first <= 2 else "  ")},
    }
    home.environ["OPENAI_API_KEY"] = " environment "
    assert keys(access(home, **given)) == [PLACES[first]]


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEYS"),
        ("gemini", "GEMINI_API_KEY"),
        ("gemini", "GOOGLE_API_KEY"),
        ("voyage", "VOYAGE_API_KEY"),
        ("mistral", "MISTRAL_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
        ("lmstudio", "LM_API_TOKEN"),
        ("deepinfra", "DEEPINFRA_API_KEY"),
        ("bedrock", "AWS_BEARER_TOKEN_BEDROCK"),
    ],
)
def test_each_provider_has_its_variables(home, provider, variable):
    assert keys(access(home, provider)) == []
    home.environ[variable] = SECRET
    assert keys(access(home, provider)) == [SECRET]


def test_a_server_of_somebodys_own_gets_no_key_of_a_provider(home):
    home.environ.update({"OPENAI_API_KEY": SECRET, "GEMINI_API_KEY": SECRET})
    profiles = {"openai:default": profile(SECRET)}
    assert keys(access(home, "openai-compatible", remote={"baseUrl": "http://x"}, profiles=profiles)) == []


@pytest.mark.parametrize(
    "unusable",
    [
        profile("k", kind="oauth"),
        profile("k", kind="token"),
        profile("k", provider="anthropic"),
        profile(5),
        {"type": "api_key", "provider": "openai", "keyRef": {"source": "env", "id": "X"}},
        "k",
        None,
    ],
)
def test_profiles_of_other_kinds_do_not_count(home, unusable):
    profiles = {"a": unusable, "b": profile("usable")}
    assert keys(access(home, profiles=profiles)) == ["usable"]


def test_an_agent_has_its_own_profiles(home):
    for name in ("a", "b"):
        file = home.state / "agents" / name / "agent" / "auth-profiles.json"
        home.write(file, {"profiles": {"x": profile(f"key of {name}")}})
    search = {"memorySearch": {"provider": "openai"}}
    settings = home.load(
        own={"agents": {"list": [{"id": "a", **search}, {"id": "b", **search}, {"id": "c", **search}]}}
    )
    found = [keys(settings.agent(name).provider_access["openai"]) for name in ("a", "b", "c")]
    assert found == [["key of a"], ["key of b"], []]


def test_geminis_keys_may_take_turns_and_others_are_one(home):
    profiles = {str(number): profile(f"k{number}", provider) for number, provider in enumerate(["google"] * 3)}
    assert keys(access(home, "gemini", profiles=profiles)) == ["k0", "k1", "k2"]
    profiles = {str(number): profile(f"k{number}") for number in range(3)}
    assert keys(access(home, profiles=profiles)) == ["k0"]


@pytest.mark.parametrize("name", ["google", "gemini"])
def test_gemini_is_found_by_the_references_name_too(home, name):
    found = access(home, "gemini", blocks={name: {"apiKey": "k", "baseUrl": "http://g"}})
    assert (keys(found), found.base_url) == (["k"], "http://g")


@pytest.mark.parametrize("content", ["{", "[]", '{"profiles": []}', b"\xff\xfe", '{"profiles": {"x": {"type": []}}}'])
def test_profiles_that_cannot_be_read_are_a_warning_that_shows_nothing(home, content):
    file = home.state / "agents" / "main" / "agent" / "auth-profiles.json"
    home.write(file, "")
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    settings = settings_of(home, provider="openai")
    assert keys(settings.agent("").provider_access["openai"]) == []
    told = [warning for warning in settings.warnings if "auth-profiles.json" in warning]
    assert len(told) == (0 if b"type" in file.read_bytes() else 1)


def test_profiles_are_not_looked_at_where_nothing_remote_is_asked_for(home):
    home.write(home.state / "agents" / "main" / "agent" / "auth-profiles.json", "{")
    for provider in ("local", "none"):
        assert settings_of(home, provider=provider).warnings == ()


def test_headers_are_merged_and_those_of_remote_count(home):
    found = access(
        home,
        blocks={"openai": {"headers": {"X-Team": "red", "X-A": "a"}, "baseUrl": "http://block/v1"}},
        remote={"headers": {"x-team": "blue", "X-B": "b"}, "baseUrl": "http://BLOCK:80/v1/"},
    )
    assert headers(found) == {"x-team": "blue", "x-a": "a", "x-b": "b"}
    assert found.base_url == "http://BLOCK:80/v1/"
    assert access(home, blocks={"openai": {"baseUrl": " http://block/v1 "}}).base_url == "http://block/v1"


def test_a_value_may_name_variables(home):
    home.environ.update({"KEY": "k", "HOST": "example.org", "TEAM": "red"})
    remote = {"apiKey": "${KEY}", "baseUrl": "https://${HOST}/v1", "headers": {"X-Team": "the ${TEAM} one"}}
    found = access(home, remote=remote)
    assert (keys(found), found.base_url) == (["k"], "https://example.org/v1")
    assert headers(found) == {"x-team": "the red one"}
    assert keys(access(home, remote={"apiKey": "$${KEY}-$KEY"})) == ["${KEY}-$KEY"]
    assert keys(access(home, remote={"apiKey": "OPENAI_API_KEY2"})) == ["OPENAI_API_KEY2"]


@pytest.mark.parametrize("profile_key", ["${KEY}", "k"])
def test_so_may_a_profiles_key(home, profile_key):
    home.environ["KEY"] = "k"
    assert keys(access(home, profiles={"x": profile(profile_key)})) == ["k"]


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_the_bare_name_of_a_providers_variable_is_its_value(home, name):
    home.environ[name] = "k"
    assert keys(access(home, "gemini", remote={"apiKey": name})) == ["k"]


@pytest.mark.parametrize("place", ["remote", "block"])
def test_a_key_that_names_an_unset_variable_is_no_key_and_no_other_place_is_asked(home, place):
    home.environ.update({"OPENAI_API_KEY": SECRET, "BLANK": " "})
    given = {"remote": {"apiKey": "${BLANK}"}} if place == "remote" else {"blocks": {"openai": {"apiKey": "${BLANK}"}}}
    found = access(home, **given)
    assert keys(found) == []
    where = "remote.apiKey" if place == "remote" else "models.providers.openai.apiKey"
    assert found.no_key == f"{where} names the variable BLANK, which is not set"
    assert found.problem == ""


@pytest.mark.parametrize("remote", [{"baseUrl": "${NONE}/v1"}, {"headers": {"X-A": "${NONE}"}}])
def test_an_address_or_header_that_names_an_unset_variable_sends_nothing_anywhere(home, remote):
    home.environ["OPENAI_API_KEY"] = SECRET
    found = access(home, remote=remote)
    assert (keys(found), found.base_url, found.headers) == ([], "", {})
    assert "names the variable NONE, which is not set" in found.problem


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({"apiKey": 5}, "models.providers.openai.apiKey: expected a string, found a number"),
        ({"baseUrl": []}, "models.providers.openai.baseUrl: expected a string, found an array"),
        ({"headers": {"x": 1}}, "models.providers.openai.headers.x: expected a string, found a number"),
        (5, "models.providers.openai: expected an object, found a number"),
    ],
)
def test_a_wrong_type_in_a_providers_block_is_refused(home, block, complaint):
    assert complaint in home.refused(own={"models": {"providers": {"openai": block}}})


def test_other_keys_in_the_gateways_blocks_are_ignored(home):
    block = {"api": "openai-responses", "models": [{"id": "m"}], "auth": "api-key", "apiKey": "k"}
    reference = {"models": {"mode": "merge", "providers": {"openai": block, "x.y/z": {"models": []}}}}
    settings = home.load(reference, {"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}})
    assert settings.warnings == ()
    assert keys(settings.agent("").provider_access["openai"]) == ["k"]


def test_auto_knows_the_access_to_each_and_a_named_provider_to_its_own_alone(home):
    home.environ.update({"GEMINI_API_KEY": "g", "VOYAGE_API_KEY": "v"})
    found = settings_of(home).agent("").provider_access
    assert {name: keys(one) for name, one in found.items()} == {
        "openai-compatible": [],
        "openai": [],
        "mistral": [],
        "gemini": ["g"],
        "voyage": ["v"],
    }
    assert list(settings_of(home, provider="voyage").agent("").provider_access) == ["voyage"]


@pytest.mark.parametrize(("provider", "given"), [("gemini", False), ("ollama", False), ("local", True)])
def test_remote_settings_apply_to_the_fallback_only_if_the_provider_does_not_use_them(home, provider, given):
    remote = {"apiKey": SECRET, "baseUrl": "http://remote", "headers": {"X-A": "a"}}
    settings = settings_of(home, provider=provider, fallback="openai", remote=remote)
    found = settings.agent("").fallback_access
    assert (keys(found), found.base_url) == (([SECRET], "http://remote") if given else ([], ""))


def test_no_key_shows_in_the_settings(home):
    home.environ["OPENAI_API_KEY"] = "environment-" + SECRET
    given = {
        "remote": {"headers": {"X": SECRET}},
        "blocks": {"openai": {"headers": {"Y": SECRET}}, "google": {"apiKey": SECRET}},
        "profiles": {"x": profile(SECRET, "mistral")},
        "fallback": "mistral",
    }
    settings = settings_of(home, **given)
    assert SECRET not in repr(settings)
    assert SECRET not in json.dumps(settings.describe())


def test_the_access_to_each_provider_is_shown_with_the_place_of_its_key(home):
    home.environ.update({"GEMINI_API_KEY": SECRET, "MISTRAL_API_KEY": SECRET})
    blocks = {"voyage": {"apiKey": SECRET, "baseUrl": f"https://joe:{SECRET}@x/v1", "headers": {"X-A": SECRET}}}
    settings = settings_of(home, blocks=blocks, remote={"apiKey": "${UNSET}"}, fallback="mistral")
    shown = {entry["key"]: (entry["value"], entry["origin"]) for entry in settings.describe()}
    found = {key.removeprefix("agents.list[main]."): entry for key, entry in shown.items() if "ccess" in key}
    unset = {"problem": "remote.apiKey names the variable UNSET, which is not set"}
    assert found["access.openai"] == (unset, "default")
    assert found["fallbackAccess.mistral"] == ({"keys": ["***"]}, "env MISTRAL_API_KEY")
    named = settings_of(home, blocks=blocks, provider="voyage")
    shown = {entry["key"]: (entry["value"], entry["origin"]) for entry in named.describe()}
    voyage = {"baseUrl": "https://***@x/v1", "keys": ["***"], "headers": {"x-a": "***"}}
    assert shown["agents.list[main].access.voyage"] == (voyage, "models.providers.voyage.apiKey")


def test_a_key_that_changed_is_a_changed_setting(home):
    before = settings_of(home, provider="openai", profiles={"x": profile("one")})
    after = settings_of(home, provider="openai", profiles={"x": profile("two")})
    assert changed_keys(before, after) == ("agents.list[main].access.openai",)
    assert changed_keys(after, after) == ()


# A key stays at its own address

ELSEWHERE = "https://elsewhere.invalid/v1"
OWN_ADDRESSES = {
    "openai": OPENAI_BASE_URL,
    "gemini": GEMINI_BASE_URL,
    "voyage": VOYAGE_BASE_URL,
    "mistral": MISTRAL_BASE_URL,
    "ollama": OLLAMA_BASE_URL,
}


def with_key(home, place, provider="openai"):
    """Return settings with a key of a provider in a place other than `remote`."""
    if place == "environment":
        home.environ[f"{provider.upper()}_API_KEY"] = SECRET
    return {
        "blocks": {provider: {"apiKey": SECRET}} if place == "block" else None,
        "profiles": {"a": profile(SECRET, provider)} if place == "profile" else None,
    }


@pytest.mark.parametrize("place", PLACES[1:])
@pytest.mark.parametrize("provider", OWN_ADDRESSES)
def test_a_provider_s_own_key_is_sent_only_to_its_own_address(home, place, provider):
    given = with_key(home, place, provider)
    found = access(home, provider, remote={"baseUrl": ELSEWHERE}, **given)
    assert (found.keys, found.base_url) == ((), ELSEWHERE)
    if provider == "ollama":
        # It is called without a key.
        assert found.problem == ""
    else:
        assert f"remote.baseUrl is not the address of {provider}, so its own key" in found.problem
    own = access(home, provider, remote={"baseUrl": OWN_ADDRESSES[provider]}, **given)
    assert (keys(own), own.problem) == ([SECRET], "")


@pytest.mark.parametrize(
    "address",
    [
        "http://api.openai.com/v1",
        "https://api.openai.com:8443/v1",
        "https://api.openai.com.elsewhere.invalid/v1",
        "https://api.openai.com@elsewhere.invalid/v1",
        "https://elsewhere.invalid/api.openai.com",
        "https://elsewhere.invalid#@api.openai.com",
        "https://[::1",
        "https://api.openai.com:port/v1",
        "api.openai.com",
    ],
)
def test_an_address_that_only_looks_like_the_provider_s_own_gets_no_key(home, address):
    assert access(home, remote={"baseUrl": address}, **with_key(home, "environment")).keys == ()


@pytest.mark.parametrize("address", ["https://api.openai.com", "https://API.OpenAI.com:443/v2"])
def test_another_path_of_the_provider_s_own_address_gets_its_key(home, address):
    assert keys(access(home, remote={"baseUrl": address}, **with_key(home, "environment"))) == [SECRET]


def test_the_address_of_the_provider_s_block_is_its_own(home):
    home.environ["OPENAI_API_KEY"] = SECRET
    blocks = {"openai": {"baseUrl": "https://proxy.invalid/v1", "headers": {"X-Team": "red"}}}
    own = access(home, blocks=blocks, remote={"baseUrl": "https://PROXY.invalid:443/v1/"})
    assert (keys(own), headers(own)) == ([SECRET], {"x-team": "red"})
    other = access(home, blocks=blocks, remote={"baseUrl": OPENAI_BASE_URL, "headers": {"X-Mine": "1"}})
    assert (keys(other), headers(other)) == ([], {"x-mine": "1"})


def test_a_server_without_an_address_of_its_own_gets_the_key_of_its_block(home):
    blocks = {"openai-compatible": {"apiKey": SECRET}}
    assert keys(access(home, "openai-compatible", blocks=blocks, remote={"baseUrl": ELSEWHERE})) == [SECRET]


@pytest.mark.parametrize("remote", [{"apiKey": "mine"}, {"headers": {"Authorization": "Bearer mine"}}])
def test_the_key_of_remote_is_sent_to_its_address_without_a_warning(home, remote):
    home.environ["OPENAI_API_KEY"] = SECRET
    settings = settings_of(home, provider="openai", remote={"baseUrl": ELSEWHERE, **remote})
    found = settings.agent("").provider_access["openai"]
    assert keys(found) == (["mine"] if "apiKey" in remote else [])
    assert settings.warnings == ()


def test_the_fallback_s_own_key_stays_at_its_own_address_too(home):
    home.environ["GEMINI_API_KEY"] = SECRET
    settings = settings_of(home, provider="local", fallback="gemini", remote={"baseUrl": ELSEWHERE})
    found = settings.agent("").fallback_access
    assert found.keys == ()
    assert "its own key (env GEMINI_API_KEY) is not sent there" in found.problem
