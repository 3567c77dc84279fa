"""Amazon Bedrock's `InvokeModel` with a bearer token: Titan, Cohere and Nova embedding models.

Requests are not signed, so AWS access keys, profiles and roles cannot be used. The model is part of the URL, and each
family has its own JSON. Titan and Nova embed one text per request.

The formats are those of AWS's user guides: for Bedrock, the pages model-parameters-titan-embed-text and
model-parameters-embed; for Nova, the page embeddings-schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.http_client import HttpClient
from memoryd_server.providers.openai import bearer
from memoryd_server.providers.provider import RemoteConfig, spec_for
from memoryd_server.providers.remote import (
    BadResponse,
    EmbeddingRequest,
    RemoteProvider,
    TextRole,
    WireFormat,
    count_in,
    identity_endpoint,
    list_in,
)

_NOVA = "nova-2-multimodal-embeddings"
_TITAN = "titan-embed-text"
_COHERE = "cohere.embed"
_COHERE_V3 = ("cohere.embed-english-v3", "cohere.embed-multilingual-v3")

_INPUT_TYPES: Mapping[TextRole, str] = {TextRole.QUERY: "search_query", TextRole.DOCUMENT: "search_document"}
_PURPOSES: Mapping[TextRole, str] = {TextRole.QUERY: "TEXT_RETRIEVAL", TextRole.DOCUMENT: "GENERIC_INDEX"}


@dataclass(frozen=True, slots=True)
class TitanFormat:
    """The JSON of Titan Text Embeddings: one text per request, the same for queries and documents."""

    path: str
    dimensions: int | None

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:  # noqa: ARG002 -- Titan has no field for the role
        """See `WireFormat`."""
        body: dict[str, Any] = {"inputText": _only(texts)}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return EmbeddingRequest(self.path, body)

    def vectors(self, reply: Any) -> list[Any]:
        """See `WireFormat`."""
        return [list_in(reply, "embedding")]

    def tokens(self, reply: Any) -> int | None:
        """See `WireFormat`."""
        return count_in(reply, "inputTextTokenCount")


@dataclass(frozen=True, slots=True)
class CohereFormat:
    """The JSON of Cohere Embed v3 and v4. An answer has a list of vectors, or such a list for each type of number."""

    path: str
    dimensions: int | None

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:
        """See `WireFormat`."""
        body: dict[str, Any] = {
            "texts": list(texts),
            "input_type": _INPUT_TYPES[role],
            "embedding_types": ["float"],
        }
        if self.dimensions is not None:
            body["output_dimension"] = self.dimensions
        return EmbeddingRequest(self.path, body)

    def vectors(self, reply: Any) -> list[Any]:
        """See `WireFormat`."""
        found = reply.get("embeddings") if isinstance(reply, dict) else None
        return list_in(found, "float") if isinstance(found, dict) else list_in(reply, "embeddings")

    def tokens(self, reply: Any) -> int | None:  # noqa: ARG002 -- the count is in a header
        """See `WireFormat`."""
        return None


@dataclass(frozen=True, slots=True)
class NovaFormat:
    """The JSON of Nova Multimodal Embeddings: one text per request."""

    path: str
    dimensions: int | None

    def request(self, texts: Sequence[str], role: TextRole) -> EmbeddingRequest:
        """See `WireFormat`."""
        text = {"truncationMode": "NONE", "value": _only(texts)}
        params: dict[str, Any] = {"embeddingPurpose": _PURPOSES[role], "text": text}
        if self.dimensions is not None:
            params["embeddingDimension"] = self.dimensions
        return EmbeddingRequest(self.path, {"taskType": "SINGLE_EMBEDDING", "singleEmbeddingParams": params})

    def vectors(self, reply: Any) -> list[Any]:
        """See `WireFormat`."""
        found = list_in(reply, "embeddings")
        if not all(isinstance(item, dict) for item in found):
            raise BadResponse("without a list of embeddings")
        return [item.get("embedding") for item in found]

    def tokens(self, reply: Any) -> int | None:
        """See `WireFormat`."""
        return count_in(reply, "inputTextTokenCount")


def bedrock(config: RemoteConfig) -> RemoteProvider:
    """Return a provider for the region's endpoint at `config.base_url`.

    Raises:
        EmbeddingUnavailable: there is no bearer token, the model is not one that memoryd knows, it does not make
            vectors of the configured dimensions, or the address, the token or a header is invalid.
    """
    if not config.keys and not any(name.lower() == "authorization" for name, _ in config.headers):
        raise EmbeddingUnavailable(
            "the provider bedrock needs a bearer token (AWS_BEARER_TOKEN_BEDROCK or remote.apiKey): memoryd does not "
            "sign requests, so AWS access keys, profiles and roles cannot be used"
        )
    if not config.base_url:
        raise EmbeddingUnavailable("the provider bedrock needs the address of a region")
    model = config.model.removeprefix("bedrock/").removeprefix("amazon-bedrock/")
    wire, most_texts = _format(model, config.dimensions)
    http = HttpClient("bedrock", config.base_url, dict(config.headers), bearer(config.keys), pace=config.pace)
    spec = spec_for("bedrock", model, identity_endpoint(config, config.base_url), config.dimensions)
    return RemoteProvider(spec, wire, http, most_texts=most_texts)


def _format(model: str, dimensions: int | None) -> tuple[WireFormat, int | None]:
    """Return the JSON of a model, and how many texts a request may have; None if that is no limit.

    The id of an inference profile has a prefix such as `us.`, so the family is found anywhere in the name.
    """
    path = f"/model/{quote(model, safe='')}/invoke"
    has_one_length = any(name in model for name in (*_COHERE_V3, f"{_TITAN}-v1"))
    if has_one_length and dimensions is not None:
        raise EmbeddingUnavailable(f"{model} makes vectors of one length only: remove outputDimensionality")
    if _COHERE in model:
        return CohereFormat(path, dimensions), None
    if _TITAN in model:
        return TitanFormat(path, dimensions), 1
    if _NOVA in model:
        return NovaFormat(path, dimensions), 1
    raise EmbeddingUnavailable(
        f"memoryd does not know the format of the model {model} of bedrock; "
        f"it knows those of {_TITAN}, {_COHERE} and {_NOVA}"
    )


def _only(texts: Sequence[str]) -> str:
    (text,) = texts
    return text
