"""LM Studio, DeepInfra, and providers with an id of the settings' own: address, model and input types."""

import time

import pytest

from fake_providers import fake_provider
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.openai import lmstudio, openai_compatible
from memoryd_server.providers.pool import ProviderPool
from memoryd_server.providers.provider import EmbeddingConfig, RemoteConfig
from memoryd_server.store import VectorIdentity

BASE = "http://127.0.0.1:9"


@pytest.fixture
def pool():
    pool = ProviderPool()
    yield pool
    pool.close()


def soon():
    return time.monotonic() + 5.0


def selected(pool, provider, model="m", **fields):
    return pool.select(EmbeddingConfig(provider, (RemoteConfig(provider, model, **fields),)))


@pytest.mark.parametrize("given", ["", "/", "/v1", "/v1/", "/api/v1"])
def test_lm_studio_is_reached_whichever_form_its_address_has(given):
    provider = lmstudio(RemoteConfig("lmstudio", "m", BASE + given))
    assert provider.spec.endpoint == f"{BASE}/v1"
    provider.close()


def test_lm_studio_is_on_this_machine_and_needs_no_key(pool):
    found = selected(pool, "lmstudio").provider
    assert found.spec.endpoint == "http://localhost:1234/v1"


def test_deepinfra_needs_a_key(pool):
    assert "no API key is configured for the provider deepinfra" in selected(pool, "deepinfra").reason
    found = selected(pool, "deepinfra", keys=("k",)).provider
    assert found.spec.endpoint == "https://api.deepinfra.com/v1/openai"


@pytest.mark.parametrize("api", ["openai-compatible", "ollama"])
def test_a_provider_of_the_settings_speaks_the_format_of_its_api_under_its_own_name(pool, api):
    with fake_provider(api) as server:
        found = selected(pool, "acme", server.model, base_url=server.url, api=api).provider
        assert found.embed_query("a", soon()).size == server.native_dimensions
        assert found.spec.provider == "acme"
        assert server.requests[0].body["model"] == server.model
        found.close()
        server.close()


@pytest.mark.parametrize(
    ("provider", "fields", "why"),
    [
        ("acme", {}, "not supported by this version: it is neither one of memoryd's nor an id in models.providers"),
        ("github-copilot", {"keys": ("k",)}, "does not exchange GitHub tokens"),
        ("acme", {"api": "openai-compatible"}, "models.providers.acme.baseUrl"),
        ("acme", {"api": "openai-compatible", "base_url": BASE, "model": ""}, "acme has no default model"),
        ("openai-compatible", {"base_url": BASE, "model": ""}, "set memory.search.model"),
        ("acme", {"problem": "models.providers.acme.api is 'x'"}, "models.providers.acme.api is 'x'"),
    ],
)
def test_what_cannot_be_used_gives_the_reason(pool, provider, fields, why):
    selection = selected(pool, provider, **{"model": "m", **fields})
    assert selection.provider is None
    assert why in selection.reason
    assert selection.is_configured


@pytest.mark.parametrize("provider", ["acme", "github-copilot"])
def test_a_provider_that_is_not_supported_has_no_fallback(pool, provider):
    second = EmbeddingConfig("openai", (RemoteConfig("openai", "m", keys=("k",)),))
    assert pool.select(EmbeddingConfig(provider, (), fallback=second)).fallback is None


def test_a_provider_of_the_settings_may_have_a_fallback(pool):
    second = EmbeddingConfig("openai", (RemoteConfig("openai", "m", keys=("k",)),))
    remote = RemoteConfig("acme", "m", BASE, api="openai-compatible")
    selection = pool.select(EmbeddingConfig("acme", (remote,), fallback=second))
    assert selection.provider.spec.provider == "acme"
    assert selection.fallback().provider.spec.provider == "openai"


def test_input_types_are_sent_with_their_role_only(server):
    config = RemoteConfig("openai-compatible", "m", server.url, query_input_type="query", document_input_type="passage")
    provider = openai_compatible(config)
    provider.embed_query("a", soon())
    provider.embed_documents(["b"], lambda: False)
    assert [request.body.get("input_type") for request in server.requests] == ["query", "passage"]
    provider.close()


def test_no_input_type_is_sent_unless_it_is_set(server):
    provider = openai_compatible(RemoteConfig("openai-compatible", "m", server.url, query_input_type="query"))
    provider.embed_query("a", soon())
    provider.embed_documents(["b"], lambda: False)
    assert ["input_type" in request.body for request in server.requests] == [True, False]
    provider.close()


def identity(**types):
    provider = openai_compatible(RemoteConfig("openai-compatible", "intfloat/e5-base", f"{BASE}/v1", **types))
    provider.close()
    return VectorIdentity.of(provider.spec, 16)


def test_only_the_input_type_of_documents_counts_towards_the_identity():
    plain = identity()
    assert plain.endpoint == f"{BASE}/v1"
    assert identity(query_input_type="query") == plain
    assert identity(query_input_type="query").cache_key() == plain.cache_key()
    typed = identity(document_input_type="passage")
    assert typed.differences(plain)
    assert typed.cache_key() != plain.cache_key()
    assert typed.cache_key() != identity(document_input_type="document").cache_key()


def test_a_server_that_is_told_the_type_gets_no_prefix_of_the_models_family():
    assert identity().document_prefix == "passage: "
    assert identity(document_input_type="passage").document_prefix == ""


def test_a_model_is_required():
    with pytest.raises(EmbeddingUnavailable, match="no default model"):
        openai_compatible(RemoteConfig("openai-compatible", "", BASE))
