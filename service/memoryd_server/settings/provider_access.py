"""The address and the API key of each embedding provider.

They come from `memory.search.remote`, `models.providers`, the agent's auth profiles and the environment. The last two
hold keys only. A key may be a reference to a secret that is stored elsewhere; if that has no value, the provider cannot
be used, and no other key is taken in its place.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

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
from memoryd_server.settings.memory_search import PROVIDERS as EMBEDDING_PROVIDERS
from memoryd_server.settings.memory_search import MemorySearchSettings, RemoteSettings
from memoryd_server.settings.provider_address import bedrock_address, is_own_address
from memoryd_server.settings.rules import KeyPath, SettingsBlock, dotted, keys, kind_of
from memoryd_server.settings.secret_input import SecretInput, SecretValue
from memoryd_server.settings.variables import Variables

PROVIDERS = ("models", "providers")
# OpenClaw's names of a provider, other than memoryd's; memoryd's takes precedence.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"gemini": ("google",), "bedrock": ("amazon-bedrock",)}


class ModelProviderSettings(SettingsBlock):
    """A provider of the gateway; `memory.search.remote` takes precedence.

    `<id>` is openai, openai-compatible, gemini (or google), voyage, mistral, ollama, lmstudio, deepinfra, bedrock (or
    amazon-bedrock), or any other name, which `memory.search.provider` can select. Other keys of the block are settings
    of the gateway and are ignored. `${NAME}` in a value is replaced by the environment variable.
    """

    base_url: str | None = None
    """The base URL of the provider's API, instead of the provider's default. URL; default unset."""
    api: str | None = None
    """The API of a provider that memoryd does not know by its id: `openai-completions` or `openai-responses` for
    embeddings like those of `openai-compatible`, or `ollama`. Others have no embeddings that memoryd implements. The
    ids above have a fixed API. Unset means `openai-completions`. Name; default unset."""
    api_key: Annotated[SecretValue | None, SecretInput()] = None
    """The API key, a [SecretRef](#secretrefs), or the id of an auth profile; a blank key counts as unset. Secret;
    default unset."""
    headers: dict[str, Annotated[SecretValue, SecretInput()]] | None = None
    """Headers of each request, each a text or a [SecretRef](#secretrefs); a header of the same name in
    `memory.search.remote` takes precedence. Secrets; default unset."""


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
        if "api" in known and not isinstance(known["api"], str):
            known["api"] = kind_of(known["api"])
        found[name] = checker.block(ModelProviderSettings, known, path)
    return ModelProviders(found, [name for name in found if checker.tree.at(*PROVIDERS, name, "auth") == "api-key"])


def with_known_provider(raw: Mapping[str, Any], own_ids: Iterable[str]) -> dict[str, Any]:
    """Return a `memory.search` block for its check, in which an id of `models.providers` does not count as unknown."""
    known, own = dict(raw), frozenset(own_ids)
    if isinstance(known.get("provider"), str) and known["provider"] in own:
        known["provider"] = _COMPATIBLE
    if isinstance(known.get("fallback"), str) and known["fallback"].partition("/")[0] in own:
        known["fallback"] = _COMPATIBLE
    return known


AUTOMATIC = ("openai-compatible", "openai", "gemini", "voyage", "mistral")
"""The providers that `auto` may use."""

KEYLESS = ("ollama", "lmstudio")
"""Providers on the user's own machine, which are used without a key."""

_COMPATIBLE = "openai-compatible"
_API: Mapping[str, str] = {
    "": _COMPATIBLE,
    "openai-completions": _COMPATIBLE,
    "openai-responses": _COMPATIBLE,
    "ollama": "ollama",
}
_BEDROCK = "bedrock"
_KEY_HEADERS = frozenset({"authorization", "x-goog-api-key", "api-key"})

_NO_REMOTE = RemoteSettings()
_NO_BLOCK = ModelProviderSettings()
_LOCAL = "local"
_MANY_KEYS = "gemini"
_AUTO = 'it is used only if the settings name the provider, and not by "auto"'
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
    cannot be read. `api` is the provider whose wire format a provider with an id of its own uses.
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
    api: str = ""

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

    `variables` are those of the process and of the files. `remote_path` is the path of `remote`, and `origin` returns
    the file of a key. `by_older_rules` is whether a text in
    `models.providers.<id>.apiKey` precedes profiles and variables, as in earlier versions of OpenClaw. `lookup` returns
    the values of references. `is_automatic` is whether the keys in OpenClaw's databases are not used.
    """

    providers: ModelProviders
    profiles: Profiles
    sources: SecretSources
    variables: Variables
    remote_path: KeyPath
    origin: Callable[[KeyPath], str]
    lookup: SecretLookup
    by_older_rules: bool = True
    is_automatic: bool = False

    def usable(self, search: MemorySearchSettings) -> dict[str, ProviderAccess]:
        """Return the access to each provider that the agent may use.

        `auto` uses only keys that version 0.1.0 found: texts in the settings, `auth-profiles.json` and variables of the
        process. Otherwise an upgrade would begin to send notes without a decision of the user.
        """
        if search.provider != "auto":
            return {search.provider: self.access(search.provider, search.remote)}
        return {name: self._automatic(name, search.remote) for name in AUTOMATIC}

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

    def server(
        self,
        base_url: str | None,
        api_key: SecretValue | None,
        headers: Mapping[str, SecretValue] | None,
        path: KeyPath,
    ) -> ProviderAccess:
        """Return the access to a server with the address, key and headers of the block at `path`, and no others."""
        place = KeyPlace(self.origin((*path, "apiKey")), (*path, "apiKey"))
        try:
            address = self._filled(base_url, f"{dotted(path)}.baseUrl")
            sent = self._secret_headers(headers, path)
            key = "" if api_key is None else self._secret(api_key, place, dotted(place.key))
        except UnsetVariable as unset:
            return ProviderAccess(problem=str(unset))
        except UnresolvedReference as error:
            return ProviderAccess(missing=error.secret)
        return ProviderAccess(address, (SecretStr(key),) if key else (), sent, key_from=place.origin if key else "")

    def _automatic(self, provider: str, remote: RemoteSettings | None) -> ProviderAccess:
        own = replace(
            self, variables=self.variables.of_process(), lookup=lambda _: UnresolvedSecret(_AUTO), is_automatic=True
        )
        found = own.access(provider, remote)
        unused = [
            self.variables.origins[name] for name in PROVIDER_KEYS.get(provider, ()) if name in self.variables.origins
        ]
        is_settled = found.keys or found.no_key or found.problem or found.missing
        if unused and not is_settled and _KEY_HEADERS.isdisjoint(found.headers):
            return replace(found, no_key=f'the key in {unused[0]} is used only if the provider is "{provider}"')
        return found

    def _access(self, provider: str, remote: RemoteSettings) -> ProviderAccess:
        blocks = self.providers.blocks
        name = next((name for name in gateway_names(provider) if name in blocks), provider)
        block, path = blocks.get(name, _NO_BLOCK), (*PROVIDERS, name)
        api = ""
        if provider not in EMBEDDING_PROVIDERS and name in blocks:
            api = _API.get((block.api or "").strip(), "")
            if not api:
                message = f"{dotted(path)}.api is {block.api!r}, which has no embeddings that memoryd implements"
                return ProviderAccess(problem=message)
        try:
            remote_url = self._filled(remote.base_url, "remote.baseUrl")
            own_url = self._filled(block.base_url, f"{dotted(path)}.baseUrl")
            if remote_url and not is_own_address(provider, remote_url, own_url):
                return replace(self._elsewhere(provider, remote, block, path, remote_url), api=api)
            base_url = remote_url or own_url or (bedrock_address(self.variables.values) if provider == _BEDROCK else "")
            headers = {**self._secret_headers(block.headers, path), **self._remote_headers(remote)}
        except (UnsetVariable, ValueError) as wrong:
            return ProviderAccess(problem=str(wrong))
        try:
            found = self.first_keys(provider, remote, block, path)
        except UnsetVariable as unset:
            return ProviderAccess(base_url, headers=headers, no_key=str(unset), api=api)
        keys = tuple(SecretStr(key) for key in found.keys)
        return ProviderAccess(base_url, keys, headers, key_from=found.place, passed_over=found.broken, api=api)

    def _elsewhere(
        self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: KeyPath, base_url: str
    ) -> ProviderAccess:
        """Return the access to a `remote.baseUrl` that is not the provider's own: only with what `remote` itself has.

        If the provider has a key of its own, which is not sent there, a provider that needs a key is not used.
        """
        headers = self._remote_headers(remote)
        try:
            found = self._one(provider, remote.api_key, (*self.remote_path, "apiKey"), "remote.apiKey")
        except UnsetVariable as unset:
            return ProviderAccess(problem=str(unset))
        if found.keys or provider in KEYLESS or not _KEY_HEADERS.isdisjoint(headers):
            place = found.place if found.keys else ""
            return ProviderAccess(base_url, tuple(map(SecretStr, found.keys)), headers, key_from=place)
        own = self._own_key(provider, block, path)
        message = (
            f"remote.baseUrl is not the address of {provider}, so its own key ({own}) is not sent there: set "
            "remote.apiKey, or an Authorization header in remote.headers"
        )
        return ProviderAccess(base_url, headers=headers, problem=message if own else "")

    def _own_key(self, provider: str, block: ModelProviderSettings, path: KeyPath) -> str:
        """Return where the provider has a key of its own, without reading the secret; empty if it has none."""
        unread = replace(self, lookup=lambda _: ResolvedSecret("-"))
        try:
            return unread.first_keys(provider, _NO_REMOTE, block, path).place
        except (UnsetVariable, UnresolvedReference):
            return "its block or profile"

    def _remote_headers(self, remote: RemoteSettings) -> dict[str, SecretStr]:
        """Return the headers with their names in lower case."""
        return {
            name.lower(): SecretStr(self._filled(value, f"remote.headers.{name}"))
            for name, value in (remote.headers or {}).items()
        }

    def _secret_headers(self, headers: Mapping[str, SecretValue] | None, path: KeyPath) -> dict[str, SecretStr]:
        """Return the headers of the block at `path` with their names in lower case."""
        found = {}
        for name, value in (headers or {}).items():
            key = (*path, "headers", name)
            found[name.lower()] = SecretStr(self._secret(value, KeyPlace(self.origin(key), key), dotted(key)))
        return found

    def first_keys(self, provider: str, remote: RemoteSettings, block: ModelProviderSettings, path: KeyPath) -> _Keys:
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
        for store in self.profiles.in_files() if self.is_automatic else self.profiles.stores:
            yield from self._of_profiles(provider, store)
        for variable in PROVIDER_KEYS.get(provider, ()):
            value = self.variables.values.get(variable, "").strip()
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
            if self.is_automatic:
                raise UnresolvedReference(place, _AUTO)
            value, place = profile.key, profile.place
        key = self._key(provider, value, place, where) if value is not None else ""
        return _Keys((key,) if key else (), where)

    def _key(self, provider: str, value: SecretValue, place: KeyPlace, where: str) -> str:
        """Return a key without the space around it; empty if it is blank.

        OpenClaw takes the bare name of a provider's variable for its value, and `$NAME` for `${NAME}`.
        """
        name = value.get_secret_value().strip() if isinstance(value, SecretStr) else ""
        is_name = name in PROVIDER_KEYS.get(provider, ())
        return self._filled(f"${{{name}}}", where) if is_name else self._secret(value, place, where)

    def _secret(self, value: SecretValue, place: KeyPlace, where: str) -> str:
        """Return a key or a header. `$NAME` and `${NAME}` are references to variables."""
        if not isinstance(value, SecretStr):
            return self._value(value, place)
        text = value.get_secret_value()
        reference = environment_reference(text, self.sources.default_alias("env"))
        if reference is not None:
            self._refuse_variable(reference, place)
        return self._filled(_braced(text), where)

    def _refuse_variable(self, reference: SecretReference, place: KeyPlace) -> None:
        denied = denied_variable(reference.id, self.sources)
        if denied:
            raise UnresolvedReference(place, denied)
        if not self.by_older_rules and not self.variables.values.get(reference.id, "").strip():
            raise UnresolvedReference(place, f"the variable {reference.id} is not set")

    def _value(self, value: SecretReference | MalformedReference, place: KeyPlace) -> str:
        found = UnresolvedSecret(value.reason) if isinstance(value, MalformedReference) else self.lookup(value)
        if isinstance(found, UnresolvedSecret):
            raise UnresolvedReference(place, found.reason)
        of_variable = value.id if isinstance(value, SecretReference) and value.source == "env" else ""
        if of_variable and not self.variables.values.get(of_variable, "").strip():
            raise UnresolvedReference(place, f"the variable {of_variable} is not set in the environment of memoryd")
        return found.value

    def _filled(self, text: str | SecretStr | None, where: str) -> str:
        plain = text.get_secret_value() if isinstance(text, SecretStr) else text
        return substitute_variables(plain or "", where, self.variables.values, lower_case=self.by_older_rules)


def _braced(text: str) -> str:
    """Return `${NAME}` for `$NAME`, and any other text unchanged."""
    name = text.strip()
    return f"${{{name[1:]}}}" if _DOLLAR_NAME.fullmatch(name) else text


def with_secrets(
    agents: Mapping[str, tuple[AccessSources, Callable[[AccessSources], object]]], sources: SecretSources
) -> dict[str, AccessSources]:
    """Return the sources of each agent with the values of the references that its access to providers needs.

    The function of an agent determines its access to each provider that it may use.
    Blocks: each source of secrets is read once, for all agents together.
    """
    wanted: dict[SecretReference, None] = {}

    def record(reference: SecretReference) -> ResolvedSecret:
        wanted[reference] = None
        return ResolvedSecret("-")

    for own, use in agents.values():
        use(replace(own, lookup=record))
    values = resolve_secrets(wanted, sources)

    def find(reference: SecretReference) -> ResolvedSecret | UnresolvedSecret:
        return values.get(reference, UnresolvedSecret("it was not read"))

    return {agent_id: replace(own, lookup=find) for agent_id, (own, _) in agents.items()}
