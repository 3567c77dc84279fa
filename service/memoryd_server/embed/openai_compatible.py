"""Any server that speaks OpenAI's `POST /embeddings`: OpenAI itself, and those that took its wire format over."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memoryd_server.embed.batching import Answer, Limits, embed_in_batches
from memoryd_server.embed.http_calls import HttpCalls
from memoryd_server.embed.pacing import Patience
from memoryd_server.embed.provider import EmbeddingFailure, ProviderState, ProviderStatus
from memoryd_server.embed.spec import EmbeddingSpec
from memoryd_server.embed.vectors import BadVector, Vector, unit
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable

_BYTES_A_TOKEN = 4
_FOREVER = float("inf")


class OpenAICompatibleProvider:
    """One model of one server.

    `base_url` is what `/embeddings` is appended to. `spec.dimensions`, when set, is asked for in each request.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """

    def __init__(
        self, spec: EmbeddingSpec, base_url: str, api_key: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        self._spec = spec
        self._dimensions = spec.dimensions or 0
        sent = {"authorization": f"Bearer {api_key.strip()}"} if api_key.strip() else {}
        sent.update({key.lower(): value for key, value in (headers or {}).items()})
        self._http = HttpCalls(spec.provider, base_url, sent, (api_key, *sent.values()))
        self._limits = Limits(spec.max_input_tokens)
        self._lock = threading.Lock()
        self._tokens = 0
        self._trouble = ""
        self._closed = False

    @property
    def spec(self) -> EmbeddingSpec:
        """What the vectors are made with, with dimensions only if they are asked for."""
        return self._spec

    def embed_query(self, text: str, deadline: float) -> Vector:
        """See `EmbeddingProvider`. Tried again only as far as the deadline allows."""
        patience = Patience(deadline, lambda: False)
        answer = self._embed([self._spec.query_prefix + text], patience, find_out_why=False)[0]
        if isinstance(answer, EmbeddingFailure):
            raise EmbeddingUnavailable(answer.reason)
        return answer

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """See `EmbeddingProvider`."""
        return self._embed([self._spec.document_prefix + text for text in texts], Patience(_FOREVER, should_stop))

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`. The state is that of the last call."""
        with self._lock:
            trouble = "it is closed" if self._closed else self._trouble
            state = ProviderState.UNAVAILABLE if trouble else ProviderState.READY
            return ProviderStatus(state, trouble, self._http.calls, self._tokens, self._http.retries)

    def close(self) -> None:
        """See `EmbeddingProvider`."""
        self._closed = True
        self._http.close()

    def _embed(self, texts: Sequence[str], patience: Patience, *, find_out_why: bool = True) -> list[Answer]:
        return embed_in_batches(
            texts,
            self._limits,
            lambda batch: self._request(batch, patience),
            patience.should_stop,
            find_out_why=find_out_why,
        )

    def _request(self, texts: Sequence[str], patience: Patience) -> list[Answer]:
        # What UTF-8 cannot hold is no text; a server would refuse the whole request for it.
        inputs = [text.encode("utf-8", "replace").decode() for text in texts]
        body: dict[str, Any] = {"model": self._spec.model, "input": inputs}
        if self._spec.dimensions is not None:
            body["dimensions"] = self._spec.dimensions
        try:
            reply = self._http.post("/embeddings", body, patience)
            vectors = self._in_order(reply, len(texts))
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            self._trouble = error.message
            raise
        with self._lock:
            self._trouble = ""
            self._tokens += _tokens(reply, inputs)
        self._dimensions = self._spec.dimensions or _usual(map(_length, vectors), self._dimensions)
        return [self._checked(vector) for vector in vectors]

    def _in_order(self, reply: Any, count: int) -> list[Any]:
        """The embeddings by the `index` of each; by their place where a server gives none."""
        data = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise EmbeddingUnavailable(f"{self._http.name} answers without a list of embeddings")
        if len(data) != count:
            raise EmbeddingUnavailable(f"{self._http.name} answers with {len(data)} embeddings for {count} texts")
        found = {_index(item, place): item.get("embedding") for place, item in enumerate(data)}
        if set(found) != set(range(count)):
            raise EmbeddingUnavailable(f"{self._http.name} answers with embeddings whose indices do not fit the texts")
        return [found[place] for place in range(count)]

    def _checked(self, values: Any) -> Answer:
        try:
            return unit(values, self._dimensions or None)
        except BadVector as error:
            return EmbeddingFailure(f"{self._http.name}: {error}")


def _index(item: Mapping[str, Any], place: int) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else place


def _length(vector: Any) -> int:
    return len(vector) if isinstance(vector, list) else 0


def _usual(lengths: Iterable[int], known: int) -> int:
    """The length that vectors of one answer should have: `known`, unless none has it and most have another one."""
    counted = Counter(length for length in lengths if length)
    return known if known in counted or not counted else counted.most_common(1)[0][0]


def _tokens(reply: Mapping[str, Any], texts: Sequence[str]) -> int:
    usage = reply.get("usage")
    counted = (usage.get("total_tokens") or usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    if isinstance(counted, int):
        return counted
    return sum(-(-len(text.encode()) // _BYTES_A_TOKEN) for text in texts)
