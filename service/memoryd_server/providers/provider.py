"""The protocol, its spec and configuration; the absent provider.

What every maker of embeddings offers. Calls block and may come from any thread.

A provider that was asked for and cannot be used: it stands where another one may stand in for it.

What vectors are made with: the model, how much it reads, and the words it wants before a text. Pure.

Models trained with a task prefix rank worse than keywords without it (demand 35). The prefixes are those of the models'
own cards.

What the settings say of embeddings. Equal configurations can share a provider. Empty strings mean not set.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.vectors import Vector

_SEARCH_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SENTENCE = "Represent this sentence for searching relevant passages: "

LOCAL_WINDOW = 2048
"""Tokens that a local model reads at most, whatever its own window: a larger one is slower and takes more memory."""


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """Who makes the vectors, of what. With the chunking this is the identity of an index's vectors.

    `endpoint` holds no credentials. `dimensions` is None while they are not known. The prefixes stand before each
    question and each document.
    """

    provider: str
    model: str
    endpoint: str
    dimensions: int | None
    max_input_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Family:
    """Models that want the same prefixes; `pattern` is searched in the model's name in lower case."""

    pattern: re.Pattern[str]
    max_input_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


# The first that matches counts. A pattern of two parts tries only the first place of the first part, so that its time
# is linear.
_FAMILIES = (
    _Family(re.compile(r"embedding-?gemma"), 2048, "task: search result | query: ", "title: none | text: "),
    _Family(re.compile(r"(?m)^(?>.*?nomic-embed-text).*moe"), 512, "search_query: ", "search_document: "),
    _Family(re.compile(r"nomic-embed-text"), 2048, "search_query: ", "search_document: "),
    _Family(re.compile(r"\be5-mistral"), 4096, f"Instruct: {_SEARCH_TASK}\nQuery: "),
    _Family(re.compile(r"(?m)^(?>.*?\be5-).*instruct"), 512, f"Instruct: {_SEARCH_TASK}\nQuery: "),
    _Family(re.compile(r"\be5-"), 512, "query: ", "passage: "),
    _Family(re.compile(r"\bbge-(?:m3|multilingual)"), 8192),
    _Family(re.compile(r"(?m)^(?>.*?\bbge-).*zh"), 512, "为这个句子生成表示以用于检索相关文章："),  # noqa: RUF001 -- the model's own words
    _Family(re.compile(r"\bbge-(?:small|base|large)"), 512, _SENTENCE),
    _Family(re.compile(r"qwen3-embedding"), 8192, f"Instruct: {_SEARCH_TASK}\nQuery:"),
    _Family(re.compile(r"mxbai-embed"), 512, _SENTENCE),
    _Family(re.compile(r"(?m)^(?>.*?arctic-embed).*2\.0|arctic-embed2"), 8192, "query: "),
    _Family(re.compile(r"arctic-embed"), 512, _SENTENCE),
    _Family(re.compile(r"minilm"), 512),
    # Told by words what its older siblings are told by a field.
    _Family(re.compile(r"gemini-embedding-2"), 8192, "task: search result | query: ", "title: none | text: "),
    _Family(re.compile(r"text-embedding-ada-002"), 8191),
    _Family(re.compile(r"voyage-3-lite"), 16000),
    _Family(re.compile(r"voyage-"), 32000),
)
_MOST_TOKENS_OF = (("gemini", 2048), ("local", LOCAL_WINDOW))
_MOST_TOKENS = 8192


def spec_for(provider: str, model: str, endpoint: str = "", dimensions: int | None = None) -> EmbeddingSpec:
    """The spec of a model, with the prefixes and the input limit of its family, found by its name."""
    family = _family(model)
    return EmbeddingSpec(
        provider,
        model,
        endpoint,
        dimensions,
        family.max_input_tokens if family else dict(_MOST_TOKENS_OF).get(provider, _MOST_TOKENS),
        family.query_prefix if family else "",
        family.document_prefix if family else "",
    )


def _family(model: str) -> _Family | None:
    name = model.lower().replace("_", "-")
    return next((family for family in _FAMILIES if family.pattern.search(name)), None)


PLAIN_TEXT = "ping"
"""A text that no provider has a reason to refuse: what comes of it is the provider's doing."""


@dataclass(frozen=True, slots=True)
class EmbeddingFailure:
    """Why a text got no vector. `transient` when the text is not at fault: a later call may embed it.

    Where it is not `transient`, the provider has embedded another text since.
    """

    reason: str
    transient: bool = False


