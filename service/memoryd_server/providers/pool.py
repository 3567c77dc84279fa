"""Selection of the provider that the settings request. A requested provider is never silently replaced by another."""

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.model import EmbeddingSpec
from memoryd_server.providers.bedrock import bedrock
from memoryd_server.providers.gemini import gemini
from memoryd_server.providers.http_reranker import HttpReranker
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.local_reranker import LocalReranker
from memoryd_server.providers.model_download import HubModelFile
from memoryd_server.providers.model_files import DEFAULT_MODEL, LocalModelFile, ModelFile
from memoryd_server.providers.ollama import ollama
from memoryd_server.providers.openai import deepinfra, lmstudio, mistral, openai, openai_compatible, voyage
from memoryd_server.providers.provider import (
    EmbeddingConfig,
    EmbeddingProvider,
    LocalConfig,
    RemoteConfig,
)
from memoryd_server.providers.reranker import RerankConfig, Reranker, UnavailableReranker

AUTOMATIC = ("openai", "gemini", "voyage", "mistral")
"""Providers for which "auto" looks for a key, in this order, after a local model and a server at a base URL."""

NOT_CONFIGURED = "no embedding provider is configured"

_LOCAL = "local"
_BEDROCK = "bedrock"
_REMOTE: Mapping[str, Callable[[RemoteConfig], EmbeddingProvider]] = {
    "openai": openai,
    "openai-compatible": openai_compatible,
    "gemini": gemini,
    "voyage": voyage,
    "mistral": mistral,
    "ollama": ollama,
    "lmstudio": lmstudio,
    "deepinfra": deepinfra,
    _BEDROCK: bedrock,
}
_KEY_REQUIRED = (*AUTOMATIC, "deepinfra")
_NOT_IMPLEMENTED: Mapping[str, str] = {
    "github-copilot": "memoryd does not exchange GitHub tokens for those of Copilot",
}
_Key = TypeVar("_Key")

_MAX_BLOCKERS = 3
_KEY_HEADERS = frozenset({"authorization", "x-goog-api-key", "api-key"})


@dataclass(frozen=True, slots=True)
class ProviderSelection:
    """The provider, or why there is none. `requested` is the provider that the settings request.

    `fallback` selects the fallback provider of the settings, and is None if they name none. `former` returns the
    provider of an earlier model, whose spec it receives, if these settings permit to call it. `unusable` is whether
    "auto" found a provider that cannot be used; `blocked` is whether there is none because a setting is not understood
    or a secret has no value.
    """

    provider: EmbeddingProvider | None
    requested: str
    reason: str = ""
    fallback: "Callable[[], ProviderSelection] | None" = None
    unusable: bool = False
    blocked: bool = False
    former: Callable[[EmbeddingSpec], EmbeddingProvider | None] = lambda _spec: None

    @property
    def is_configured(self) -> bool:
        """Whether the settings request vectors, even if no provider can be used."""
        return self.provider is not None or self.unusable or self.blocked or self.requested not in {"auto", "none"}

    @property
    def requires_vectors(self) -> bool:
        """Whether a chunk without a vector is incomplete. With "auto", keywords suffice while providers are blocked."""
        return self.is_configured and not (self.blocked and self.requested == "auto")


class _SecretMissingError(EmbeddingUnavailable):
    """A key or header of the provider is a reference to a secret without a value."""


def select(config: EmbeddingConfig) -> ProviderSelection:
    """Return a new provider for this configuration. Sends nothing; the caller closes the provider."""
    return ProviderPool().select(config)


