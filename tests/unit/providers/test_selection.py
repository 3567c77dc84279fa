import gc
import time
from dataclasses import replace

import httpx
import pytest

from fake_providers import embedding_server
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.pool import ProviderPool
from memoryd_server.providers.provider import EmbeddingConfig, LocalConfig, RemoteConfig
from memoryd_server.providers.remote import RemoteProvider

BASE = "http://127.0.0.1:9/v1"
KEYED = ("openai", "gemini", "voyage", "mistral")


@pytest.fixture
def pool():
    pool = ProviderPool()
    yield pool
    pool.close()


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    path.touch()
    return str(path)


def remote(provider, model="m", **fields):
    return RemoteConfig(provider, model, **fields)


def asking_for(provider, model="m", **fields):
    return EmbeddingConfig(provider, (remote(provider, model, **fields),))


def automatic(*remotes, local=""):
    return EmbeddingConfig("auto", remotes, LocalConfig(local))


def check(selection, kind, provider, model="m"):
    assert isinstance(selection.provider, kind), selection
    assert selection.reason == ""
    assert (selection.provider.spec.provider, selection.provider.spec.model) == (provider, model)


def test_auto_takes_a_local_model_that_is_there(pool, model):
    check(pool.select(automatic(remote("openai", keys=("k",)), local=model)), LocalProvider, "local", "m.gguf")


@pytest.mark.parametrize("path", ["", "/none.gguf", "hf:o/r/m.gguf"])
def test_auto_takes_a_local_model_only_when_it_is_there(pool, path):
    check(pool.select(automatic(remote("openai", keys=("k",)), local=path)), RemoteProvider, "openai")


@pytest.mark.parametrize("count", range(1, 5))
def test_auto_takes_the_first_that_has_a_key(pool, count):
    have = KEYED[-count:]
    found = pool.select(automatic(*(remote(name, keys=("k",)) for name in reversed(have))))
    check(found, RemoteProvider, have[0])


def test_auto_takes_the_server_at_an_address_before_all_that_have_keys(pool):
    server = remote("openai-compatible", base_url=BASE)
    check(pool.select(automatic(remote("openai", keys=("k",)), server)), RemoteProvider, "openai-compatible")


def test_a_header_that_carries_a_key_is_one(pool):
    check(pool.select(automatic(remote("voyage", headers=(("Authorization", "x"),)))), RemoteProvider, "voyage")


def test_auto_never_takes_what_has_an_address_and_no_key(pool):
    configured = automatic(remote("ollama", keys=("k",), base_url=BASE), remote("openai", base_url=BASE))
    assert pool.select(configured).provider is None


def test_auto_says_what_it_looked_for(pool):
    found = pool.select(automatic(remote("gemini", no_key="remote.apiKey names the variable G, which is not set")))
    assert (found.provider, found.requested) == (None, "auto")
    assert found.reason == (
        "no embedding provider is configured: local.modelPath is not set, and there is no key for openai, "
        "gemini (remote.apiKey names the variable G, which is not set), voyage, mistral"
    )
    assert "local.modelPath is not a file" in pool.select(automatic(local="/none.gguf")).reason


@pytest.mark.parametrize(
    "broken",
    [
        remote("openai", keys=("k",), base_url="example.org"),
        remote("openai", keys=("schlüssel",)),
        remote("openai", keys=("k",), problem="remote.baseUrl names the variable B, which is not set"),
    ],
    ids=["address", "key", "variable"],
)
def test_auto_does_not_pass_over_what_is_configured_and_cannot_be_used(pool, broken):
    found = pool.select(automatic(broken, remote("gemini", keys=("k",))))
    assert found.provider is None
    assert "openai" in found.reason


def test_none_is_none(pool, model):
    config = EmbeddingConfig("none", (remote("openai", keys=("k",)),), LocalConfig(model))
    selection = pool.select(config)
    assert (selection.provider, selection.requested) == (None, "none")
    assert selection.reason


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (asking_for("qdrant", keys=("k",)), "the provider qdrant is not supported by this version"),
        (asking_for("bedrock", base_url=BASE), "memoryd does not sign requests"),
        (asking_for("openai-compatible", keys=("k",)), "needs memory.search.remote.baseUrl"),
        *((asking_for(name), f"no API key is configured for the provider {name}") for name in KEYED),
        (asking_for("gemini", no_key="the variable G is not set"), "provider gemini: the variable G is not set"),
        (asking_for("gemini", keys=("{}",)), "JSON without a token"),
        (asking_for("gemini", "gemini-embedding-2", keys=("k",), dimensions=512), "768, 1536, 3072 dimensions"),
        (asking_for("ollama", base_url="example.org"), "base URL"),
        (asking_for("voyage", base_url=BASE, problem="the variable B is not set"), "the variable B is not set"),
        (asking_for("mistral", keys=("schlüssel",)), "HTTP forbids"),
        (EmbeddingConfig("local", (), LocalConfig("https://x.org/m.gguf")), "set an hf: address or a path"),
        (EmbeddingConfig("local", (), LocalConfig("hf:x", "/c")), "organization/repository"),
        (EmbeddingConfig("local"), "no folder for downloaded models"),
    ],
)
def test_a_provider_that_was_asked_for_is_never_replaced(pool, config, why):
    others = tuple(remote(name, keys=("k",)) for name in KEYED if name != config.provider)
    selection = pool.select(EmbeddingConfig(config.provider, (*config.remotes, *others), config.local))
    assert (selection.provider, selection.requested) == (None, config.provider)
    assert why in selection.reason


