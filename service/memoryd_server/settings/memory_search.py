"""`memorySearch`: indexing, provider, query.

`memorySearch`: what is indexed for an agent, with which provider, and how it is searched.

`memorySearch.query`: how the two legs of a search are joined and cut.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from memoryd_server.settings.rules import FloatRange, IntRange, KnownWord, SettingsBlock

VECTOR_WEIGHT = 0.7
TEXT_WEIGHT = 0.3


class MmrSettings(SettingsBlock):
    """Maximal marginal relevance: hits that repeat better ones move down."""

    enabled: bool = False
    """Whether hits are reordered for variety. true or false; default false."""
    lambda_: Annotated[float, FloatRange(0, 1)] = Field(0.7, alias="lambda")
    """1 ranks by score alone, 0 by variety alone. Share, 0..1; default 0.7."""


class TemporalDecaySettings(SettingsBlock):
    """Older notes count less."""

    enabled: bool = False
    """Whether scores fade with age. true or false; default false."""
    half_life_days: Annotated[int, IntRange(1)] = 30
    """Age at which a score has halved. Days, at least 1; default 30."""


class HybridSettings(SettingsBlock):
    """The fusion of keyword leg and vector leg. The weights are divided by their sum."""

    enabled: bool = True
    """Whether the keyword leg is used beside the vector leg. true or false; default true."""
    vector_weight: Annotated[float, FloatRange(0, 1)] = VECTOR_WEIGHT
    """What the vector leg counts. Share, 0..1; default 0.7."""
    text_weight: Annotated[float, FloatRange(0, 1)] = TEXT_WEIGHT
    """What the keyword leg counts. Share, 0..1; default 0.3."""
    candidate_multiplier: Annotated[int, IntRange(1, 20)] = 4
    """Candidates that each leg hands in, for one result. Factor, 1..20; default 4."""
    mmr: MmrSettings = MmrSettings()
    """Variety."""
    temporal_decay: TemporalDecaySettings = TemporalDecaySettings()
    """Age."""

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> Self:
        total = self.vector_weight + self.text_weight
        weights = (self.vector_weight / total, self.text_weight / total) if total else (VECTOR_WEIGHT, TEXT_WEIGHT)
        # The block is frozen to others; it is not made yet.
        object.__setattr__(self, "vector_weight", weights[0])
        object.__setattr__(self, "text_weight", weights[1])
        return self


class QuerySettings(SettingsBlock):
    """What a search returns."""

    max_results: Annotated[int, IntRange(1, 50)] = 6
    """Results, when the request names no number. Results, 1..50; default 6."""
    min_score: Annotated[float, FloatRange(0, 1)] = 0.35
    """The least score of a result, when the request names none. If this is not set either, the default applies to
    results that share words with the question, and results found by meaning alone pass by their cosine on the model's
    own scale. Score, 0..1; default 0.35."""
    hybrid: HybridSettings = HybridSettings()
    """Fusion."""


_MODEL_OF: Mapping[str, str] = {
    "openai": "text-embedding-3-small",
    "openai-compatible": "text-embedding-3-small",
    "gemini": "gemini-embedding-001",
    "voyage": "voyage-4-large",
    "mistral": "mistral-embed",
    "ollama": "nomic-embed-text",
}
_PROVIDERS = (
    *("auto", "openai", "local", "gemini", "voyage", "mistral", "ollama", "none"),
    *("bedrock", "github-copilot", "lmstudio", "deepinfra", "openai-compatible"),
)

_FALLBACKS = tuple(provider for provider in _PROVIDERS if provider != "auto")

SourceName = Literal["memory", "sessions"]


def default_model(provider: str) -> str:
    """The model that a provider uses unless another one is named; empty where there is none."""
    return _MODEL_OF.get(provider, "")


class MultimodalSettings(SettingsBlock):
    """Images and sound beside the text. memoryd indexes text only: these values always hold."""

    enabled: bool = False
    """Whether media is indexed. Always false; default false."""
    modalities: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The kinds of media. Always empty; default []."""
    max_file_bytes: int = 10 * 2**20
    """The largest media file. Bytes; default 10485760."""


