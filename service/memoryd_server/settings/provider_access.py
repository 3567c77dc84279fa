"""The address and the API key of each embedding provider.

They come from `memorySearch.remote`, else from `models.providers`, else from the agent's `auth-profiles.json`, else
from the environment. The last two hold keys only; the gateway keeps its own keys in `auth-profiles.json`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.environment import PROVIDER_KEYS
from memoryd_server.settings.layers import Findings, UnreadKey, UnsetVariable, read_layer, substitute_variables
from memoryd_server.settings.memory_search import MemorySearchSettings, RemoteSettings
from memoryd_server.settings.rules import SettingsBlock, keys, kind_of

_KIND = "api_key"


@dataclass(frozen=True, slots=True)
class Profiles:
    """An agent's API keys by provider, in the order of the file.

    `unread` has each provider with a profile whose key is a reference to a secret that memoryd does not read, and where
    it is. `broken` is the file if it cannot be read at all.
    """

    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unread: dict[str, UnreadKey] = field(default_factory=dict)
    broken: UnreadKey | None = None


def profiles_file(state_dir: Path, agent_id: str) -> Path:
    """Return the path of the file in which the gateway keeps an agent's keys."""
    return state_dir / "agents" / agent_id / "agent" / "auth-profiles.json"


def read_profiles(file: Path, report: Findings) -> Profiles:
    """Return the profiles of `file`; none if there is no file.

    Profiles of other types, such as OAuth, are ignored, because embeddings need an API key. A file that cannot be read
    is a warning rather than a problem, because it is the gateway's file.
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
    """Return the provider and the key of a profile; the key is empty if the profile has none."""
    if not isinstance(profile, dict) or profile.get("type") != _KIND:
        return "", ""
    provider, key = profile.get("provider"), profile.get("key")
    if not isinstance(provider, str):
        return "", ""
    return provider.strip().lower(), key.strip() if isinstance(key, str) else ""


PROVIDERS = ("models", "providers")
# OpenClaw's names of a provider, other than memoryd's; memoryd's takes precedence.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"gemini": ("google",)}


class ModelProviderSettings(SettingsBlock):
    """A provider of the gateway; `memorySearch.remote` takes precedence.

    `<id>` is openai, openai-compatible, gemini (or google), voyage, mistral or ollama. Other keys of the block are
    settings of the gateway and are ignored. `${NAME}` in a value is replaced by the environment variable.
    """

    base_url: str | None = None
    """The base URL of the provider's API, instead of the provider's default. URL; default unset."""
    api_key: SecretStr | None = None
    """The API key; a blank key counts as unset. Secret; default unset."""
    headers: dict[str, SecretStr] | None = None
    """Headers of each request; a header of the same name in `memorySearch.remote` takes precedence. Secrets; default
    unset."""


@dataclass(frozen=True, slots=True)
class ModelProviders:
    """The blocks by id. `unread` has the `apiKey` of each block that refers to a secret that memoryd does not read."""

    blocks: Mapping[str, ModelProviderSettings] = field(default_factory=dict)
    unread: Mapping[str, UnreadKey] = field(default_factory=dict)


def gateway_names(provider: str) -> tuple[str, ...]:
    """Return the names of a provider in the gateway's settings, in the order of precedence."""
    return (provider, *_OTHER_NAMES.get(provider, ()))


def model_providers(checker: Checker) -> ModelProviders:
    """Return the block of each provider, by id.

    Keys that memoryd does not use are not checked.
    """
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

# The provider's own address; keys from the environment and from profiles belong to it.
_ADDRESSES: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "voyage": "https://api.voyageai.com/v1",
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://127.0.0.1:11434",
}
_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
_AUTHORIZATION = frozenset({"authorization", "x-goog-api-key", "api-key"})

_NO_REMOTE = RemoteSettings()
_NO_BLOCK = ModelProviderSettings()
_LOCAL = "local"
_MANY_KEYS = "gemini"
_DOLLAR_NAME = re.compile(r"\$[A-Z_][A-Z0-9_]*", re.ASCII)


def _endpoint(url: str) -> str:
    """Return the scheme, the host and the port of an address, without credentials; empty if it is not an address."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return ""
    host = "127.0.0.1" if host in {"localhost", "::1"} else host
    return f"{parts.scheme}://{host}:{port}" if host and port else ""


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """The address of a provider, and the keys and headers that are sent to it.

    An empty `base_url` means the provider's default. `no_key` says why a configured key cannot be used, `problem` why
    nothing may be sent. `key_from` is the source of the keys. `passed_over` is a key of a source with higher precedence
    that memoryd does not read. `withheld` is empty, or says which key is not sent, because it belongs to another
    address.
    """

    # An address may hold a password.
    base_url: str = field(default="", repr=False)
    keys: tuple[SecretStr, ...] = ()
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    no_key: str = ""
    problem: str = ""
    key_from: str = ""
    passed_over: UnreadKey | None = None
    withheld: str = ""

    def known_values(self) -> dict[str, object]:
        """Return the known values by name, with secrets as `SecretStr`; empty if nothing is known."""
        values = {"baseUrl": self.base_url, "keys": self.keys, "headers": self.headers}
        known: dict[str, object] = {name: value for name, value in values.items() if value}
        wrong = self.problem or self.no_key or self.withheld
        return {**known, "problem": wrong} if wrong else known


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one source, and a key of it that memoryd does not read."""

    keys: tuple[str, ...] = ()
    place: str = ""
    unread: UnreadKey | None = None


