"""The protocol of embedding providers, their specs and their configuration.

`EmbeddingProvider` is implemented by every provider; `UnavailableProvider` takes the place of one that is requested but
cannot be used. `EmbeddingSpec` describes a model: its input limit, the prefixes it expects before a text, and whether
it embeds texts in pieces. Models trained with a task prefix rank worse than keywords without it (demand 35); the
prefixes are those of the models' own cards. In `RemoteConfig`, `LocalConfig` and `EmbeddingConfig`, empty strings mean
not set, and equal configurations can share a provider.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from memoryd_server.errors import EmbeddingUnavailable, MemorydError
from memoryd_server.model import EmbeddingSpec
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.vectors import Vector

_SEARCH_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SENTENCE = "Represent this sentence for searching relevant passages: "

LOCAL_WINDOW = 2048
"""Upper limit of a local model's window in tokens: a larger window is slower and takes more memory."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models that expect the same prefixes and pieces; `pattern` is searched in the model's name in lower case."""

    pattern: re.Pattern[str]
    max_input_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""
    piece_chars: int = 0


# The first match wins. A pattern of two parts tries only the first occurrence of the first part, so its time is linear.
FAMILIES = (
    ModelFamily(re.compile(r"embedding-?gemma"), 2048, "task: search result | query: ", "title: none | text: "),
    ModelFamily(re.compile(r"(?m)^(?>.*?nomic-embed-text).*moe"), 512, "search_query: ", "search_document: "),
    ModelFamily(re.compile(r"nomic-embed-text"), 2048, "search_query: ", "search_document: "),
    ModelFamily(re.compile(r"\be5-mistral"), 4096, f"Instruct: {_SEARCH_TASK}\nQuery: "),
    ModelFamily(re.compile(r"(?m)^(?>.*?\be5-).*instruct"), 512, f"Instruct: {_SEARCH_TASK}\nQuery: "),
    ModelFamily(re.compile(r"\be5-"), 512, "query: ", "passage: "),
    ModelFamily(re.compile(r"\bbge-(?:m3|multilingual)"), 8192),
    ModelFamily(re.compile(r"(?m)^(?>.*?\bbge-).*zh"), 512, "为这个句子生成表示以用于检索相关文章："),  # noqa: RUF001 -- the model's own words
    ModelFamily(re.compile(r"\bbge-(?:small|base|large)"), 512, _SENTENCE),
    ModelFamily(re.compile(r"qwen3-embedding"), 8192, f"Instruct: {_SEARCH_TASK}\nQuery:"),
    ModelFamily(re.compile(r"mxbai-embed"), 512, _SENTENCE),
    ModelFamily(re.compile(r"(?m)^(?>.*?arctic-embed).*2\.0|arctic-embed2"), 8192, "query: "),
    ModelFamily(re.compile(r"arctic-embed"), 512, _SENTENCE),
    # Accepts 512 tokens, but was trained with 256. Pieces are measured for this model only (decision 34).
    ModelFamily(re.compile(r"minilm"), 512, piece_chars=500),
    ModelFamily(re.compile(r"cohere\.embed-(?:english|multilingual)-v3"), 512),
    # Receives the task as a prefix; older Gemini models receive it in the field `taskType`.
    ModelFamily(re.compile(r"gemini-embedding-2"), 8192, "task: search result | query: ", "title: none | text: "),
    ModelFamily(re.compile(r"text-embedding-ada-002"), 8191),
    ModelFamily(re.compile(r"voyage-3-lite"), 16000),
    ModelFamily(re.compile(r"voyage-"), 32000),
)
_MOST_TOKENS_OF = (("gemini", 2048), ("local", LOCAL_WINDOW))
_MOST_TOKENS = 8192


def spec_for(provider: str, model: str, endpoint: str = "", dimensions: int | None = None) -> EmbeddingSpec:
    """Return the spec of a model, with the prefixes and the limits of its family, which is found by its name."""
    family = find_family(model)
    return EmbeddingSpec(
        provider,
        model,
        endpoint,
        dimensions,
        family.max_input_tokens if family else dict(_MOST_TOKENS_OF).get(provider, _MOST_TOKENS),
        family.query_prefix if family else "",
        family.document_prefix if family else "",
        family.piece_chars if family else 0,
    )


def find_family(model: str) -> ModelFamily | None:
    """Return the family of a model; None if the model is in none."""
    name = model.lower().replace("_", "-")
    return next((family for family in FAMILIES if family.pattern.search(name)), None)


PLAIN_TEXT = "ping"
"""A text that no provider has a reason to refuse: if it gets no vector, the provider is at fault."""


@dataclass(frozen=True, slots=True)
class EmbeddingFailure:
    """Why a text got no vector. `transient` if the text is not at fault: a later call may embed it.

    If `transient` is False, the provider has embedded another text since.
    """

    reason: str
    transient: bool = False


class ProviderState(StrEnum):
    """Whether a provider is expected to answer."""

    READY = "ready"
    STARTING = "starting"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """State and counters of a provider; `reason` is empty when it is ready.

    `calls`, `tokens`, `retries` and `failures` count since the provider was created; each retry counts as a call.
    Tokens are the provider's own count if it reports one, else a fourth of the bytes.
    """

    state: ProviderState
    reason: str = ""
    calls: int = 0
    tokens: int = 0
    retries: int = 0
    failures: int = 0


class EmbeddingProvider(Protocol):
    """Computes vectors of texts: finite, of length one, with the dimensions of its spec. Calls block; thread-safe.

    The provider adds the prefixes of its spec. If the spec leaves the dimensions open, the vectors of one request have
    the same dimensions; a server may change its model between requests.
    """

    @property
    def spec(self) -> EmbeddingSpec:
        """The model's spec. Fixed, except that `refresh` may discover the dimensions of a model file.

        Does no I/O, like `status`.
        """
        ...

    @property
    def problem(self) -> str:
        """Why the provider is not expected to answer: the reason of `status`. Empty when it is ready."""
        ...

    def refresh(self) -> None:
        """Look for the resources the provider needs on this machine, such as a model file. Blocks.

        `spec` and `status` report the result.
        """
        ...

    def embed_query(self, text: str, deadline: float) -> Vector:
        """Return the vector of a query before `deadline`, which is in `time.monotonic()`.

        Raises:
            EmbeddingUnavailable: the provider does not answer in time, or not with a usable vector.
            EmbeddingQuotaExceeded: the provider's quota is used up.
        """
        ...

    def embed_documents(self, texts: Sequence[str], should_stop: Callable[[], bool]) -> list[Vector | EmbeddingFailure]:
        """Return a vector or a failure for each text, in order. May retry and wait; checks `should_stop` while it does.

        No vector is discarded: after a stop, or if the provider fails after its first answers, the remaining texts are
        transient failures.

        Raises:
            EmbeddingUnavailable: the provider failed before its first answer.
            EmbeddingQuotaExceeded: the provider's quota is used up before its first answer.
        """
        ...

    def status(self) -> ProviderStatus:
        """Return the state and counters known without I/O."""
        ...

    def close(self) -> None:
        """Release all resources; calls under way fail. Closing twice is allowed."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderProbe:
    """The result of one call of the provider; `error` is empty if it answered with a vector of `dimensions`."""

    elapsed_seconds: float
    error: str = ""
    dimensions: int = 0


