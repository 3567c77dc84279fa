"""The address and the API key of each embedding provider.

They come from `memorySearch.remote`, `models.providers`, the agent's auth profiles and the environment. The last two
hold keys only. A key may be a reference to a secret that is stored elsewhere; if that has no value, the provider cannot
be used, and no other key is taken in its place.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import SecretStr

from memoryd_server.credentials import (
    MalformedReference,
    ResolvedSecret,
    SecretLookup,
    SecretReference,
    SecretSources,
    UnresolvedSecret,
    denied_variable,
    environment_reference,
    resolve_secrets,
)
from memoryd_server.settings.auth_profiles import Profiles, ProfileStore
from memoryd_server.settings.checking import Checker
from memoryd_server.settings.environment import PROVIDER_KEYS
from memoryd_server.settings.layers import KeyPlace, UnsetVariable, substitute_variables
from memoryd_server.settings.memory_search import MemorySearchSettings, RemoteSettings
from memoryd_server.settings.rules import KeyPath, SettingsBlock, dotted, keys
from memoryd_server.settings.secret_input import SecretInput, SecretValue

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
    api_key: Annotated[SecretValue | None, SecretInput()] = None
    """The API key, a [SecretRef](#secretrefs), or the id of an auth profile; a blank key counts as unset. Secret;
    default unset."""
    headers: dict[str, Annotated[SecretValue, SecretInput()]] | None = None
    """Headers of each request, each a text or a [SecretRef](#secretrefs); a header of the same name in
    `memorySearch.remote` takes precedence. Secrets; default unset."""


@dataclass(frozen=True, slots=True)
class ModelProviders:
    """The blocks by id. `with_api_key` has the ids of those with `auth: "api-key"`."""

    blocks: Mapping[str, ModelProviderSettings] = field(default_factory=dict)
    with_api_key: Collection[str] = ()


def gateway_names(provider: str) -> tuple[str, ...]:
    """Return the names of a provider in the gateway's settings, in the order of precedence."""
    return (provider, *_OTHER_NAMES.get(provider, ()))


def model_providers(checker: Checker) -> ModelProviders:
    """Return the block of each provider, by id.

    Keys that memoryd does not use are not checked.
    """
    checker.table(PROVIDERS[:1])
    found = {}
    for name in checker.table(PROVIDERS):
        path = (*PROVIDERS, name)
        raw = checker.table(path)
        known = {key: raw[key] for _, key, _ in keys(ModelProviderSettings) if key in raw}
        found[name] = checker.block(ModelProviderSettings, known, path)
    return ModelProviders(found, [name for name in found if checker.tree.at(*PROVIDERS, name, "auth") == "api-key"])


AUTOMATIC = ("openai-compatible", "openai", "gemini", "voyage", "mistral")
"""The providers that `auto` may use."""

_NO_REMOTE = RemoteSettings()
_NO_BLOCK = ModelProviderSettings()
_LOCAL = "local"
_MANY_KEYS = "gemini"
_DOLLAR_NAME = re.compile(r"\$[A-Z_][A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class MissingSecret:
    """A reference to a secret without a value: its place, and the reason."""

    place: KeyPlace
    reason: str

    def __str__(self) -> str:
        """Return the key and the reason; the key of another agent is not among them."""
        return f"{dotted(self.place.key)} is a SecretRef that does not resolve: {self.reason}"


class UnresolvedReference(Exception):
    """A key or header has no value, and nothing may be used in its place."""

    def __init__(self, place: KeyPlace, reason: str) -> None:
        super().__init__(reason)
        self.secret = MissingSecret(place, reason)


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """The address of a provider, and the keys and headers that are sent to it.

    An empty `base_url` means the provider's default. `no_key` says why a configured key cannot be used, `problem` why
    nothing may be sent. `missing` is a secret without a value, because of which neither this provider nor another one
    in its place may be used. `key_from` is the source of the keys. `passed_over` is a source of higher precedence that
    cannot be read.
    """

    # An address may hold a password.
    base_url: str = field(default="", repr=False)
    keys: tuple[SecretStr, ...] = ()
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    no_key: str = ""
    problem: str = ""
    key_from: str = ""
    passed_over: KeyPlace | None = None
    missing: MissingSecret | None = None

    def known_values(self) -> dict[str, object]:
        """Return the known values by name, with secrets as `SecretStr`; empty if nothing is known."""
        values = {"baseUrl": self.base_url, "keys": self.keys, "headers": self.headers}
        known: dict[str, object] = {name: value for name, value in values.items() if value}
        wrong = self.problem or self.no_key or (str(self.missing) if self.missing else "")
        return {**known, "problem": wrong} if wrong else known


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one source. `broken` is its place if it cannot be read."""

    keys: tuple[str, ...] = ()
    place: str = ""
    broken: KeyPlace | None = None


@dataclass(frozen=True, slots=True)
class AccessSources:
    """The sources of addresses and keys other than `remote`, for one agent.

    `remote_path` is the path of `remote`, and `origin` returns the file of a key. `by_older_rules` is whether a text in
    `models.providers.<id>.apiKey` precedes profiles and variables, as in earlier versions of OpenClaw. `lookup` returns
    the values of references.
    """

    providers: ModelProviders
    profiles: Profiles
    sources: SecretSources
    remote_path: KeyPath
    origin: Callable[[KeyPath], str]
    lookup: SecretLookup
    by_older_rules: bool = True

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
        try:
            return self._access(provider, remote or _NO_REMOTE)
        except UnresolvedReference as error:
            return ProviderAccess(missing=error.secret)

    def _access(self, provider: str, remote: RemoteSettings) -> ProviderAccess:
        blocks = self.providers.blocks
        name = next((name for name in gateway_names(provider) if name in blocks), provider)
        block, path = blocks.get(name, _NO_BLOCK), (*PROVIDERS, name)
        try:
            base_url = self._filled(remote.base_url, "remote.baseUrl")
            base_url = base_url or self._filled(block.base_url, f"{dotted(path)}.baseUrl")
            headers = {**self._block_headers(block, path), **self._remote_headers(remote)}
        except UnsetVariable as unset:
            return ProviderAccess(problem=str(unset))
        try:
            found = self._first_keys(provider, remote, block, path)
        except UnsetVariable as unset:
            return ProviderAccess(base_url, headers=headers, no_key=str(unset))
        keys = tuple(SecretStr(key) for key in found.keys)
        return ProviderAccess(base_url, keys, headers, key_from=found.place, passed_over=found.broken)

    def _remote_headers(self, remote: RemoteSettings) -> dict[str, SecretStr]:
        """Return the headers with their names in lower case."""
        return {
            name.lower(): SecretStr(self._filled(value, f"remote.headers.{name}"))
            for name, value in (remote.headers or {}).items()
        }

    def _block_headers(self, block: ModelProviderSettings, path: KeyPath) -> dict[str, SecretStr]:
        found = {}
        for name, value in (block.headers or {}).items():
            key = (*path, "headers", name)
            if isinstance(value, SecretStr):
                text = self._filled(_braced(value.get_secret_value()), dotted(key))
            else:
                text = self._value(value, KeyPlace(self.origin(key), key))
            found[name.lower()] = SecretStr(text)
        return found

    def _first_keys(self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: KeyPath) -> _Keys:
        """Return the keys of the first source that has any: only the first key, unless the provider rotates keys."""
        broken: KeyPlace | None = None
        for each in self._key_sources(provider, remote, block, path):
            if each.keys:
                keys = each.keys if provider == _MANY_KEYS else each.keys[:1]
                return _Keys(keys, each.place, broken)
            broken = broken or each.broken
        return _Keys()

    def _key_sources(
        self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: KeyPath
    ) -> Iterator[_Keys]:
        yield self._one(provider, remote.api_key, (*self.remote_path, "apiKey"), "remote.apiKey")
        key = (*path, "apiKey")
        direct = self._is_direct(block.api_key, path[-1])
        if direct:
            yield self._one(provider, block.api_key, key, dotted(key))
        for store in self.profiles.stores:
            yield from self._of_profiles(provider, store)
        for variable in PROVIDER_KEYS.get(provider, ()):
            value = self.sources.environ.get(variable, "").strip()
            yield _Keys((value,) if value else (), f"env {variable}")
        if not direct:
            yield self._one(provider, block.api_key, key, dotted(key))

    def _is_direct(self, value: SecretValue | None, name: str) -> bool:
        """Return whether the key of a block precedes profiles and variables."""
        if self.by_older_rules or not isinstance(value, SecretStr) or name in self.providers.with_api_key:
            return True
        text = value.get_secret_value().strip()
        return environment_reference(text, "default") is not None or self.profiles.named(text) is not None

    def _of_profiles(self, provider: str, store: ProfileStore) -> Iterator[_Keys]:
        for name in gateway_names(provider):
            where = f"the profile of {name} in {store.title}"
            usable, missing = [], None
            for profile in store.profiles:
                if profile.provider != name:
                    continue
                try:
                    usable.append(self._key(provider, profile.key, profile.place, where))
                except UnresolvedReference as error:
                    missing = missing or error
            if missing and not any(usable):
                raise missing
            yield _Keys(tuple(key for key in usable if key), store.title)
        yield _Keys(broken=store.broken)

    def _one(self, provider: str, value: SecretValue | None, path: KeyPath, where: str) -> _Keys:
        profile = self.profiles.named(value.get_secret_value().strip()) if isinstance(value, SecretStr) else None
        place = KeyPlace(self.origin(path), path)
        if profile is not None and path[: len(PROVIDERS)] == PROVIDERS:
            value, place = profile.key, profile.place
        key = self._key(provider, value, place, where) if value is not None else ""
        return _Keys((key,) if key else (), where)

    def _key(self, provider: str, value: SecretValue, place: KeyPlace, where: str) -> str:
        """Return a key without the space around it; empty if it is blank.

        OpenClaw takes the bare name of a provider's variable for its value, and `$NAME` for `${NAME}`.
        """
        if not isinstance(value, SecretStr):
            return self._value(value, place)
        text = value.get_secret_value().strip()
        reference = environment_reference(text, self.sources.default_alias("env"))
        if reference is not None:
            self._refuse_variable(reference, place)
        return self._filled(f"${{{text}}}" if text in PROVIDER_KEYS.get(provider, ()) else _braced(text), where)

    def _refuse_variable(self, reference: SecretReference, place: KeyPlace) -> None:
        denied = denied_variable(reference.id, self.sources)
        if denied:
            raise UnresolvedReference(place, denied)
        if not self.by_older_rules and not self.sources.environ.get(reference.id, "").strip():
            raise UnresolvedReference(place, f"the variable {reference.id} is not set")

    def _value(self, value: SecretReference | MalformedReference, place: KeyPlace) -> str:
        found = UnresolvedSecret(value.reason) if isinstance(value, MalformedReference) else self.lookup(value)
        if isinstance(found, UnresolvedSecret):
            raise UnresolvedReference(place, found.reason)
        return found.value

    def _filled(self, text: str | SecretStr | None, where: str) -> str:
        plain = text.get_secret_value() if isinstance(text, SecretStr) else text
        return substitute_variables(plain or "", where, self.sources.environ)


def _braced(text: str) -> str:
    """Return `${NAME}` for `$NAME`, and any other text unchanged."""
    name = text.strip()
    return f"${{{name[1:]}}}" if _DOLLAR_NAME.fullmatch(name) else text


def with_secrets(
    agents: Mapping[str, tuple[AccessSources, MemorySearchSettings]], sources: SecretSources
) -> dict[str, AccessSources]:
    """Return the sources of each agent with the values of the references that its access to providers needs.

    Blocks: each source of secrets is read once, for all agents together.
    """
    wanted: dict[SecretReference, None] = {}

    def record(reference: SecretReference) -> ResolvedSecret:
        wanted[reference] = None
        return ResolvedSecret("-")

    for own, search in agents.values():
        recording = replace(own, lookup=record)
        recording.usable(search)
        recording.fallback(search)
    values = resolve_secrets(wanted, sources)

    def find(reference: SecretReference) -> ResolvedSecret | UnresolvedSecret:
        return values.get(reference, UnresolvedSecret("it was not read"))

    return {agent_id: replace(own, lookup=find) for agent_id, (own, _) in agents.items()}
