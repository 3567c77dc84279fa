"""The `memory.search` block: what is indexed for an agent, with which embedding provider, and how it is searched."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, SecretStr, ValidationInfo, field_validator, model_validator

from memoryd_server.globs import Glob
from memoryd_server.settings.rules import FloatRange, IntRange, KnownWord, SettingsBlock, kind_of
from memoryd_server.settings.secret_input import SecretInput, SecretValue

VECTOR_WEIGHT = 0.7
TEXT_WEIGHT = 0.3


class MmrSettings(SettingsBlock):
    """Maximal marginal relevance: hits that repeat better hits move down."""

    enabled: bool = False
    """Whether hits are reordered for diversity. true or false; default false."""
    lambda_: Annotated[float, FloatRange(0, 1)] = Field(0.7, alias="lambda")
    """The weight of the score against diversity: 1 ranks by score alone, 0 by diversity alone. Both are compared on
    the scale 0..1: the scores of the candidates are scaled so that the lowest is 0 and the highest is 1. Share, 0..1;
    default 0.7."""


class TemporalDecaySettings(SettingsBlock):
    """Temporal decay: the scores of older notes are reduced."""

    enabled: bool = False
    """Whether scores decrease with age. true or false; default false."""
    half_life_days: Annotated[int, IntRange(1)] = 30
    """The age at which a score is halved. Days, at least 1; default 30."""


class HybridSettings(SettingsBlock):
    """The fusion of keyword search and vector search. The weights are divided by their sum."""

    enabled: bool = True
    """Whether a search uses keywords in addition to vectors. true or false; default true."""
    vector_weight: Annotated[float, FloatRange(0, 1)] = VECTOR_WEIGHT
    """The weight of vector search. Share, 0..1; default 0.7."""
    text_weight: Annotated[float, FloatRange(0, 1)] = TEXT_WEIGHT
    """The weight of keyword search. Share, 0..1; default 0.3."""
    candidate_multiplier: Annotated[int, IntRange(1, 20)] = 4
    """The number of candidates that keyword search and vector search each return per requested result, but at least 50
    and 24. There is no further limit (OpenClaw's is 200). Factor, 1..20; default 4."""
    mmr: MmrSettings = MmrSettings()
    """Diversity."""
    temporal_decay: TemporalDecaySettings = TemporalDecaySettings()
    """Age."""

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> Self:
        total = self.vector_weight + self.text_weight
        weights = (self.vector_weight / total, self.text_weight / total) if total else (VECTOR_WEIGHT, TEXT_WEIGHT)
        # The block is frozen, but its construction has not ended.
        object.__setattr__(self, "vector_weight", weights[0])
        object.__setattr__(self, "text_weight", weights[1])
        return self


class QuerySettings(SettingsBlock):
    """The results of a search."""

    max_results: Annotated[int, IntRange(1, 50)] = 6
    """The number of results if the request sets none. Results, 1..50; default 6."""
    min_score: Annotated[float, FloatRange(0, 1)] = 0.35
    """The smallest score of a result if the request sets none. Results with a lower score are not returned, however
    they were found, and no others are removed. Example: of results with the scores .63, .59 and .44, 0.5 returns the
    first two, and 0.7 returns none. If neither this setting nor the request sets a score, there is no smallest score:
    results of keyword search are returned, and results of vector search alone if their cosine is high enough for the
    model; see [Tuning search](tuning.md#least-score). Setting 0.35 is therefore not the same as leaving the default.
    qmd's results are not affected. Score, 0..1; default 0.35."""
    hybrid: HybridSettings = HybridSettings()
    """Fusion."""


_MODEL_OF: Mapping[str, str] = {
    "openai": "text-embedding-3-small",
    "openai-compatible": "text-embedding-3-small",
    "gemini": "gemini-embedding-001",
    "voyage": "voyage-4-large",
    "mistral": "mistral-embed",
    "ollama": "nomic-embed-text",
    "lmstudio": "text-embedding-nomic-embed-text-v1.5",
    "deepinfra": "BAAI/bge-m3",
    "bedrock": "amazon.titan-embed-text-v2:0",
}
PROVIDERS = (
    *("auto", "openai", "local", "gemini", "voyage", "mistral", "ollama", "none"),
    *("bedrock", "github-copilot", "lmstudio", "deepinfra", "openai-compatible"),
)

_FALLBACKS = tuple(provider for provider in PROVIDERS if provider != "auto")

SourceName = Literal["memory", "sessions"]
InputType = Annotated[str | None, Field(min_length=1)]


def default_model(provider: str) -> str:
    """Return the default model of a provider; empty if it has none."""
    return _MODEL_OF.get(provider, "")


class MultimodalSettings(SettingsBlock):
    """Images and audio. memoryd indexes text only, so these values cannot be changed."""

    enabled: bool = False
    """Whether media files are indexed. Always false; default false."""
    modalities: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The kinds of media that are indexed. Always empty; default []."""
    max_file_bytes: int = 10 * 2**20
    """The size of the largest media file. Bytes; default 10485760."""


class ExperimentalSettings(SettingsBlock):
    """Settings that OpenClaw calls experimental."""

    session_memory: bool = False
    """Whether session transcripts may be indexed. true or false; default false."""


class BatchSettings(SettingsBlock):
    """Batch jobs of OpenAI, Gemini and Voyage. They are used for at least `memoryd.batchMinChunks` chunks."""

    enabled: bool = True
    """Whether large numbers of texts are embedded by the provider's batch jobs. In the current layout, the default is
    false. true or false; default true."""
    wait: bool = True
    """Whether a sync waits for its batch jobs. If not, a later sync stores their vectors. true or false; default true.
    """
    concurrency: Annotated[int, IntRange(1)] = 2
    """The maximum number of concurrent batch jobs of one agent. Jobs, at least 1; default 2."""
    poll_interval_ms: Annotated[int, IntRange(0)] = 2000
    """The time between two status requests for a batch job. Milliseconds, at least 0; default 2000."""
    timeout_minutes: Annotated[int, IntRange(1)] = 60
    """The time after which a batch job counts as failed. It is submitted once more. Minutes, at least 1; default 60."""


class RemoteSettings(SettingsBlock):
    """The address and the credentials of a remote provider.

    `${NAME}` in a value is replaced by the environment variable.
    """

    base_url: str | None = None
    """The base URL of the provider's API, instead of the provider's default. URL; default unset."""
    api_key: Annotated[SecretValue | None, SecretInput()] = None
    """The API key, or a [SecretRef](#secretrefs); a blank key counts as unset. Secret; default unset."""
    headers: dict[str, SecretStr] | None = None
    """Headers of each request. If several files set them, those of the last file replace the others. Secrets; default
    unset."""
    batch: BatchSettings = BatchSettings()
    """Batch jobs."""
    non_batch_concurrency: Annotated[int | None, IntRange(1, 64)] = None
    """The maximum number of concurrent indexing requests outside of batch jobs; unset means 4. Requests, 1..64; default
    unset."""

    @field_validator("api_key")
    @classmethod
    def _blank_is_unset(cls, value: SecretValue | None) -> SecretValue | None:
        return None if isinstance(value, SecretStr) and not value.get_secret_value().strip() else value


class LocalSettings(SettingsBlock):
    """A model that runs on this machine."""

    model_path: str | None = None
    """The file of the model, or `hf:organization/repository/file.gguf`. Unset means
    `hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf`. An `https:` address is accepted,
    but not downloaded. Path or address; default unset."""
    model_cache_dir: str | None = None
    """The folder for downloaded models. Path; default unset."""


class VectorStoreSettings(SettingsBlock):
    """How the store finds the nearest vectors."""

    enabled: bool = True
    """Whether the vector extension is used. true or false; default true."""
    extension_path: str | None = None
    """The file of the vector extension, instead of the one included in memoryd. Path; default unset."""


class StoreSettings(SettingsBlock):
    """The store of the index."""

    driver: Literal["sqlite"] = "sqlite"
    """The type of the store. sqlite; default "sqlite"."""
    path: str = ""
    """The file of the index; `{agentId}` is replaced by the id of the agent. Path; default <state
    dir>/memory/{agentId}.memoryd.sqlite."""
    vector: VectorStoreSettings = VectorStoreSettings()
    """The vector extension."""


class ChunkingSettings(SettingsBlock):
    """How files are split into chunks. A change of either value rebuilds the index."""

    tokens: Annotated[int, IntRange(1)] = 400
    """The size of a chunk, counting about four characters per token. Tokens, at least 1; default 400."""
    overlap: Annotated[int, IntRange(0)] = Field(80, validate_default=True)
    """The part of a chunk that the next chunk repeats; always less than `tokens`. Tokens, at least 0; default 80."""

    @field_validator("overlap")
    @classmethod
    def _less_than_a_chunk(cls, overlap: int, info: ValidationInfo) -> int:
        return min(overlap, max(0, int(info.data.get("tokens", overlap + 1)) - 1))


class SessionSyncSettings(SettingsBlock):
    """When a changed session transcript is indexed.

    A transcript that is rotated or no longer changes is always indexed.
    """

    delta_bytes: Annotated[int, IntRange(0)] = 100_000
    """The growth after which a transcript is indexed; 0 means any growth. Bytes, at least 0; default 100000."""
    delta_messages: Annotated[int, IntRange(0)] = 50
    """The number of new messages after which a transcript is indexed; 0 means any number. Messages, at least 0; default
    50."""
    post_compaction_force: bool = True
    """Whether a transcript is indexed immediately after a compaction. true or false; default true."""


class SyncSettings(SettingsBlock):
    """When the index is synchronized with the files."""

    on_session_start: bool = True
    """Whether the first use of a session starts a sync. true or false; default true."""
    on_search: bool = True
    """Whether a search starts a sync if the index is not up to date. The search does not wait for it. true or false;
    default true."""
    watch: bool = True
    """Whether files are watched for changes. true or false; default true."""
    watch_debounce_ms: Annotated[int, IntRange(0)] = 1500
    """The time without file events after which a sync starts. Milliseconds, at least 0; default 1500."""
    interval_minutes: Annotated[int, IntRange(0)] = 0
    """The time between two periodic syncs; 0 disables them. Minutes, at least 0; default 0."""
    sessions: SessionSyncSettings = SessionSyncSettings()
    """Session transcripts."""


class CacheSettings(SettingsBlock):
    """The embedding cache, so that no text is embedded twice."""

    enabled: bool = True
    """Whether embeddings are cached. true or false; default true."""
    max_entries: Annotated[int, IntRange(1)] = 50_000
    """The maximum number of cached embeddings; the least recently used are deleted first. Entries, at least 1; default
    50000."""


class ExtraPathSettings(SettingsBlock):
    """An extra path with a pattern. A string instead of the object is a path without a pattern."""

    path: str
    """The folder, or a single Markdown file; absolute or relative to the workspace. Path; default none, the key is
    required."""
    pattern: str = ""
    """The files of the folder that are memory: a glob of their paths relative to the folder, with `/` as the separator,
    `*`, `?`, `[...]`, `**` and `{a,b}`. A wildcard does not match a name that begins with a dot. The pattern of a
    single file is ignored. An empty pattern selects every Markdown file. Glob, at most 512 characters and 64
    alternatives; default ""."""

    @field_validator("pattern")
    @classmethod
    def _usable(cls, pattern: str) -> str:
        if pattern:
            Glob.parse(pattern)
        return pattern


def _extra_path(value: object) -> str | ExtraPathSettings:
    """Return an extra path; a string if it has no pattern.

    Raises:
        ValueError: it is neither a string nor a valid object.
    """
    if isinstance(value, str):
        return value.strip()
    if not isinstance(value, Mapping | ExtraPathSettings):
        raise ValueError(f"expected a string or an object, found {kind_of(value)}")  # noqa: TRY004 -- for pydantic
    extra = ExtraPathSettings.model_validate(value)
    return extra.model_copy(update={"path": extra.path.strip()}) if extra.pattern else extra.path.strip()


ExtraPathItem = Annotated[str | ExtraPathSettings, PlainValidator(_extra_path)]


class MemorySearchSettings(SettingsBlock):
    """An agent's memory: what is indexed, with which embedding provider, and how it is searched."""

    enabled: bool = True
    """Whether the agent has an index and memory search. If not, the calls that need them fail with MEMORY_DISABLED;
    writing, sessions and entries continue to work (see docs/sessions.md). true or false; default true."""
    experimental: ExperimentalSettings = ExperimentalSettings()
    """Experimental settings."""
    remember_across_conversations: bool = False
    """Whether session transcripts are indexed, but only searched by requests that name them as a source. The default is
    true in the current layout, unless `session.dmScope` is set to anything but `main` or a binding sets one; it is
    false in the older layout. true or false; default false."""
    sources: Annotated[tuple[SourceName, ...], Field(strict=False)] = ("memory",)
    """What is indexed and searched; `sessions` requires `experimental.sessionMemory` or `rememberAcrossConversations`,
    and is otherwise ignored with a warning. memory, sessions; default ["memory"]."""
    extra_paths: Annotated[tuple[ExtraPathItem, ...], Field(strict=False)] = ()
    """Files and folders outside the workspace, absolute or relative to it, with or without a pattern. Those of an agent
    are added after those of the defaults. Paths, or objects with `path` and `pattern`; default []."""
    multimodal: MultimodalSettings = MultimodalSettings()
    """Media; not implemented."""
    provider: Annotated[str, KnownWord(PROVIDERS, "embeddings are disabled")] = "auto"
    """The embedding provider: `auto`, `none`, or the id of a provider, which may be an id of `models.providers`. In the
    current layout, `auto` means `openai`, and the default is no provider. Id; default "auto"."""
    model: str = Field("", validate_default=True)
    """The embedding model. Name; default by provider."""
    output_dimensionality: Annotated[int | None, IntRange(1)] = None
    """The number of dimensions of the vectors, for models that support several. Dimensions, at least 1; default unset.
    """
    input_type: InputType = None
    """The `input_type` of queries and documents for `openai-compatible`, `lmstudio`, `deepinfra` and compatible
    providers of `models.providers`; other providers do not get it. Text; default unset."""
    query_input_type: InputType = None
    """The `input_type` of queries instead of `inputType`. Text; default unset."""
    document_input_type: InputType = None
    """The `input_type` of documents instead of `inputType`. Another value is a change of the model. Text; default
    unset."""
    fallback: Annotated[str, KnownWord(_FALLBACKS, "no other provider takes over", "/")] = "none"
    """The provider that is used when the configured one fails, alone or with its model, such as
    `ollama/mxbai-embed-large`; without a model, the provider's default. Id, id/model or none; default "none"."""
    remote: RemoteSettings | None = Field(RemoteSettings(), validate_default=True)
    """Remote providers."""
    local: LocalSettings = LocalSettings()
    """The local provider."""
    store: StoreSettings = StoreSettings()
    """The index."""
    chunking: ChunkingSettings = ChunkingSettings()
    """Chunks."""
    sync: SyncSettings = SyncSettings()
    """Syncs."""
    query: QuerySettings = QuerySettings()
    """Searches."""
    cache: CacheSettings = CacheSettings()
    """Cached embeddings."""

    @property
    def query_type(self) -> str:
        """The `input_type` of queries; empty if none is sent."""
        return self.query_input_type or self.input_type or ""

    @property
    def document_type(self) -> str:
        """The `input_type` of documents; empty if none is sent."""
        return self.document_input_type or self.input_type or ""

    @property
    def indexed_sources(self) -> tuple[SourceName, ...]:
        """Everything that is indexed: what ordinary searches find, and what only requests that name it find."""
        remembered: tuple[SourceName, ...] = ("sessions",) if self.remember_across_conversations else ()
        return tuple(dict.fromkeys((*self.sources, *remembered)))

    @property
    def fallback_provider(self) -> str:
        """The id of the fallback provider, or "none"."""
        return self.fallback.partition("/")[0]

    @property
    def fallback_model(self) -> str:
        """The model that `fallback` names; empty if it names none."""
        return self.fallback.partition("/")[2].strip()

    @field_validator("sources")
    @classmethod
    def _sessions_only_when_allowed(
        cls, sources: tuple[SourceName, ...], info: ValidationInfo
    ) -> tuple[SourceName, ...]:
        experimental = info.data.get("experimental", ExperimentalSettings())
        allowed = experimental.session_memory or info.data.get("remember_across_conversations", False)
        kept = [s for s in dict.fromkeys(sources) if s == "memory" or allowed]
        return tuple(kept) or ("memory",)

    @field_validator("extra_paths")
    @classmethod
    def _each_path_once(cls, paths: tuple[ExtraPathItem, ...]) -> tuple[ExtraPathItem, ...]:
        return tuple(dict.fromkeys(each for each in paths if (each if isinstance(each, str) else each.path)))

    @field_validator("input_type", "query_input_type", "document_input_type")
    @classmethod
    def _blank_is_unset(cls, value: str | None) -> str | None:
        return (value or "").strip() or None

    @field_validator("model")
    @classmethod
    def _model_of_the_provider(cls, model: str, info: ValidationInfo) -> str:
        return model.strip() or default_model(info.data.get("provider", ""))

    @field_validator("remote")
    @classmethod
    def _nothing_remote_for_local(cls, remote: RemoteSettings | None, info: ValidationInfo) -> RemoteSettings | None:
        used = remote and (remote.base_url or remote.api_key or remote.headers)
        return None if info.data.get("provider") == "local" and not used else remote
