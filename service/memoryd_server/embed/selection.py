"""Which provider the settings ask for. One that was asked for is never replaced by another."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.embed.http_errors import public_url
from memoryd_server.embed.local import LocalProvider
from memoryd_server.embed.model_files import DEFAULT_MODEL, FileOnDisk, HuggingFaceFile, ModelFile
from memoryd_server.embed.openai_compatible import OpenAICompatibleProvider
from memoryd_server.embed.provider import EmbeddingProvider
from memoryd_server.embed.spec import spec_for
from memoryd_server.errors import EmbeddingUnavailable

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_MODEL = "text-embedding-3-small"
OPENAI_KEY_MISSING = "no API key is configured for the provider openai"


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """What the settings say of embeddings. Equal configurations can share a provider.

    `provider` is "auto", "none" or a provider's name. Empty strings mean not set. `local_model_path` is a path (made
    absolute, "~" expanded) or an `hf:` address; `local_cache_dir` is where fetched models are kept. `headers` are
    pairs. `threads` None means half the processors.
    """

    provider: str = "auto"
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    dimensions: int | None = None
    local_model_path: str = ""
    local_cache_dir: str = ""
    idle_seconds: float = 300.0
    threads: int | None = None

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"EmbeddingConfig(provider={self.provider!r}, model={self.model!r})"


@dataclass(frozen=True, slots=True)
class Selection:
    """The provider, or why there is none. `requested` is what the settings ask for."""

    provider: EmbeddingProvider | None
    requested: str
    reason: str = ""


def select(config: EmbeddingConfig) -> Selection:
    """A provider of its own for this configuration. Calls nobody; the caller closes the provider."""
    return ProviderPool().select(config)


class ProviderPool:
    """Makes providers, one for all agents that ask for the same: one model in memory, one cooldown. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._providers: dict[object, EmbeddingProvider] = {}

    def select(self, config: EmbeddingConfig) -> Selection:
        """The provider for this configuration. The pool closes it."""
        requested = config.provider
        chosen = _automatic(config) if requested == "auto" else requested
        if chosen == "none":
            reason = "embeddings are switched off" if requested == "none" else "no embedding provider is configured"
            return Selection(None, requested, reason)
        try:
            with self._lock:
                return Selection(self._provider(chosen, config), requested)
        except (EmbeddingUnavailable, ValueError) as error:
            return Selection(None, requested, str(error))

    def _provider(self, chosen: str, config: EmbeddingConfig) -> EmbeddingProvider:
        if chosen == "local":
            model = config.local_model_path or DEFAULT_MODEL
            return self._shared(("local", model, config.local_cache_dir), lambda: _local(model, config))
        if chosen in {"openai", "openai-compatible"}:
            key = (chosen, config.model, config.base_url, config.api_key, config.headers, config.dimensions)
            return self._shared(key, lambda: _openai(chosen, config))
        raise EmbeddingUnavailable(f"the provider {chosen} is not part of this version yet")

    def _shared(self, key: object, make: Callable[[], EmbeddingProvider]) -> EmbeddingProvider:
        if key not in self._providers:
            self._providers[key] = make()
        return self._providers[key]

    def close(self) -> None:
        """Closes every provider."""
        with self._lock:
            providers, self._providers = list(self._providers.values()), {}
        for provider in providers:
            provider.close()


def _automatic(config: EmbeddingConfig) -> str:
    path = config.local_model_path
    if path and not _is_address(path) and Path(path).is_file():
        return "local"
    if config.base_url:
        return "openai-compatible"
    return "openai" if config.api_key else "none"


def _is_address(path: str) -> bool:
    return path.startswith(("hf:", "http:", "https:"))


def _local(model: str, config: EmbeddingConfig) -> EmbeddingProvider:
    return LocalProvider(_file(model, config), idle_seconds=config.idle_seconds, threads=config.threads)


def _file(model: str, config: EmbeddingConfig) -> ModelFile:
    if not _is_address(model):
        return FileOnDisk(Path(model))
    if not model.startswith("hf:"):
        raise EmbeddingUnavailable("models are not fetched from http(s): addresses; use hf: or a path")
    if not config.local_cache_dir:
        raise EmbeddingUnavailable("no folder is configured to keep fetched models in")
    return HuggingFaceFile(model, Path(config.local_cache_dir))


def _openai(provider: str, config: EmbeddingConfig) -> EmbeddingProvider:
    model = config.model.removeprefix(f"{provider}/")
    base_url = config.base_url
    if provider == "openai":
        base_url, model = base_url or OPENAI_URL, model or OPENAI_MODEL
        if not config.api_key and not config.base_url:
            raise EmbeddingUnavailable(OPENAI_KEY_MISSING)
    if not base_url:
        raise EmbeddingUnavailable("the provider openai-compatible needs remote.baseUrl")
    spec = spec_for(provider, model or OPENAI_MODEL, public_url(base_url), config.dimensions)
    return OpenAICompatibleProvider(spec, base_url, config.api_key, dict(config.headers))
