"""Google's Gemini API. Older models are told by a field what a text is for, newer ones by words before it.

Several keys may be given, with commas between them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from memoryd_server.embed.config import RemoteConfig
from memoryd_server.embed.gemini_batches import GeminiBatches
from memoryd_server.embed.http_calls import HttpCalls
from memoryd_server.embed.http_errors import public_url
from memoryd_server.embed.keys import Header
from memoryd_server.embed.remote import BadReply, RemoteProvider, Request, Role, count_in, list_in
from memoryd_server.embed.spec import spec_for
from memoryd_server.errors import EmbeddingUnavailable

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_TASKS: Mapping[Role, str] = {Role.QUERY: "RETRIEVAL_QUERY", Role.DOCUMENT: "RETRIEVAL_DOCUMENT"}
_SECOND = "gemini-embedding-2"
_DIMENSIONS_OF_THE_SECOND = (768, 1536, 3072)


@dataclass(frozen=True, slots=True)
class GeminiWire:
    """Gemini's JSON: one way for a question, another for many documents."""

    model: str
    dimensions: int | None

    def request(self, texts: Sequence[str], role: Role) -> Request:
        """See `Wire`."""
        path = f"/models/{quote(self.model, safe='')}"
        if role is Role.QUERY and len(texts) == 1:
            return Request(f"{path}:embedContent", self._content(texts[0], role))
        model = {"model": f"models/{self.model}"}
        return Request(
            f"{path}:batchEmbedContents", {"requests": [{**model, **self._content(text, role)} for text in texts]}
        )

    def _content(self, text: str, role: Role) -> dict[str, Any]:
        content: dict[str, Any] = {"content": {"parts": [{"text": text}]}}
        if not self.model.startswith(_SECOND):
            content["taskType"] = _TASKS[role]
        if self.dimensions is not None:
            content["outputDimensionality"] = self.dimensions
        return content

    def vectors(self, reply: Any) -> list[Any]:
        """See `Wire`."""
        single = isinstance(reply, dict) and "embedding" in reply and "embeddings" not in reply
        found = [reply["embedding"]] if single else list_in(reply, "embeddings")
        if not all(item is None or isinstance(item, dict) for item in found):
            raise BadReply("without a list of embeddings")
        return [None if item is None else item.get("values") for item in found]

    def tokens(self, reply: Any) -> int | None:
        """See `Wire`."""
        return count_in(reply, "usageMetadata", "promptTokenCount")


def gemini(config: RemoteConfig) -> RemoteProvider:
    """The Gemini API, or what stands in for it at `config.base_url`.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers, or the model makes no vectors of
            these dimensions.
    """
    # A base URL that was made for the OpenAI interface serves too.
    base_url = re.split(r"/openai(?:/|$)", (config.base_url or BASE_URL).rstrip("/"), maxsplit=1)[0].rstrip("/")
    keys = [_header(key) for joined in config.keys for key in _separate(joined)]
    http = HttpCalls("gemini", base_url, dict(config.headers), keys, pace=config.pace)
    model = re.sub(r"^(?:models|gemini|google)/", "", config.model)
    dimensions = _dimensions(model, config.dimensions)
    spec = spec_for("gemini", model, public_url(base_url), dimensions)
    wire = GeminiWire(model, dimensions)
    return RemoteProvider(spec, wire, http, lambda count: GeminiBatches(http, wire, model, spec.document_prefix, count))


def _dimensions(model: str, asked: int | None) -> int | None:
    if not model.startswith(_SECOND):
        return asked
    dimensions = asked or _DIMENSIONS_OF_THE_SECOND[-1]
    if dimensions not in _DIMENSIONS_OF_THE_SECOND:
        allowed = ", ".join(map(str, _DIMENSIONS_OF_THE_SECOND))
        raise EmbeddingUnavailable(f"{model} makes vectors of {allowed} dimensions: check outputDimensionality")
    return dimensions


def _separate(keys: str) -> list[str]:
    if keys.strip().startswith("{"):
        return [keys]
    return [key for key in re.split(r"[,;\s]+", keys) if key]


def _header(key: str) -> Header:
    """The header that carries a key, or the token of the JSON that stands for one."""
    if key.strip().startswith("{"):
        try:
            token = json.loads(key).get("token")
        except ValueError:
            token = None
        if not isinstance(token, str) or not token:
            raise EmbeddingUnavailable("gemini: the key is JSON that holds no token")
        return {"authorization": f"Bearer {token}"}
    return {"x-goog-api-key": key}
