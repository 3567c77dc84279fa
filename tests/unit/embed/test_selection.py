import pytest

from memoryd_server.embed import EmbeddingConfig, ProviderPool
from memoryd_server.embed.local import LocalProvider
from memoryd_server.embed.openai_compatible import OpenAICompatibleProvider

BASE = "http://127.0.0.1:9/v1"


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


def check(selection, kind, provider, model):
    assert isinstance(selection.provider, kind), selection
    assert selection.reason == ""
    assert (selection.provider.spec.provider, selection.provider.spec.model) == (provider, model)


def test_auto_takes_a_local_model_that_is_there(pool, model):
    check(pool.select(EmbeddingConfig(local_model_path=model, api_key="k")), LocalProvider, "local", "m.gguf")


@pytest.mark.parametrize("path", ["", "/none.gguf", "hf:o/r/m.gguf"])
def test_auto_takes_a_local_model_only_when_it_is_there(pool, path):
    selection = pool.select(EmbeddingConfig(local_model_path=path))
    assert (selection.provider, selection.requested) == (None, "auto")
    assert selection.reason == "no embedding provider is configured"
    check(
        pool.select(EmbeddingConfig(local_model_path=path, api_key="k")),
        OpenAICompatibleProvider,
        "openai",
        "text-embedding-3-small",
    )


def test_auto_takes_the_server_that_is_configured(pool):
    selection = pool.select(EmbeddingConfig(base_url=BASE, model="m"))
    check(selection, OpenAICompatibleProvider, "openai-compatible", "m")


def test_none_is_none(pool, model):
    selection = pool.select(EmbeddingConfig("none", base_url=BASE, api_key="k", local_model_path=model))
    assert (selection.provider, selection.requested) == (None, "none")
    assert selection.reason


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (EmbeddingConfig("gemini", api_key="k"), "the provider gemini is not part of this version yet"),
        (EmbeddingConfig("ollama", base_url=BASE), "the provider ollama is not part of this version yet"),
        (EmbeddingConfig("openai-compatible", api_key="k"), "needs remote.baseUrl"),
        (EmbeddingConfig("openai"), "no API key"),
        (EmbeddingConfig("openai", base_url="example.org", api_key="k"), "base URL"),
        (EmbeddingConfig("openai", api_key="schlüssel"), "HTTP forbids"),
        (EmbeddingConfig("local", local_model_path="https://x.org/m.gguf"), "use hf: or a path"),
        (EmbeddingConfig("local", local_model_path="hf:x", local_cache_dir="/c"), "organization/repository"),
        (EmbeddingConfig("local"), "no folder is configured"),
    ],
)
def test_a_provider_that_was_asked_for_is_never_replaced(pool, config, why):
    selection = pool.select(config)
    assert (selection.provider, selection.requested) == (None, config.provider)
    assert why in selection.reason


def test_a_missing_model_that_was_asked_for_is_a_provider_that_says_so(pool):
    selection = pool.select(EmbeddingConfig("local", local_model_path="/none.gguf"))
    check(selection, LocalProvider, "local", "none.gguf")
    assert selection.provider.status().reason


def test_the_provider_s_name_before_the_model_is_dropped(pool):
    selection = pool.select(EmbeddingConfig("openai", model="openai/text-embedding-3-large", api_key="k"))
    check(selection, OpenAICompatibleProvider, "openai", "text-embedding-3-large")


def test_the_endpoint_of_the_spec_holds_no_credentials(pool):
    config = EmbeddingConfig("openai-compatible", base_url="https://joe:pw@example.org/v1/?key=secret")
    assert pool.select(config).provider.spec.endpoint == "https://example.org/v1"


def test_agents_that_ask_for_the_same_share_a_provider(pool, model):
    local = [pool.select(EmbeddingConfig("local", model=m, local_model_path=model)).provider for m in ("", "x")]
    assert local[0] is local[1]
    config = EmbeddingConfig(base_url=BASE, headers=(("a", "b"),))
    assert pool.select(config).provider is pool.select(config).provider
    assert pool.select(config).provider is not pool.select(EmbeddingConfig(base_url=BASE)).provider


def test_a_configuration_shows_no_secrets():
    shown = repr(EmbeddingConfig(api_key="sk-secret", headers=(("x", "hidden"),)))
    assert "secret" not in shown
    assert "hidden" not in shown