class ExperimentalSettings(SettingsBlock):
    """What the reference calls experimental."""

    session_memory: bool = False
    """Whether session transcripts may be a source. true or false; default false."""


class BatchSettings(SettingsBlock):
    """The batch jobs of OpenAI, Gemini and Voyage, from `memoryd.batchMinChunks` chunks on."""

    enabled: bool = True
    """Whether many texts go through the provider's batch jobs. true or false; default true."""
    wait: bool = True
    """Whether a sync waits for its batch jobs; else a later one takes their vectors in. true or false; default true."""
    concurrency: Annotated[int, IntRange(1)] = 2
    """Batch jobs under way at once for one agent. Jobs, at least 1; default 2."""
    poll_interval_ms: Annotated[int, IntRange(0)] = 2000
    """Time between two questions about a batch job. Milliseconds, at least 0; default 2000."""
    timeout_minutes: Annotated[int, IntRange(1)] = 60
    """Time after which a batch job counts as failed; it is made once more. Minutes, at least 1; default 60."""


class RemoteSettings(SettingsBlock):
    """Where a remote provider is reached, and with what credentials. `${NAME}` in a value reads the environment."""

    base_url: str | None = None
    """The address of the provider's API, instead of the provider's own. URL; default unset."""
    api_key: SecretStr | None = None
    """The provider's key; a blank one counts as not set. Secret; default unset."""
    headers: dict[str, SecretStr] | None = None
    """Headers sent with each request; of two files, the later one's replace the earlier's. Secrets; default unset."""
    batch: BatchSettings = BatchSettings()
    """Batch jobs."""
    non_batch_concurrency: Annotated[int | None, IntRange(1, 64)] = None
    """Requests of indexing under way at once, outside of batch jobs; unset means 4. Requests, 1..64; default unset."""

    @field_validator("api_key")
    @classmethod
    def _blank_is_unset(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value and value.get_secret_value().strip() else None


class LocalSettings(SettingsBlock):
    """A model that runs on this machine."""

    model_path: str | None = None
    """The model's file, or `hf:organization/repository/file.gguf`; an `https:` address is known and not fetched.
    Path or address; default unset."""
    model_cache_dir: str | None = None
    """The folder that models are kept in. Path; default unset."""


class VectorStoreSettings(SettingsBlock):
    """How the store finds nearest neighbours."""

    enabled: bool = True
    """Whether the vector extension is used. true or false; default true."""
    extension_path: str | None = None
    """The extension's file, instead of the one that comes with memoryd. Path; default unset."""


class StoreSettings(SettingsBlock):
    """The file that holds the index."""

    driver: Literal["sqlite"] = "sqlite"
    """The kind of store. sqlite; default "sqlite"."""
    path: str = ""
    """The index; every `{agentId}` becomes the agent's id. Path; default <state dir>/memory/{agentId}.sqlite."""
    vector: VectorStoreSettings = VectorStoreSettings()
    """The vector extension."""


class ChunkingSettings(SettingsBlock):
    """How files are cut. Changing either value rebuilds the index."""

    tokens: Annotated[int, IntRange(1)] = 400
    """The size of a chunk, at about four characters a token. Tokens, at least 1; default 400."""
    overlap: Annotated[int, IntRange(0)] = Field(80, validate_default=True)
    """What a chunk repeats of the one before it, always less than `tokens`. Tokens, at least 0; default 80."""

    @field_validator("overlap")
    @classmethod
    def _less_than_a_chunk(cls, overlap: int, info: ValidationInfo) -> int:
        return min(overlap, max(0, int(info.data.get("tokens", overlap + 1)) - 1))


class SessionSyncSettings(SettingsBlock):
    """When changed session transcripts are indexed, besides when they are rotated or go quiet."""

    delta_bytes: Annotated[int, IntRange(0)] = 100_000
    """Growth after which a transcript is indexed; 0 means any. Bytes, at least 0; default 100000."""
    delta_messages: Annotated[int, IntRange(0)] = 50
    """New messages after which a transcript is indexed; 0 means any. Messages, at least 0; default 50."""
    post_compaction_force: bool = True
    """Whether a compaction indexes the transcript at once. true or false; default true."""


class SyncSettings(SettingsBlock):
    """When the index is brought in line with the files."""

    on_session_start: bool = True
    """Whether a session's first use starts a sync. true or false; default true."""
    on_search: bool = True
    """Whether a search on a dirty index starts a sync, without waiting for it. true or false; default true."""
    watch: bool = True
    """Whether files are watched. true or false; default true."""
    watch_debounce_ms: Annotated[int, IntRange(0)] = 1500
    """Quiet time after the last file event before a sync. Milliseconds, at least 0; default 1500."""
    interval_minutes: Annotated[int, IntRange(0)] = 0
    """Time between two syncs by the clock; 0 means none. Minutes, at least 0; default 0."""
    sessions: SessionSyncSettings = SessionSyncSettings()
    """Session transcripts."""


class CacheSettings(SettingsBlock):
    """Embeddings kept so that no text is embedded twice."""

    enabled: bool = True
    """Whether embeddings are kept. true or false; default true."""
    max_entries: Annotated[int, IntRange(1)] = 50_000
    """Embeddings kept at most; the least recently used go first. Entries, at least 1; default 50000."""


class MemorySearchSettings(SettingsBlock):
    """An agent's memory: what is indexed, with which provider, and how it is searched."""

    enabled: bool = True
    """Whether the agent has memory at all; without, every call answers MEMORY_DISABLED. true or false; default true."""
    experimental: ExperimentalSettings = ExperimentalSettings()
    """What the reference calls experimental."""
    sources: Annotated[tuple[SourceName, ...], Field(strict=False)] = ("memory",)
    """What is indexed; `sessions` needs `experimental.sessionMemory`. memory, sessions; default ["memory"]."""
    extra_paths: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Files and folders outside the workspace, relative to it or absolute; an agent's own come after the defaults'.
    Paths; default []."""
    multimodal: MultimodalSettings = MultimodalSettings()
    """Media; not implemented."""
    provider: Annotated[str, KnownWord(_PROVIDERS)] = "auto"
    """Who makes embeddings: `auto`, `none`, or a provider's id. Id; default "auto"."""
    model: str = Field("", validate_default=True)
    """The provider's model. Name; default by provider."""
    output_dimensionality: Annotated[int | None, IntRange(1)] = None
    """The length of the vectors, for models that offer several. Dimensions, at least 1; default unset."""
    fallback: Annotated[str, KnownWord(_FALLBACKS)] = "none"
    """The provider used when the first one fails. Id or none; default "none"."""
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
    """Kept embeddings."""

    @field_validator("sources")
    @classmethod
    def _sessions_only_when_allowed(
        cls, sources: tuple[SourceName, ...], info: ValidationInfo
    ) -> tuple[SourceName, ...]:
        experimental = info.data.get("experimental", ExperimentalSettings())
        kept = [s for s in dict.fromkeys(sources) if s == "memory" or experimental.session_memory]
        return tuple(kept) or ("memory",)

    @field_validator("extra_paths")
    @classmethod
    def _each_path_once(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path.strip() for path in paths if path.strip()))

    @field_validator("model")
    @classmethod
    def _model_of_the_provider(cls, model: str, info: ValidationInfo) -> str:
        return model.strip() or default_model(info.data.get("provider", ""))

    @field_validator("remote")
    @classmethod
    def _nothing_remote_for_local(cls, remote: RemoteSettings | None, info: ValidationInfo) -> RemoteSettings | None:
        used = remote and (remote.base_url or remote.api_key or remote.headers)
        return None if info.data.get("provider") == "local" and not used else remote
