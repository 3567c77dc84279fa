"""`models.providers`: where the gateway reaches its providers, and with what. Embeddings use the same accounts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from .block import Block, keys
from .checking import Checker
from .report import UnreadKey

PROVIDERS = ("models", "providers")
# What the reference calls a provider of ours; ours comes first.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"gemini": ("google",)}


class ModelProviderSettings(Block):
    """One provider as the gateway knows it; `memorySearch.remote` counts over it.

    `<id>` is openai, openai-compatible, gemini (or google), voyage, mistral or ollama. What else stands in such a block
    is the gateway's and is ignored. `${NAME}` in a value reads the environment.
    """

    base_url: str | None = None
    """The address of the provider's API, instead of the provider's own. URL; default unset."""
    api_key: SecretStr | None = None
    """The provider's key; a blank one counts as not set. Secret; default unset."""
    headers: dict[str, SecretStr] | None = None
    """Headers sent with each request; those of `remote` replace them one by one. Secrets; default unset."""


@dataclass(frozen=True, slots=True)
class ModelProviders:
    """The blocks by id; `unread` has the `apiKey` of each that refers to a secret that memoryd does not read."""

    blocks: Mapping[str, ModelProviderSettings] = field(default_factory=dict)
    unread: Mapping[str, UnreadKey] = field(default_factory=dict)


def names_of(provider: str) -> tuple[str, ...]:
    """The names that a provider of ours has in the gateway's settings, the first one counts most."""
    return (provider, *_OTHER_NAMES.get(provider, ()))


def model_providers(checker: Checker) -> ModelProviders:
    """Every block whose id is a string, by that id. Keys that are not about where and with what are not looked at."""
    checker.table(PROVIDERS[:1])
    found, unread = {}, {}
    for name in checker.table(PROVIDERS):
        path = (*PROVIDERS, name)
        raw = checker.table(path)
        known = {key: raw[key] for _, key, _ in keys(ModelProviderSettings) if key in raw}
        if isinstance(known.get("apiKey"), dict):
            del known["apiKey"]
            unread[name] = UnreadKey(checker.tree.origin((*path, "apiKey")), (*path, "apiKey"))
        found[name] = checker.block(ModelProviderSettings, known, path)
    return ModelProviders(found, unread)