class ProviderPool:
    """Creates providers and shares them among agents of equal configuration. Thread-safe.

    Sharing means one model in memory and one cooldown. A provider over HTTP is kept while a selection refers to it, so
    that those of earlier settings and keys are freed; a local one is kept until `close`, without its model. With
    `downloads`, missing models are downloaded in the background when they are needed. `on_ready` is called, on any
    thread, with each provider whose model was downloaded.
    """

    def __init__(
        self, *, downloads: bool = True, on_ready: Callable[[EmbeddingProvider], None] = lambda _: None
    ) -> None:
        self._downloads = downloads
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._locals: dict[tuple[str, str], EmbeddingProvider] = {}
        self._remotes: WeakValueDictionary[RemoteConfig, EmbeddingProvider] = WeakValueDictionary()

    def select(self, config: EmbeddingConfig) -> ProviderSelection:
        """Return the provider for this configuration. The pool closes it."""
        if config.blocked_by and _needs_http(config):
            return ProviderSelection(None, config.provider, _blocked(config.blocked_by), blocked=True)
        try:
            provider, reason, unusable = self._find(config)
        except _SecretMissingError as error:
            return ProviderSelection(None, config.provider, str(error), blocked=True)
        fallback = config.fallback
        chosen = provider.spec.provider if provider is not None else config.provider
        former = partial(self._former, config, chosen)
        if fallback is None or fallback.provider == "none" or _is_own(fallback, chosen, provider):
            return ProviderSelection(provider, config.provider, reason, unusable=unusable, former=former)
        if config.provider not in (_LOCAL, "auto", "none") and not _is_supported(config.remote(config.provider)):
            # It is unknown which texts this provider would receive, so none are sent to another one instead.
            return ProviderSelection(
                None, config.provider, f"{reason}; its fallback {fallback.provider} is not used either"
            )
        fallback = replace(fallback, blocked_by=config.blocked_by)
        return ProviderSelection(
            provider, config.provider, reason, lambda: self.select(fallback), unusable, former=former
        )

    def _former(self, config: EmbeddingConfig, chosen: str, spec: EmbeddingSpec) -> EmbeddingProvider | None:
        """Return a provider for the model of `spec`, which earlier settings named; None if these do not permit it.

        Text goes only where these settings send it: to the address of the `chosen` provider or of the fallback, with
        their keys, or to a model whose file is on this machine. Nothing is downloaded.
        """
        if spec.provider == _LOCAL:
            return self._former_local(config.local, spec.model)
        remotes = [config.remote(chosen)] if chosen == spec.provider else []
        if config.fallback is not None and config.fallback.provider == spec.provider:
            remotes.append(config.fallback.remote(spec.provider))
        for remote in remotes:
            try:
                with self._lock:
                    provider = self._remote(replace(remote, model=spec.model, dimensions=_requested(remote, spec)))
            except (EmbeddingUnavailable, ValueError):
                continue
            if (provider.spec.model, provider.spec.endpoint) == (spec.model, spec.endpoint):
                return provider
        return None

    def _former_local(self, local: LocalConfig, model: str) -> EmbeddingProvider | None:
        """Return the local provider of a model by its name in an index; None if its file is not known or not there."""
        configured = Path(local.model_path or model)
        found = model if _is_address(model) else str(configured.with_name(model))
        try:
            if _model_file(found, local, downloads=False).reason:
                return None
            with self._lock:
                provider = self._local(replace(local, model_path=found))
        except (EmbeddingUnavailable, ValueError):
            return None
        provider.refresh()
        return provider

    def _find(self, config: EmbeddingConfig) -> tuple[EmbeddingProvider | None, str, bool]:
        """Return the provider, why there is none, and whether the reason is that it cannot be used.

        Raises:
            _SecretMissingError: neither the provider nor its fallback may be used.
        """
        if config.provider == "none":
            return None, config.why_none or "embeddings are disabled", False
        try:
            with self._lock:
                found = self._automatic(config) if config.provider == "auto" else (self._named(config), "")
                return *found, False
        except _SecretMissingError:
            raise
        except (EmbeddingUnavailable, ValueError) as error:
            return None, str(error), True

    def _automatic(self, config: EmbeddingConfig) -> tuple[EmbeddingProvider | None, str]:
        """Return the first configured provider. One that is configured but unusable is not skipped.

        Raises:
            EmbeddingUnavailable, ValueError: the provider cannot be used.
        """
        if _has_model(config.local):
            return self._local(config.local), ""
        server = config.remote("openai-compatible")
        if server.base_url or server.problem or server.missing_secret:
            return self._remote(server), ""
        missing: list[str] = []
        for name in AUTOMATIC:
            remote = config.remote(name)
            if remote.problem or remote.missing_secret or _has_key(remote):
                return self._remote(remote), ""
            missing.append(f"{name} ({remote.no_key})" if remote.no_key else name)
        without = "local.modelPath is not a file" if config.local.model_path else "local.modelPath is not set"
        return None, f"{NOT_CONFIGURED}: {without}, and there is no key for {', '.join(missing)}"

    def _named(self, config: EmbeddingConfig) -> EmbeddingProvider:
        if config.provider == _LOCAL:
            return self._local(config.local)
        remote = config.remote(config.provider)
        if not (remote.problem or remote.missing_secret) and _wire(remote) not in _REMOTE:
            known = "it is neither one of memoryd's nor an id in models.providers"
            why = _NOT_IMPLEMENTED.get(config.provider, known)
            raise EmbeddingUnavailable(f"the provider {config.provider} is not supported by this version: {why}")
        return self._remote(remote)

    def _local(self, local: LocalConfig) -> EmbeddingProvider:
        model = local.model_path or DEFAULT_MODEL
        return _shared(
            self._locals,
            (model, local.cache_dir),
            lambda: LocalProvider(
                _model_file(model, local, downloads=self._downloads),
                idle_seconds=local.idle_seconds,
                threads=local.threads,
                on_ready=self._on_ready,
            ),
        )

    def _remote(self, remote: RemoteConfig) -> EmbeddingProvider:
        if remote.missing_secret:
            raise _SecretMissingError(f"remote embeddings are disabled, because {remote.missing_secret}")
        if remote.problem:
            raise EmbeddingUnavailable(f"the provider {remote.provider} cannot be used: {remote.problem}")
        if remote.provider in _KEY_REQUIRED and not remote.base_url and not _has_key(remote):
            why = f": {remote.no_key}" if remote.no_key else ""
            raise EmbeddingUnavailable(f"no API key is configured for the provider {remote.provider}{why}")
        return _shared(self._remotes, remote, lambda: _REMOTE[_wire(remote)](remote))

    def providers(self) -> list[EmbeddingProvider]:
        """Return all providers that are kept and not closed."""
        with self._lock:
            return [*self._locals.values(), *self._remotes.values()]

    def close_remote(self) -> None:
        """Close and remove every provider that is reached over HTTP. Its current and later calls fail."""
        with self._lock:
            providers = list(self._remotes.values())
            self._remotes.clear()
        for provider in providers:
            provider.close()

    def close(self) -> None:
        """Close every provider."""
        with self._lock:
            providers = [*self._locals.values(), *self._remotes.values()]
            self._locals.clear()
            self._remotes.clear()
        for provider in providers:
            provider.close()


