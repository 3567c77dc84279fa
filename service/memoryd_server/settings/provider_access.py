"""Address and key of each embedding provider.

How each embedding provider is reached, and with what key.

From `remote`, the gateway's settings, its profiles, or the environment, in this order.

The keys that the gateway keeps for an agent, in `agents/<id>/agent/auth-profiles.json` of the state directory.

`models.providers`: where the gateway reaches its providers, and with what. Embeddings use the same accounts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.environment import PROVIDER_KEYS
from memoryd_server.settings.layers import Findings, UnreadKey, UnsetVariable, filled, read_layer
from memoryd_server.settings.memory_search import MemorySearchSettings, RemoteSettings
from memoryd_server.settings.rules import SettingsBlock, keys, kind_of

_KIND = "api_key"


@dataclass(frozen=True, slots=True)
class Profiles:
    """An agent's API keys by provider, in the order of the file.

    `unread` has the providers with a profile whose key is a reference to a secret that memoryd does not read, and
    where. `broken` is the file where it cannot be read at all.
    """

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unread: dict[str, UnreadKey] = field(default_factory=dict)
    broken: UnreadKey | None = None


def profiles_file(state_dir: Path, agent_id: str) -> Path:
    """Where the gateway keeps an agent's keys."""
    return state_dir / "agents" / agent_id / "agent" / "auth-profiles.json"


def read_profiles(file: Path, report: Findings) -> Profiles:
    """Return the profiles of `file`; none where there is no file.

    Profiles of other types (OAuth) are of no use for embeddings. A file that cannot be read is a warning: it is the
    gateway's.
    """
    found = Findings()
    layer = read_layer(file, found, required=False)
    profiles = layer.get("profiles")
    if profiles is not None and not isinstance(profiles, dict):
        found.problem(file, ("profiles",), f"expected an object, found {kind_of(profiles)}")
    report.warnings.extend(f"{problem}; its keys are not used" for problem in found.problems)
    read = Profiles(broken=UnreadKey(str(file), ()) if found.problems else None)
    for name, profile in profiles.items() if isinstance(profiles, dict) else ():
        provider, key = _api_key(profile)
        if key:
            read.keys[provider] = (*read.keys.get(provider, ()), key)
        elif provider and profile.get("keyRef") is not None:
            read.unread.setdefault(provider, UnreadKey(str(file), ("profiles", name, "keyRef")))
    return read


def _api_key(profile: Any) -> tuple[str, str]:
    """Return the provider and the key of a profile; without a key, the key is empty."""
    if not isinstance(profile, dict) or profile.get("type") != _KIND:
        return "", ""
    provider, key = profile.get("provider"), profile.get("key")
    if not isinstance(provider, str):
        return "", ""
    return provider.strip().lower(), key.strip() if isinstance(key, str) else ""


PROVIDERS = ("models", "providers")
# What the reference calls a provider of ours; ours comes first.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"gemini": ("google",)}


class ModelProviderSettings(SettingsBlock):
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


AUTOMATIC = ("openai-compatible", "openai", "gemini", "voyage", "mistral")
"""The providers that `auto` may use."""

