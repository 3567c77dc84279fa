"""`plugins.entries.memory-lancedb.config`: the settings of entries, with the keys of OpenClaw's memory-lancedb."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import SecretStr, field_validator, model_validator

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.layers import UnsetVariable, substitute_variables
from memoryd_server.settings.memory_search import RemoteSettings
from memoryd_server.settings.provider_access import AccessSources, ProviderAccess
from memoryd_server.settings.rules import IntRange, KeyPath, SettingsBlock

PLUGIN = "memory-lancedb"
ENTRY: KeyPath = ("plugins", "entries", PLUGIN)
CONFIG: KeyPath = (*ENTRY, "config")

_SLOT: KeyPath = ("plugins", "slots", "memory")
_ENTRY_PROVIDERS = ("", "openai", "openai-compatible")
_DIMENSIONS: Mapping[str, int] = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072}


class EntryEmbeddingSettings(SettingsBlock):
    """The embedding provider of entries, in OpenAI's format.

    Without this block, entries use the provider of the agent's memory.
    """

    provider: str | None = None
    """The provider: `openai`, or `openai-compatible` with `baseUrl`. No other one is called. Without `apiKey`, the keys
    of the provider are used, as for memory search, and nothing is sent if this key is not set. Id; default unset."""
    api_key: SecretStr | None = None
    """The API key; `${NAME}` is replaced by the environment variable. Secret; default unset."""
    model: str = "text-embedding-3-small"
    """The embedding model. Name; default "text-embedding-3-small"."""
    base_url: str | None = None
    """The base URL of the provider's API, instead of OpenAI's. URL; default unset."""
    dimensions: Annotated[int | None, IntRange(1, 65_536)] = None
    """The number of dimensions of the vectors. Required unless the model is `text-embedding-3-small` (1536) or
    `text-embedding-3-large` (3072), and sent only to these two. Dimensions, 1..65536; default unset."""

    @model_validator(mode="after")
    def _length_of_unknown_models(self) -> Self:
        if self.dimensions is None and self.model not in _DIMENSIONS:
            raise ValueError(f'the number of dimensions of "{self.model}" is not known; set "dimensions"')
        return self

    @field_validator("api_key")
    @classmethod
    def _not_blank(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().strip():
            raise ValueError("the key must not be blank")
        return value

    @property
    def accepts_dimensions(self) -> bool:
        """Return whether a request can set the number of dimensions."""
        return self.model in _DIMENSIONS

    @property
    def vector_length(self) -> int:
        """Return the number of dimensions of the vectors."""
        return self.dimensions or _DIMENSIONS[self.model]


class LanceDbSettings(SettingsBlock):
    """Entries in LanceDB. Enabled if `plugins.slots.memory` is `memory-lancedb`, or by `memoryd.entries.enabled`."""

    embedding: EntryEmbeddingSettings | None = None
    """The embedding provider."""
    db_path: str = ""
    """The folder, or the address in an object store such as `s3://bucket/prefix`, with a dataset for each agent. Path
    or address; default <state dir>/memory/lancedb."""
    storage_options: dict[str, SecretStr] | None = None
    """The options of the object store, such as `region` or `endpoint`; `${NAME}` is replaced by the environment
    variable. LanceDB's options; default unset."""
    auto_capture: bool = False
    """Whether the gateway stores the texts that `SuggestCapture` suggests. true or false; default false."""
    auto_recall: bool = True
    """Whether `RecallBlock` returns entries, and `MemoryRecall` if the request names no sources. true or false; default
    true."""
    capture_max_chars: Annotated[int, IntRange(100, 10_000)] = 500
    """The length of the longest message that `SuggestCapture` suggests. Characters, 100..10000; default 500."""


def lancedb_settings(checker: Checker, state_dir: Path, environ: Mapping[str, str]) -> LanceDbSettings:
    """Return the block with an absolute `db_path` and with the variables in its storage options replaced."""
    found = checker.block(LanceDbSettings, checker.table(CONFIG), CONFIG)
    path = found.db_path.strip() or str(state_dir / "memory" / "lancedb")
    return found.model_copy(update={"db_path": path, "storage_options": _options(checker, found, environ) or None})


def entries_are_enabled(checker: Checker) -> bool:
    """Return whether entries are enabled: by memoryd's own key, or by the slot unless the plugin is disabled."""
    if checker.tree.at("memoryd", "entries", "enabled") is True:
        return True
    return checker.tree.at(*_SLOT) == PLUGIN and checker.tree.at(*ENTRY, "enabled") is not False


def entry_access(settings: LanceDbSettings, sources: AccessSources) -> ProviderAccess | None:
    """Return the access to the provider of entries; None if it is the provider of the agent's memory."""
    embedding = settings.embedding
    if embedding is None:
        return None
    provider, environ = (embedding.provider or "").strip(), sources.variables.values
    if provider not in _ENTRY_PROVIDERS:
        return ProviderAccess(
            problem=f'{PLUGIN} names the provider "{provider}", which memoryd does not use for entries'
        )
    if embedding.api_key is None:
        if not provider:
            return ProviderAccess(problem=f'set embedding.provider of {PLUGIN} to "openai" to use its key for entries')
        return sources.access(provider, RemoteSettings(base_url=embedding.base_url))
    try:
        key = substitute_variables(embedding.api_key.get_secret_value(), f"{PLUGIN}.embedding.apiKey", environ)
        base_url = substitute_variables(embedding.base_url or "", f"{PLUGIN}.embedding.baseUrl", environ)
    except UnsetVariable as unset:
        return ProviderAccess(problem=str(unset))
    return ProviderAccess(base_url, (SecretStr(key),))


def _options(checker: Checker, settings: LanceDbSettings, environ: Mapping[str, str]) -> dict[str, SecretStr]:
    found: dict[str, SecretStr] = {}
    for name, value in (settings.storage_options or {}).items():
        try:
            text = substitute_variables(value.get_secret_value(), f"storageOptions.{name}", environ)
        except UnsetVariable as unset:
            checker.problem((*CONFIG, "storageOptions", name), str(unset))
        else:
            found[name] = SecretStr(text)
    return found