def _shared(
    providers: MutableMapping[_Key, EmbeddingProvider], key: _Key, make: Callable[[], EmbeddingProvider]
) -> EmbeddingProvider:
    found = providers.get(key)
    if found is None:
        found = providers[key] = make()
    return found


def _is_own(fallback: EmbeddingConfig, chosen: str, provider: EmbeddingProvider | None) -> bool:
    """Return whether a fallback is the `chosen` provider itself, with the same model."""
    if fallback.provider != chosen:
        return False
    if not fallback.names_model or provider is None:
        return True
    model = fallback.local.model_path if chosen == _LOCAL else fallback.remote(chosen).model
    return model.removeprefix(f"{chosen}/") == provider.spec.model


def _requested(remote: RemoteConfig, spec: EmbeddingSpec) -> int | None:
    """Return the dimensions to request of an earlier model of `remote`; None for the model's own number.

    An index stores the number, but not whether it was requested. If only the number has changed, it was. Else it was
    probably requested if the settings still request the same one.
    """
    same_model = remote.model.removeprefix(f"{remote.provider}/") == spec.model
    return spec.dimensions if same_model or remote.dimensions == spec.dimensions else None


def _wire(remote: RemoteConfig) -> str:
    """Return the provider whose wire format is used."""
    return remote.api or remote.provider