_NO_REMOTE = RemoteSettings()
_NO_BLOCK = ModelProviderSettings()
_LOCAL = "local"
_MANY_KEYS = "gemini"
_DOLLAR_NAME = re.compile(r"\$[A-Z_][A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """Where a provider is and what is shown to it; `base_url` is empty where the provider's own address is meant.

    `no_key` says why there is no key, where somebody meant to give one; `problem` why nothing may be sent at all.
    `key_from` is the place that the keys come from. `passed_over` is the key of a place that comes before it and that
    memoryd does not read.
    """

    # An address may hold a password.
    base_url: str = field(default="", repr=False)
    keys: tuple[SecretStr, ...] = ()
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    no_key: str = ""
    problem: str = ""
    key_from: str = ""
    passed_over: UnreadKey | None = None

    def parts(self) -> dict[str, object]:
        """What is known of it, secrets as such; empty where nothing is."""
        parts = {"baseUrl": self.base_url, "keys": self.keys, "headers": self.headers}
        known: dict[str, object] = {name: value for name, value in parts.items() if value}
        wrong = self.problem or self.no_key
        return {**known, "problem": wrong} if wrong else known


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys that one place has, and one that it has and that memoryd does not read."""

    keys: tuple[str, ...] = ()
    place: str = ""
    unread: UnreadKey | None = None


@dataclass(frozen=True, slots=True)
class AccessSources:
    """Where keys come from besides `remote`. `profiles` are the agent's own, by the gateway's name of the provider."""

    providers: ModelProviders
    profiles: Profiles
    environ: Mapping[str, str]

    def wanted(self, search: MemorySearchSettings) -> dict[str, ProviderAccess]:
        """The access to each provider that the agent may use."""
        names = AUTOMATIC if search.provider == "auto" else (search.provider,)
        return {name: self.access(name, search.remote) for name in names}

    def fallback(self, search: MemorySearchSettings) -> ProviderAccess:
        """The access to the provider that stands in for the configured one. `remote` is the configured one's.

        Where that runs on this machine, and so has no use for `remote`, it is the other's.
        """
        return self.access(search.fallback, search.remote if search.provider == _LOCAL else None)

    def access(self, provider: str, remote: RemoteSettings | None) -> ProviderAccess:
        """The access to one provider; what `remote` says counts over the rest, header by header."""
        remote = remote or _NO_REMOTE
        blocks = self.providers.blocks
        name = next((name for name in names_of(provider) if name in blocks), provider)
        block, path = blocks.get(name, _NO_BLOCK), f"models.providers.{name}"
        try:
            base_url = self._filled(remote.base_url, "remote.baseUrl")
            base_url = base_url or self._filled(block.base_url, f"{path}.baseUrl")
            headers = {**self._headers(block.headers, path), **self._headers(remote.headers, "remote")}
        except UnsetVariable as unset:
            return ProviderAccess(problem=str(unset))
        try:
            found = self._found(provider, remote, block, path)
        except UnsetVariable as unset:
            return ProviderAccess(base_url, headers=headers, no_key=str(unset))
        keys = tuple(SecretStr(key) for key in found.keys)
        return ProviderAccess(base_url, keys, headers, key_from=found.place, passed_over=found.unread)

    def _headers(self, headers: Mapping[str, SecretStr] | None, path: str) -> dict[str, SecretStr]:
        """By their names in lower case."""
        return {
            name.lower(): SecretStr(self._filled(value, f"{path}.headers.{name}"))
            for name, value in (headers or {}).items()
        }

    def _found(self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: str) -> "_Keys":
        """Those of the first place that has any; one, but where keys may take turns."""
        passed_over: UnreadKey | None = None
        for each in self._places(provider, remote, block, path):
            if each.keys:
                keys = each.keys if provider == _MANY_KEYS else each.keys[:1]
                return _Keys(keys, each.place, passed_over or each.unread)
            passed_over = passed_over or each.unread
        return _Keys(unread=passed_over)

    def _places(
        self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: str
    ) -> Iterator["_Keys"]:
        yield _Keys(self._one(provider, remote.api_key, "remote.apiKey"), "remote.apiKey")
        yield _Keys(self._one(provider, block.api_key, f"{path}.apiKey"), f"{path}.apiKey")
        for name in names_of(provider):
            yield _Keys(unread=self.providers.unread.get(name))
            where = f"the profile of {name} in auth-profiles.json"
            profiles = self.profiles.keys.get(name, ())
            yield _Keys(
                tuple(key for raw in profiles if (key := self._key(provider, raw, where))), "auth-profiles.json"
            )
            yield _Keys(unread=self.profiles.unread.get(name))
        for variable in PROVIDER_KEYS.get(provider, ()):
            value = self.environ.get(variable, "").strip()
            yield _Keys((value,) if value else (), f"env {variable}", self.profiles.broken if value else None)

    def _one(self, provider: str, value: SecretStr | None, where: str) -> tuple[str, ...]:
        key = self._key(provider, value.get_secret_value(), where) if value else ""
        return (key,) if key else ()

    def _key(self, provider: str, text: str, where: str) -> str:
        # OpenClaw takes the bare name of a provider's variable for its value, and `$NAME` for `${NAME}`.
        name = text.strip()
        is_name = name in PROVIDER_KEYS.get(provider, ())
        name = name if is_name else name[1:] if _DOLLAR_NAME.fullmatch(name) else ""
        return filled(f"${{{name}}}" if name else text, where, self.environ)

    def _filled(self, text: str | SecretStr | None, where: str) -> str:
        plain = text.get_secret_value() if isinstance(text, SecretStr) else text
        return filled(plain or "", where, self.environ)