def probe(provider: EmbeddingProvider, deadline: float) -> ProviderProbe:
    """Request one vector before `deadline`, in `time.monotonic()` seconds. Blocks."""
    began = time.monotonic()
    try:
        dimensions, error = provider.embed_query(PLAIN_TEXT, deadline).size, ""
    except MemorydError as failure:
        dimensions, error = 0, failure.message
    return ProviderProbe(time.monotonic() - began, error, dimensions)


class UnavailableProvider:
    """A provider that fails every call with `reason`. `requested` is the provider that the settings request."""

    def __init__(self, requested: str, reason: str) -> None:
        self.spec = spec_for(requested, "")
        """Only the provider's name."""
        self.problem = reason

    def refresh(self) -> None:
        """See `EmbeddingProvider`. Does nothing."""

    def embed_query(self, text: str, deadline: float) -> Vector:  # noqa: ARG002 -- fails for every text
        """Raise an error with the reason.

        Raises:
            EmbeddingUnavailable: always.
        """
        raise EmbeddingUnavailable(self.problem)

    def embed_documents(
        self,
        texts: Sequence[str],  # noqa: ARG002 -- fails for every text
        should_stop: Callable[[], bool],  # noqa: ARG002
    ) -> list[Vector | EmbeddingFailure]:
        """Raise an error with the reason.

        Raises:
            EmbeddingUnavailable: always.
        """
        raise EmbeddingUnavailable(self.problem)

    def status(self) -> ProviderStatus:
        """See `EmbeddingProvider`."""
        return ProviderStatus(ProviderState.UNAVAILABLE, self.problem)

    def close(self) -> None:
        """See `EmbeddingProvider`. Does nothing."""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """Configuration of a provider that is reached over HTTP.

    An empty `base_url` means the provider's default. With several `keys`, the next one is used when the server limits
    the current one. `headers` are pairs; those named in `identity_headers` count towards the identity of the vectors.
    `no_key` says why there is no key; `problem` says why nothing may be sent. `missing_secret` names a secret without a
    value, because of which no other provider may be used in place of this one. `api` is the provider whose wire format
    a provider of the settings' own uses; empty for memoryd's own providers. The input types are sent as `input_type`
    with queries and documents by servers that are compatible with OpenAI's; empty ones are not sent.
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
    identity_headers: tuple[str, ...] = ()
    api: str = ""
    query_input_type: str = ""
    document_input_type: str = ""
    missing_secret: str = ""

    def __repr__(self) -> str:
        """Return provider and model, without the secrets."""
        return f"RemoteConfig(provider={self.provider!r}, model={self.model!r})"


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """Configuration of a model on this machine.

    `model_path` is an absolute path or an `hf:` address; `cache_dir` is the folder of downloaded models. `threads` None
    means half the processors.
    """

    model_path: str = ""
    cache_dir: str = ""
    idle_seconds: float = 300.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """The provider that an agent requests, and the configuration of each provider.

    `provider` is "auto", "none" or a provider's name. `remotes` has each provider that may be requested once.
    `fallback` is the configuration of the fallback provider, None if there is none. `blocked_by` names settings that
    are not understood and may restrict what is sent: if there are any, no provider that is reached over HTTP is used.
    `names_model` is whether the settings name the model of a fallback, which may be another one of the same provider.
    `why_none` is the reason to report if the provider is "none"; empty if the settings disable embeddings.
    """

    provider: str = "auto"
    remotes: tuple[RemoteConfig, ...] = ()
    local: LocalConfig = LocalConfig()
    fallback: "EmbeddingConfig | None" = None
    blocked_by: tuple[str, ...] = ()
    names_model: bool = False
    why_none: str = ""

    def remote(self, provider: str) -> RemoteConfig:
        """Return the configuration of a remote provider; one without base URL and key if none is set."""
        return next((remote for remote in self.remotes if remote.provider == provider), RemoteConfig(provider))