def test_a_missing_model_that_was_asked_for_is_a_provider_that_says_so(pool):
    selection = pool.select(EmbeddingConfig("local", (), LocalConfig("/none.gguf")))
    check(selection, LocalProvider, "local", "none.gguf")
    assert selection.provider.status().reason


@pytest.mark.parametrize(
    ("provider", "written"),
    [
        ("openai", "openai/m"),
        ("mistral", "mistral/m"),
        ("voyage", "voyage/m"),
        ("ollama", "ollama/m"),
        ("gemini", "models/m"),
        ("gemini", "gemini/m"),
        ("gemini", "google/m"),
    ],
)
def test_the_provider_s_name_before_the_model_is_dropped(pool, provider, written):
    check(pool.select(asking_for(provider, model=written, keys=("k",))), RemoteProvider, provider)


@pytest.mark.parametrize(
    ("provider", "given", "endpoint"),
    [
        ("openai-compatible", "https://joe:pw@example.org/v1/?key=secret", "https://example.org/v1"),
        ("openai", "", "https://api.openai.com/v1"),
        ("mistral", "", "https://api.mistral.ai/v1"),
        ("voyage", "", "https://api.voyageai.com/v1"),
        ("gemini", "", "https://generativelanguage.googleapis.com/v1beta"),
        ("gemini", "https://g.example/v1beta/openai/", "https://g.example/v1beta"),
        ("gemini", "https://g.example/v1beta//", "https://g.example/v1beta"),
        ("gemini", "https://g.example/v1beta/openai/embeddings", "https://g.example/v1beta"),
        ("ollama", "", "http://127.0.0.1:11434"),
        ("ollama", "http://box:11434/v1/", "http://box:11434"),
    ],
)
def test_the_endpoint_is_normal_and_holds_no_credentials(pool, provider, given, endpoint):
    assert pool.select(asking_for(provider, base_url=given, keys=("k",))).provider.spec.endpoint == endpoint


def test_agents_that_ask_for_the_same_share_a_provider(pool, model):
    local = [pool.select(EmbeddingConfig("local", (), LocalConfig(model, idle_seconds=s))).provider for s in (1, 2)]
    assert local[0] is local[1]
    config = asking_for("openai-compatible", base_url=BASE, headers=(("a", "b"),))
    assert pool.select(config).provider is pool.select(config).provider
    assert pool.select(config).provider is not pool.select(asking_for("openai-compatible", base_url=BASE)).provider


def test_the_fallback_is_made_when_it_is_asked_for(pool):
    second = asking_for("gemini", keys=("k",))
    selection = pool.select(EmbeddingConfig("openai", (remote("openai"),), fallback=second))
    assert selection.provider is None
    check(selection.fallback(), RemoteProvider, "gemini")


@pytest.mark.parametrize("fallback", [None, EmbeddingConfig("none"), asking_for("openai", keys=("k",))])
def test_a_provider_is_no_fallback_of_its_own(pool, fallback):
    first = remote("openai", keys=("k",))
    for provider in ("openai", "auto"):
        assert pool.select(EmbeddingConfig(provider, (first,), fallback=fallback)).fallback is None


def test_a_configuration_shows_no_secrets():
    config = asking_for("openai", keys=("sk-secret",), headers=(("x", "hidden"),), base_url="http://joe:pw@x")
    shown = repr(EmbeddingConfig("voyage", fallback=config)) + str(config)
    assert not [secret for secret in ("sk-secret", "hidden", "joe") if secret in shown]


BLOCKED = ("openclaw.json: memory.search",)


