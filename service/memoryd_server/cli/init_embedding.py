"""The embedding providers that `memoryd init` offers: what each costs, what it sends where, and whether it works."""

import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from memoryd.client import connect
from memoryd_server.cli.connection import Connection
from memoryd_server.cli.init import PROVIDERS
from memoryd_server.cli.init_discovery import default_agent
from memoryd_server.cli.local_daemon import local_daemon
from memoryd_server.cli.progress import download_models
from memoryd_server.providers import is_remote_model
from memoryd_server.settings import (
    OWN_HOSTS,
    PROVIDER_KEYS,
    AgentSettings,
    DatabaseSettings,
    ProviderAccess,
    ResolvedSettings,
    default_model,
)

OLLAMA = "http://127.0.0.1:11434"
_OLLAMA_SECONDS = 1.0
_MAX_REPLY_BYTES = 1_000_000
# Parts of the names of embedding models in Ollama's library.
_EMBEDDING_NAMES = ("embed", "minilm", "bge-", "e5-", "gte-", "arctic")
_PROBE_SECONDS = 60.0

# The list price of the default model of each provider for a million tokens in US dollars, as published in 2026.
_PRICES: Mapping[str, float] = {"openai": 0.02, "gemini": 0.15, "voyage": 0.12, "mistral": 0.10, "deepinfra": 0.01}
_MILLION = 1_000_000
_SMALLEST_PRICE = 0.01

_REMOTE = tuple(provider for provider in PROVIDERS if provider in _PRICES)


@dataclass(frozen=True, slots=True)
class EmbeddingChoice:
    """A provider to choose. `problem` is empty, or says what has to be done before it can be used.

    `leaves_machine` is whether it is a service on another machine, so that its choice has to be confirmed.
    """

    provider: str
    model: str
    sends: str
    cost: str
    problem: str = ""
    leaves_machine: bool = False


@dataclass(frozen=True, slots=True)
class ConfiguredProvider:
    """What the settings say about a provider: its address and keys, and the model."""

    access: ProviderAccess
    model: str

    @property
    def base_url(self) -> str:
        """The address; empty for the provider's default."""
        return self.access.base_url.rstrip("/").removesuffix("/v1")


def embedding_choices(configured: Callable[[str], ConfiguredProvider], tokens: int) -> list[EmbeddingChoice]:
    """Return the choices on this machine, in the order of `PROVIDERS`.

    A remote provider is among them only if there is a key for it, and Ollama only if it answers. `configured` returns
    what the settings say about a provider. `tokens` are those of the notes.
    """
    choices = [no_provider(), local_provider()]
    ollama = configured("ollama")
    models = find_ollama_models(ollama.base_url or OLLAMA)
    if models is not None:
        choices.append(ollama_provider(models, ollama.base_url))
    remote = [remote_provider(name, configured(name), tokens) for name in _REMOTE]
    return [*choices, *(each for each in remote if not each.problem)]


def no_provider() -> EmbeddingChoice:
    """Return the choice of keyword search."""
    return EmbeddingChoice("none", "", "nothing", "free")


def local_provider() -> EmbeddingChoice:
    """Return the choice of a model in a process of memoryd."""
    missing = importlib.util.find_spec("llama_cpp") is None
    install = "install the extra: pip install 'memoryd[local]'; this compiles llama.cpp for some minutes"
    sends = "nothing; downloads about 330 MB from Hugging Face once"
    return EmbeddingChoice("local", "embeddinggemma-300M", sends, "free; uses the CPU", install if missing else "")


def ollama_provider(models: Sequence[str] | None, base_url: str = "") -> EmbeddingChoice:
    """Return the choice of Ollama at `base_url`, whose models are `models`; None if it does not answer."""
    address, model = base_url or OLLAMA, _embedding_model(models or ())
    problem = ""
    if models is None:
        problem = f"no Ollama answers at {address}; start it with `ollama serve`"
    elif not model:
        problem = "Ollama has no embedding model; run `ollama pull nomic-embed-text`"
    if not is_remote_model(address, model):
        return EmbeddingChoice("ollama", model, f"nothing beyond this machine ({address})", "free", problem)
    sends = f"notes, session transcripts and queries to {_host(address)}"
    return EmbeddingChoice("ollama", model, sends, "depends on the server", problem, leaves_machine=True)


