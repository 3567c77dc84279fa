"""`plugins.entries.memory-lancedb.config`: the entries, with the reference's keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import SecretStr, field_validator, model_validator

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.layers import UnsetVariable, filled
from memoryd_server.settings.provider_access import ProviderAccess
from memoryd_server.settings.rules import IntRange, KeyPath, SettingsBlock

PLUGIN = "memory-lancedb"
AROUND: KeyPath = ("plugins", "entries", PLUGIN)
CONFIG: KeyPath = (*AROUND, "config")

_SLOT: KeyPath = ("plugins", "slots", "memory")
_DIMENSIONS: Mapping[str, int] = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072}


class EntryEmbeddingSettings(SettingsBlock):
    """Who makes the vectors of entries, by OpenAI's format. Without this block, the agent's own provider does."""

    api_key: SecretStr
    """The provider's key; `${NAME}` reads the environment. Secret; default none, the key is required."""
    model: str = "text-embedding-3-small"
    """The model. Name; default "text-embedding-3-small"."""
    base_url: str | None = None
    """The address of the provider's API, instead of OpenAI's. URL; default unset."""
    dimensions: Annotated[int | None, IntRange(1, 65_536)] = None
    """The length of the vectors, where it is not 1536 of `text-embedding-3-small` or 3072 of `-large`; needed for every
    other model, and sent only to these two, which take it. Dimensions, 1..65536; default unset."""

    @model_validator(mode="after")
    def _length_of_unknown_models(self) -> Self:
        if self.dimensions is None and self.model not in _DIMENSIONS:
            raise ValueError(f'the length of the vectors of "{self.model}" is not known; give "dimensions"')
        return self

    @field_validator("api_key")
    @classmethod
    def _not_blank(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().strip():
            raise ValueError("the key must not be blank")
        return value

    @property
    def takes_dimensions(self) -> bool:
        """Whether the model can be asked for vectors of a length."""
        return self.model in _DIMENSIONS

    @property
    def vector_length(self) -> int:
        """The length that the vectors will have."""
        return self.dimensions or _DIMENSIONS[self.model]


class LanceDbSettings(SettingsBlock):
    """Entries in LanceDB. On when `plugins.slots.memory` is `memory-lancedb`, or by `memoryd.entries.enabled`."""

    embedding: EntryEmbeddingSettings | None = None
    """The provider."""
    db_path: str = ""
    """The folder that holds a dataset for each agent, or the address of one in an object store, such as
    `s3://bucket/prefix`. Path or address; default <state dir>/memory/lancedb."""
    storage_options: dict[str, SecretStr] | None = None
    """What the object store is reached with, such as `region` or `endpoint`; `${NAME}` reads the environment.
    LanceDB's options; default unset."""
    auto_capture: bool = False
    """Whether the gateway is to store what `SuggestCapture` suggests. true or false; default false."""
    auto_recall: bool = True
    """Whether `RecallBlock` answers with anything. true or false; default true."""
    capture_max_chars: Annotated[int, IntRange(100, 10_000)] = 500
    """The longest message that is suggested. Characters, 100..10000; default 500."""


def lancedb_settings(checker: Checker, state_dir: Path, environ: Mapping[str, str]) -> LanceDbSettings:
    """The block, with where the entries are, and with the variables that its storage options name filled in."""
    found = checker.block(LanceDbSettings, checker.table(CONFIG), CONFIG)
    path = found.db_path.strip() or str(state_dir / "memory" / "lancedb")
    return found.model_copy(update={"db_path": path, "storage_options": _options(checker, found, environ) or None})


def entries_are_on(checker: Checker) -> bool:
    """Whether entries are kept: by memoryd's own key, or by the slot unless the plugin is switched off."""
    if checker.tree.at("memoryd", "entries", "enabled") is True:
        return True
    return checker.tree.at(*_SLOT) == PLUGIN and checker.tree.at(*AROUND, "enabled") is not False


def entry_access(settings: LanceDbSettings, environ: Mapping[str, str]) -> ProviderAccess | None:
    """How the provider of entries is reached; None where it is the agent's own."""
    embedding = settings.embedding
    if embedding is None:
        return None
    try:
        key = filled(embedding.api_key.get_secret_value(), f"{PLUGIN}.embedding.apiKey", environ)
        base_url = filled(embedding.base_url or "", f"{PLUGIN}.embedding.baseUrl", environ)
    except UnsetVariable as unset:
        return ProviderAccess(problem=str(unset))
    return ProviderAccess(base_url, (SecretStr(key),))


def _options(checker: Checker, settings: LanceDbSettings, environ: Mapping[str, str]) -> dict[str, SecretStr]:
    found: dict[str, SecretStr] = {}
    for name, value in (settings.storage_options or {}).items():
        try:
            text = filled(value.get_secret_value(), f"storageOptions.{name}", environ)
        except UnsetVariable as unset:
            checker.problem((*CONFIG, "storageOptions", name), str(unset))
        else:
            found[name] = SecretStr(text)
    return found