@pytest.mark.parametrize("provider", ["auto", *KEYED, "openai-compatible", "ollama", "bedrock", "unknown"])
def test_a_setting_that_is_not_understood_blocks_every_provider_over_http(pool, provider):
    remotes = tuple(remote(name, keys=("k",), base_url=BASE) for name in (*KEYED, "openai-compatible", "ollama"))
    config = EmbeddingConfig(provider, remotes, fallback=asking_for("gemini", keys=("k",)), blocked_by=BLOCKED)
    selection = pool.select(config)
    assert (selection.provider, selection.fallback, selection.blocked) == (None, None, True)
    assert selection.requested == provider
    assert (selection.is_configured, selection.requires_vectors) == (True, provider != "auto")
    assert selection.reason.endswith("memoryd does not understand openclaw.json: memory.search")
    assert pool.providers() == []


def test_a_setting_that_is_not_understood_leaves_local_models_and_none(pool, model):
    local = LocalConfig(model)
    for provider in ("local", "auto"):
        config = EmbeddingConfig(provider, (remote("openai", keys=("k",)),), local, blocked_by=BLOCKED)
        check(pool.select(config), LocalProvider, "local", "m.gguf")
    none = pool.select(EmbeddingConfig("none", blocked_by=BLOCKED))
    assert (none.reason, none.blocked) == ("embeddings are disabled", False)
    assert not none.requires_vectors


def test_the_fallback_of_a_local_model_is_blocked_too(pool, model):
    second = asking_for("gemini", keys=("k",))
    config = EmbeddingConfig("local", (), LocalConfig(model), second, BLOCKED)
    assert pool.select(config).fallback().blocked


def test_of_many_settings_the_first_ones_are_named(pool):
    blocked_by = tuple(f"file: key{number}" for number in range(5))
    reason = pool.select(EmbeddingConfig("openai", blocked_by=blocked_by)).reason
    assert reason.endswith("file: key0, file: key1, file: key2 and 2 more settings")


def test_a_provider_that_this_version_does_not_have_hands_nothing_to_its_fallback(pool):
    for provider in ("bedrock", "github-copilot", "NONE"):
        selection = pool.select(EmbeddingConfig(provider, fallback=asking_for("gemini", keys=("k",))))
        assert (selection.provider, selection.fallback) == (None, None)
        assert "its fallback gemini is not used either" in selection.reason


def test_remote_providers_are_closed_and_made_again_when_they_are_asked_for(pool, model):
    first = pool.select(asking_for("openai", keys=("k",))).provider
    local = pool.select(EmbeddingConfig("local", (), LocalConfig(model))).provider
    pool.close_remote()
    assert first.status().reason == "the provider is closed"
    assert pool.providers() == [local]
    again = pool.select(asking_for("openai", keys=("k",))).provider
    assert again is not first
    assert again.status().reason == ""


@pytest.mark.parametrize(
    "config",
    [
        asking_for("openai", missing_secret="the key does not resolve"),
        automatic(remote("openai", missing_secret="the key does not resolve"), remote("mistral", keys=("k",))),
        automatic(
            remote("openai-compatible", missing_secret="the key does not resolve"), remote("openai", keys=("k",))
        ),
    ],
    ids=["named", "automatic", "server"],
)
def test_a_provider_whose_secret_is_missing_is_replaced_by_no_other(pool, config):
    fallback = asking_for("voyage", keys=("k",))
    selection = pool.select(replace(config, fallback=fallback))
    assert (selection.provider, selection.fallback, selection.blocked) == (None, None, True)
    assert selection.reason == "remote embeddings are disabled, because the key does not resolve"
    assert pool.providers() == []


def test_a_fallback_whose_secret_is_missing_does_not_affect_the_provider(pool):
    fallback = asking_for("voyage", missing_secret="the key does not resolve")
    selection = pool.select(replace(asking_for("openai", keys=("k",)), fallback=fallback))
    check(selection, RemoteProvider, "openai")
    assert selection.fallback().reason == "remote embeddings are disabled, because the key does not resolve"


def test_a_provider_over_http_is_freed_when_nothing_refers_to_it(pool):
    selections = [pool.select(asking_for("openai", keys=(f"k{number}",))) for number in range(3)]
    assert len(pool.providers()) == 3
    kept = selections.pop().provider
    selections.clear()
    gc.collect()
    assert pool.providers() == [kept]


def test_the_connections_of_a_freed_provider_are_closed(pool):
    with embedding_server() as server:
        provider = pool.select(asking_for("openai", keys=("k",), base_url=server.url)).provider
        assert len(provider.embed_query("a crane", time.monotonic() + 10))
        (client,) = (found for found in gc.get_objects() if isinstance(found, httpx.Client) and not found.is_closed)
        del provider
        gc.collect()
        assert client.is_closed