class ProviderState(StrEnum):
    """Whether a provider can be expected to answer."""

    READY = "ready"
    STARTING = "starting"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """How a provider fares; `reason` is empty when it is ready.

    `calls`, `tokens`, `retries` and `failures` count since the provider was made; a call that was made again counts
    each time. Tokens are the provider's own count where it gives one, else a fourth of the bytes.
    """

    state: ProviderState
    reason: str = ""
    calls: int = 0
    tokens: int = 0
    retries: int = 0
    failures: int = 0


class EmbeddingProvider(Protocol):
    """Makes vectors of texts: finite, of length one, of the dimensions of its spec. Adds the prefixes of its spec.

    Where the spec leaves the dimensions open, the vectors of one request have the same; a server may change its model.
    """

    @property
    def spec(self) -> EmbeddingSpec:
        """What the vectors are made with. Fixed, except that `refresh` may find out the dimensions of a model file.

        Does no I/O, like `status`.
        """
        ...

    def refresh(self) -> None:
        """Look again at what the provider needs on this machine, such as a model file. Blocks.

        `spec` and `status` report what was found.
        """
        ...

    def embed_query(self, text: str, deadline: float) -> Vector:
        """The vector of a question, before `deadline` in `time.monotonic()`.

        Raises:
            EmbeddingUnavailable: the provider does not answer in time, or not with a usable vector.
            EmbeddingQuotaExceeded: its quota is used up.
        """
        ...

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """A vector or a failure for each text, in order. May retry and wait; asks `should_stop` meanwhile.

        Nothing made is thrown away: once stopped, or when the provider fails after its first answers, the rest are
        transient failures.

        Raises:
            EmbeddingUnavailable: the provider failed before it gave an answer.
            EmbeddingQuotaExceeded: its quota is used up, before it gave an answer.
        """
        ...

    def status(self) -> ProviderStatus:
        """Return how it fares, as far as is known without I/O."""
        ...

    def close(self) -> None:
        """Ends what it holds; calls under way fail. Closing twice is fine."""
        ...


class UnavailableProvider:
    """Makes no vector, and says why. `requested` is what the settings ask for."""

    def __init__(self, requested: str, reason: str) -> None:
        self._spec = spec_for(requested, "")
        self._reason = reason

    @property
    def spec(self) -> EmbeddingSpec:
        """The name alone."""
        return self._spec

    def refresh(self) -> None:
        """See `EmbeddingProvider`. Nothing is needed on this machine."""

    def embed_query(self, text: str, deadline: float) -> Vector:  # noqa: ARG002 -- whatever is asked
        """Never answers.

        Raises:
            EmbeddingUnavailable: always.
        """
        raise EmbeddingUnavailable(self._reason)

    def embed_documents(
        self,
        texts: Sequence[str],  # noqa: ARG002 -- whatever is asked
        should_stop: Callable[[], bool],  # noqa: ARG002
    ) -> list[Vector | EmbeddingFailure]:
        """Never answers.

        Raises:
            EmbeddingUnavailable: always.
        """
        raise EmbeddingUnavailable(self._reason)

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`."""
        return ProviderStatus(ProviderState.UNAVAILABLE, self._reason)

    def close(self) -> None:
        """There is nothing to end."""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """A provider that is reached over HTTP.

    `base_url` is unset where the provider's own is meant. Of several `keys` the next one is used when the server limits
    the one before. `headers` are pairs. `no_key` says why there is no key; `problem` why nothing may be sent at all.
    """

    provider: str
    model: str = ""
    base_url: str = ""
    keys: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    dimensions: int | None = None
    no_key: str = ""
    problem: str = ""
    pace: ThrottleConfig = field(default_factory=ThrottleConfig)

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"RemoteConfig(provider={self.provider!r}, model={self.model!r})"


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """A model on this machine.

    `model_path` is a path (made absolute, "~" expanded) or an `hf:` address; `cache_dir` is where fetched models are
    kept. `threads` None means half the processors.
    """

    model_path: str = ""
    cache_dir: str = ""
    idle_seconds: float = 300.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """Which provider an agent asks for, and how each can be had.

    `provider` is "auto", "none" or a provider's name. `remotes` has the providers that may be asked for, each once.
    `fallback` is what may stand in for it, None where nothing may. `blocked_by` names settings that are not understood
    and may restrict what is sent: with any, no provider that is reached over HTTP is used.
    """

    provider: str = "auto"
    remotes: tuple[RemoteConfig, ...] = ()
    local: LocalConfig = LocalConfig()
    fallback: "EmbeddingConfig | None" = None
    blocked_by: tuple[str, ...] = ()

    def remote(self, provider: str) -> RemoteConfig:
        """How a provider is reached; one without an address and a key where nothing is known of it."""
        return next((remote for remote in self.remotes if remote.provider == provider), RemoteConfig(provider))