def remote_provider(provider: str, configured: ConfiguredProvider, tokens: int) -> EmbeddingChoice:
    """Return the choice of a provider on another machine."""
    access, model = configured.access, configured.model or default_model(provider)
    problem = access.no_key or access.problem
    if not access.keys and not problem:
        problem = f"there is no key; set {PROVIDER_KEYS[provider][0]}"
    source = access.key_from.removeprefix("env ")
    host = _host(access.base_url) if access.base_url else OWN_HOSTS[provider][0]
    sends = f"notes, session transcripts and queries to {host}" + (f", with the key in {source}" if source else "")
    known = model == default_model(provider) and not access.base_url
    cost = _price(provider, tokens) if known else "see the prices of the provider"
    return EmbeddingChoice(provider, model, sends, cost, problem, leaves_machine=True)


def _host(address: str) -> str:
    """Return the host and the port of an address, without a password."""
    return urlsplit(address).netloc.rpartition("@")[2] or address


def _price(provider: str, tokens: int) -> str:
    price = _PRICES[provider]
    total = tokens * price / _MILLION
    amount = f"about ${total:.2f}" if total >= _SMALLEST_PRICE else f"less than ${_SMALLEST_PRICE}"
    return f"{amount} for these notes (${price:.2f} per million tokens)"


def find_ollama_models(base_url: str = OLLAMA) -> list[str] | None:
    """Return the models of the Ollama at an address; None if it does not answer in seconds. Sends no text."""
    import httpx  # noqa: PLC0415 -- only if Ollama can be chosen

    try:
        with (
            httpx.Client(timeout=_OLLAMA_SECONDS, trust_env=False) as http,
            http.stream("GET", f"{base_url}/api/tags") as reply,
        ):
            reply.raise_for_status()
            body, deadline = b"", time.monotonic() + _OLLAMA_SECONDS
            for part in reply.iter_bytes():
                body += part
                if len(body) > _MAX_REPLY_BYTES or time.monotonic() > deadline:
                    return None
            return [str(model["name"]) for model in json.loads(body)["models"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, RecursionError):
        return None


def _embedding_model(models: Sequence[str]) -> str:
    """Return the best embedding model of Ollama's models: the default one if it is there; empty if there is none."""
    default = default_model("ollama")
    names = [model.removesuffix(":latest") for model in models]
    if default in names:
        return default
    return next((name for name in names if any(part in name for part in _EMBEDDING_NAMES)), "")


@dataclass(frozen=True, slots=True)
class ProviderCheck:
    """The result of one call to a provider. `problem` is empty if it returned a vector."""

    provider: str
    model: str
    dimensions: int
    seconds: float
    problem: str = ""


def check_provider(settings: ResolvedSettings) -> ProviderCheck:
    """Embed one short text with the provider of the default agent. Downloads a missing local model.

    The memory is not opened: the call is made by a daemon with an empty memory.
    """
    agent = default_agent(settings)
    with (
        tempfile.TemporaryDirectory(prefix="memoryd-init-") as folder,
        local_daemon(_empty_memory(settings, agent, Path(folder)), background=False) as (daemon, address),
        connect(address) as client,
    ):
        download_models(Connection(client, daemon), agent.agent_id)
        found = client.status(agent_id=agent.agent_id, probe=True, timeout=_PROBE_SECONDS).embedding
    if not found.provider:
        return ProviderCheck(found.requested_provider, "", 0, 0, found.reason)
    problem = "" if found.probe.ok else found.probe.error or found.reason
    seconds = found.probe.elapsed.ToMilliseconds() / 1000
    return ProviderCheck(found.provider, found.model, found.probe.dimensions, seconds, problem)


def _empty_memory(settings: ResolvedSettings, agent: AgentSettings, folder: Path) -> ResolvedSettings:
    """Return the settings with one agent, whose workspace and state are in `folder`. Models stay where they are."""
    search = agent.memory_search
    models = search.local.model_cache_dir or str(settings.state_dir / "models")
    changes = {"extra_paths": (), "sources": ("memory",), "fallback": "none"}
    local = search.local.model_copy(update={"model_cache_dir": models})
    search = search.model_copy(update={**changes, "local": local})
    workspace = folder / "workspace"
    workspace.mkdir()
    index = folder / "memory" / "index.sqlite"
    one = replace(agent, workspace=workspace, memory_search=search, index_path=index, entries_enabled=False)
    service = settings.service.model_copy(update={"token_file": None, "store": DatabaseSettings()})
    return replace(settings, state_dir=folder, service=service, agents={agent.agent_id: one})