def _is_supported(remote: RemoteConfig) -> bool:
    """Return whether this version can call the provider. Bedrock without a token would need signed requests."""
    return _wire(remote) in _REMOTE and (remote.provider != _BEDROCK or _has_key(remote))


def _has_key(remote: RemoteConfig) -> bool:
    return bool(remote.keys) or any(name.lower() in _KEY_HEADERS for name, _ in remote.headers)


def _has_model(local: LocalConfig) -> bool:
    """Return whether the settings name a model that is a file on this machine."""
    path = local.model_path
    return bool(path) and not _is_address(path) and Path(path).is_file()


def _needs_http(config: EmbeddingConfig) -> bool:
    """Return whether texts may leave the process for this configuration's provider."""
    return not (config.provider in {_LOCAL, "none"} or (config.provider == "auto" and _has_model(config.local)))


def _blocked(settings: Sequence[str], disabled: str = "remote embeddings are") -> str:
    shown = ", ".join(settings[:_MAX_BLOCKERS])
    more = len(settings) - _MAX_BLOCKERS
    return (
        f"{disabled} disabled, because memoryd does not understand {shown}"
        f"{f' and {more} more settings' if more > 0 else ''}"
    )


def make_reranker(config: RerankConfig, *, downloads: bool = True) -> Reranker | None:
    """Return a new reranker for this configuration; None if reranking is disabled. Sends nothing.

    The caller closes it. With `downloads`, a missing model is downloaded in the background when it is needed.
    """
    if config.provider == "none":
        return None
    problem = _reranker_problem(config)
    try:
        if problem:
            return UnavailableReranker(config.provider, config.model, problem)
        return HttpReranker(config) if config.provider == "http" else _local_reranker(config.local, downloads=downloads)
    except (EmbeddingUnavailable, ValueError) as error:
        return UnavailableReranker(config.provider, config.model, str(error))


def _reranker_problem(config: RerankConfig) -> str:
    if config.provider == "local":
        return "" if config.local.model_path else "memoryd.rerank.modelPath is not set"
    if config.blocked_by:
        return _blocked(config.blocked_by, "reranking over HTTP is")
    return config.problem or ("" if config.base_url else "memoryd.rerank.baseUrl is not set")


def _local_reranker(local: LocalConfig, *, downloads: bool) -> LocalReranker:
    file = _model_file(
        local.model_path,
        local,
        downloads=downloads,
        downloaded_by="the daemon",
        afterwards="searches are reranked",
    )
    return LocalReranker(file, idle_seconds=local.idle_seconds, threads=local.threads)


def _is_address(path: str) -> bool:
    return path.startswith(("hf:", "http:", "https:"))


def missing_model(provider: EmbeddingProvider) -> HubModelFile | None:
    """Return the model that a provider could use if it was downloaded; None if there is none. Blocks."""
    file = provider.file if isinstance(provider, LocalProvider) and provider.is_installed else None
    return file if isinstance(file, HubModelFile) and file.missing else None


def _model_file(
    model: str,
    local: LocalConfig,
    *,
    downloads: bool,
    downloaded_by: str = "memoryd index",
    afterwards: str = "its vectors follow",
) -> ModelFile:
    if not _is_address(model):
        return LocalModelFile(Path(model))
    if not model.startswith("hf:"):
        raise EmbeddingUnavailable(
            "models are not downloaded from http: and https: addresses; set an hf: address or a path"
        )
    if not local.cache_dir:
        raise EmbeddingUnavailable("no folder for downloaded models is configured")
    return HubModelFile(
        model,
        Path(local.cache_dir),
        in_background=downloads,
        downloaded_by=downloaded_by,
        afterwards=afterwards,
    )
