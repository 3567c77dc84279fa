"""Any server that speaks OpenAI's `POST /embeddings`, and that wire format for those who took it over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memoryd_server.embed.config import RemoteConfig
from memoryd_server.embed.http_calls import HttpCalls
from memoryd_server.embed.http_errors import public_url
from memoryd_server.embed.keys import Header
from memoryd_server.embed.openai_batches import OpenAIBatches
from memoryd_server.embed.remote import BadReply, RemoteProvider, Request, Role, count_in, list_in
from memoryd_server.embed.spec import spec_for
from memoryd_server.errors import EmbeddingUnavailable


@dataclass(frozen=True, slots=True)
class OpenAIWire:
    """OpenAI's JSON. `input_types` is what `input_type` says of texts, where a server knows such a field."""

    model: str
    dimensions: int | None
    dimensions_field: str = "dimensions"
    input_types: Mapping[Role, str] = field(default_factory=dict)

    def request(self, texts: Sequence[str], role: Role) -> Request:
        """See `Wire`."""
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if role in self.input_types:
            body["input_type"] = self.input_types[role]
        if self.dimensions is not None:
            body[self.dimensions_field] = self.dimensions
        return Request("/embeddings", body)

    def vectors(self, reply: Any) -> list[Any]:
        """See `Wire`. By the `index` of each; by their place where a server gives none."""
        data = [{"embedding": None} if item is None else item for item in list_in(reply, "data")]
        if not all(isinstance(item, dict) for item in data):
            raise BadReply("without a list of embeddings")
        found = {_index(item, place): item.get("embedding") for place, item in enumerate(data)}
        if set(found) != set(range(len(data))):
            raise BadReply("with embeddings whose indices do not fit the texts")
        return [found[place] for place in range(len(data))]

    def tokens(self, reply: Any) -> int | None:
        """See `Wire`."""
        return count_in(reply, "usage", "total_tokens") or count_in(reply, "usage", "prompt_tokens")


def openai_compatible(config: RemoteConfig) -> RemoteProvider:
    """The server at `config.base_url`; a key is sent where there is one.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """
    if not config.base_url:
        raise EmbeddingUnavailable(f"the provider {config.provider} needs memorySearch.remote.baseUrl")
    return openai_speaking(config, config.base_url)


def openai_speaking(
    config: RemoteConfig,
    base_url: str,
    dimensions_field: str = "dimensions",
    input_types: Mapping[Role, str] | None = None,
    batch_window: str = "",
) -> RemoteProvider:
    """A provider that speaks this wire format, with its keys as bearer tokens.

    `batch_window` is how long its batch jobs may take, in its own word; empty where it has none. One with `input_types`
    wants these, and the model, in the job and not in its lines.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """
    http = HttpCalls(config.provider, base_url, dict(config.headers), bearer(config.keys), pace=config.pace)
    model = config.model.removeprefix(f"{config.provider}/")
    spec = spec_for(config.provider, model, public_url(base_url), config.dimensions)
    wire = OpenAIWire(model, config.dimensions, dimensions_field, input_types or {})
    if not batch_window:
        return RemoteProvider(spec, wire, http)
    apart = input_types is not None
    return RemoteProvider(
        spec,
        wire,
        http,
        lambda count: OpenAIBatches(http, wire, spec.document_prefix, count, batch_window, model_apart=apart),
    )


def bearer(keys: Sequence[str]) -> list[Header]:
    """The header that carries each key as a bearer token."""
    return [{"authorization": f"Bearer {key.strip()}"} for key in keys]


def _index(item: Mapping[str, Any], place: int) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else place