@dataclass(frozen=True, slots=True)
class AccessSources:
    """The sources of addresses and keys other than `remote`.

    `profiles` are the agent's, by the gateway's provider names.
    """

    providers: ModelProviders
    profiles: Profiles
    environ: Mapping[str, str]

    def usable(self, search: MemorySearchSettings) -> dict[str, ProviderAccess]:
        """Return the access to each provider that the agent may use."""
        names = AUTOMATIC if search.provider == "auto" else (search.provider,)
        return {name: self.access(name, search.remote) for name in names}

    def fallback(self, search: MemorySearchSettings) -> ProviderAccess:
        """Return the access to the fallback provider.

        `remote` belongs to the configured provider. If that one is local and so does not use `remote`, the fallback
        uses it, and so does another model of the same provider.
        """
        fallback = search.fallback_provider
        return self.access(fallback, search.remote if search.provider in {_LOCAL, fallback} else None)

    def access(self, provider: str, remote: RemoteSettings | None) -> ProviderAccess:
        """Return the access to one provider. `remote` takes precedence over the other sources, header by header."""
        remote = remote or _NO_REMOTE
        blocks = self.providers.blocks
        name = next((name for name in gateway_names(provider) if name in blocks), provider)
        block, path = blocks.get(name, _NO_BLOCK), f"models.providers.{name}"
        try:
            base_url = self._filled(remote.base_url, "remote.baseUrl")
            if base_url and not self._is_own(base_url, provider, block, path):
                return self._elsewhere(base_url, provider, remote, block, path)
            base_url = base_url or self._filled(block.base_url, f"{path}.baseUrl")
            headers = {**self._headers(block.headers, path), **self._headers(remote.headers, "remote")}
        except UnsetVariable as unset:
            return ProviderAccess(problem=str(unset))
        try:
            found = self._first_keys(provider, remote, block, path)
        except UnsetVariable as unset:
            return ProviderAccess(base_url, headers=headers, no_key=str(unset))
        keys = tuple(SecretStr(key) for key in found.keys)
        return ProviderAccess(base_url, keys, headers, key_from=found.place, passed_over=found.unread)

    def _is_own(self, base_url: str, provider: str, block: ModelProviderSettings, path: str) -> bool:
        """Return whether `base_url` has the scheme, the host and the port of the provider's own address.

        True if the provider has no address of its own.
        """
        try:
            own = self._filled(block.base_url, f"{path}.baseUrl") or _ADDRESSES.get(provider, "")
        except UnsetVariable:
            return False
        return not own or _endpoint(own) == _endpoint(base_url) != ""

    def _elsewhere(
        self, base_url: str, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: str
    ) -> ProviderAccess:
        """Return the access to an address that is not the provider's own: only with the key and headers of `remote`.

        Raises:
            UnsetVariable: a header of `remote` names a variable that is not set.
        """
        headers = self._headers(remote.headers, "remote")
        try:
            keys = self._one(provider, remote.api_key, "remote.apiKey")
        except UnsetVariable as unset:
            return ProviderAccess(base_url, headers=headers, no_key=str(unset))
        if keys:
            return ProviderAccess(base_url, (SecretStr(keys[0]),), headers, key_from="remote.apiKey")
        if _AUTHORIZATION.intersection(headers):
            return ProviderAccess(base_url, headers=headers)
        try:
            withheld = self._first_keys(provider, _NO_REMOTE, block, path).place or (
                f"{path}.headers" if block.headers else ""
            )
        except UnsetVariable:
            withheld = ""
        message = (
            f"{withheld} is not sent to {_endpoint(base_url) or 'this address'}, because it belongs to the address of "
            f"{provider}; set remote.apiKey to send a key there"
        )
        return ProviderAccess(base_url, headers=headers, withheld=message if withheld else "")

    def _headers(self, headers: Mapping[str, SecretStr] | None, path: str) -> dict[str, SecretStr]:
        """Return the headers with their names in lower case."""
        return {
            name.lower(): SecretStr(self._filled(value, f"{path}.headers.{name}"))
            for name, value in (headers or {}).items()
        }

    def _first_keys(self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: str) -> "_Keys":
        """Return the keys of the first source that has any: only the first key, unless the provider rotates keys."""
        passed_over: UnreadKey | None = None
        for each in self._key_sources(provider, remote, block, path):
            if each.keys:
                keys = each.keys if provider == _MANY_KEYS else each.keys[:1]
                return _Keys(keys, each.place, passed_over or each.unread)
            passed_over = passed_over or each.unread
        return _Keys(unread=passed_over)

    def _key_sources(
        self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: str
    ) -> Iterator["_Keys"]:
        yield _Keys(self._one(provider, remote.api_key, "remote.apiKey"), "remote.apiKey")
        yield _Keys(self._one(provider, block.api_key, f"{path}.apiKey"), f"{path}.apiKey")
        for name in gateway_names(provider):
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
        return substitute_variables(f"${{{name}}}" if name else text, where, self.environ)

    def _filled(self, text: str | SecretStr | None, where: str) -> str:
        plain = text.get_secret_value() if isinstance(text, SecretStr) else text
        return substitute_variables(plain or "", where, self.environ)
