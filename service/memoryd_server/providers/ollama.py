"""Ollama, through its native `POST /api/embed`. Models are not downloaded; `ollama pull` does that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memoryd_server.providers.http_client import HttpClient
from memoryd_server.providers.openai import INDEXING_SECONDS_OF_OWN_MACHINE, bearer
from memoryd_server.providers.provider import RemoteConfig, spec_for
from memoryd_server.providers.remote import (
    EmbeddingRequest,
    RemoteProvider,
    TextRole,
    count_in,
    identity_endpoint,
    list_in,
)

BASE_URL = "http://127.0.0.1:11434"


@dataclass(frozen=True, slots=True)
class OllamaFormat:
    """Ollama's JSON."""

    model: str
    dimensions: int | None

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:  # noqa: ARG002 -- Ollama has no field for the role
        """See `WireFormat`."""
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return EmbeddingRequest("/api/embed", body)

    def vectors(self, reply: Any) -> list[Any]:
        """See `WireFormat`."""
        return list_in(reply, "embeddings")

    def tokens(self, reply: Any) -> int | None:
        """See `WireFormat`."""
        return count_in(reply, "prompt_eval_count")


def ollama(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for Ollama at `config.base_url`, by default on this machine. A trailing `/v1` is removed.

    Raises:
        EmbeddingUnavailable: the address, a key or a header is invalid.
    """
    base_url = (config.base_url or BASE_URL).rstrip("/").removesuffix("/v1")
    http = HttpClient(
        config.provider,
        base_url,
        dict(config.headers),
        bearer(config.keys),
        indexing_seconds=INDEXING_SECONDS_OF_OWN_MACHINE,
        pace=config.pace,
    )
    model = config.model.removeprefix(f"{config.provider}/")
    spec = spec_for(config.provider, model, identity_endpoint(config, base_url), config.dimensions)
    return RemoteProvider(spec, OllamaFormat(model, config.dimensions), http)
