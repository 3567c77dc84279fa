"""The API keys in OpenClaw's auth profiles: in its databases, and in the `auth-profiles.json` of earlier versions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from typing import Any

from pydantic import SecretStr

from memoryd_server.credentials import (
    AGENT_PROFILES,
    SHARED_PROFILES,
    MalformedReference,
    OpenClawDatabaseError,
    OpenClawValue,
    agent_database,
    environment_reference,
    parse_reference,
    read_openclaw_value,
    shared_database,
)
from memoryd_server.foreign_text import parse_json
from memoryd_server.settings.layers import Findings, KeyPlace, read_layer
from memoryd_server.settings.rules import kind_of
from memoryd_server.settings.secret_input import SecretValue

_KIND = "api_key"
_FILE = "auth-profiles.json"
_MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Profile:
    """An API key of a provider, with its id and its place."""

    name: str
    provider: str
    key: SecretValue
    place: KeyPlace


@dataclass(frozen=True, slots=True)
class ProfileStore:
    """The profiles of one file or row, in its order. `broken` is its place if it cannot be read."""

    title: str
    profiles: tuple[Profile, ...] = ()
    broken: KeyPlace | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles of an agent: the stores in the order of precedence. A profile hides later ones of the same id."""

    stores: tuple[ProfileStore, ...] = ()

    def in_files(self) -> tuple[ProfileStore, ...]:
        """Return the stores that are files, not rows of a database."""
        return tuple(store for store in self.stores if store.title == _FILE)

    def named(self, name: str) -> Profile | None:
        """Return the profile of an id."""
        found = (profile for store in self.stores for profile in store.profiles if profile.name == name)
        return next(found, None)


class ProfileReader:
    """Reads the profiles of agents; those that agents share are read once.

    `defaults` has the default alias of each kind of source. A store that cannot be read is a warning rather than a
    problem, because it is OpenClaw's.
    """

    def __init__(self, state_dir: Path, defaults: Mapping[str, str], report: Findings) -> None:
        self._state_dir = state_dir
        self._defaults = defaults
        self._report = report

    def of_agent(self, agent_id: str, folder: Path | None = None) -> Profiles:
        """Return an agent's own profiles, the shared ones, and those of the file. `folder` is its `agentDir`."""
        database = agent_database(self._state_dir, agent_id)
        own = self._row(database, AGENT_PROFILES)
        file = self._file((folder or database.parent) / _FILE)
        seen: set[str] = set()
        stores = []
        for store in (own, self._shared, file):
            kept = tuple(profile for profile in store.profiles if profile.name not in seen)
            seen.update(profile.name for profile in kept)
            stores.append(ProfileStore(store.title, kept, store.broken))
        return Profiles(tuple(stores))

    @cached_property
    def _shared(self) -> ProfileStore:
        return self._row(shared_database(self._state_dir), SHARED_PROFILES)

    def _row(self, file: Path, value: OpenClawValue) -> ProfileStore:
        title = f"auth profiles in {file.name}"
        try:
            text = read_openclaw_value(file, value)
            content = {} if text is None else parse_json(text)
        except OpenClawDatabaseError as error:
            return self._broken(title, file, str(error))
        except ValueError:
            return self._broken(title, file, "the auth profiles are not JSON")
        found = Findings()
        document = content if isinstance(content, dict) else {"profiles": content}
        profiles = _profiles(document, file, self._defaults, found)
        if found.problems:
            return self._broken(title, file, "the auth profiles are not an object")
        return ProfileStore(title, profiles)

    def _file(self, file: Path) -> ProfileStore:
        found = Findings()
        if _is_unusable(file):
            found.problem(file, (), f"not a regular file of at most {_MAX_BYTES} bytes")
        layer = {} if found.problems else read_layer(file, found, required=False)
        profiles = _profiles(layer, file, self._defaults, found)
        self._report.warnings.extend(f"{problem}; its keys are not used" for problem in found.problems)
        return ProfileStore(_FILE, profiles, KeyPlace(str(file), ()) if found.problems else None)

    def _broken(self, title: str, file: Path, reason: str) -> ProfileStore:
        self._report.warn(file, (), f"{reason}; its keys are not used")
        return ProfileStore(title, broken=KeyPlace(str(file), ()))


def _is_unusable(file: Path) -> bool:
    try:
        status = file.stat()
    except (OSError, ValueError):
        # `read_layer` reports the reason.
        return False
    return not S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES


def _profiles(
    content: Mapping[str, Any], file: Path, defaults: Mapping[str, str], found: Findings
) -> tuple[Profile, ...]:
    listed = content.get("profiles")
    if listed is not None and not isinstance(listed, dict):
        found.problem(file, ("profiles",), f"expected an object, found {kind_of(listed)}")
        return ()
    return tuple(_keys(listed or {}, file, defaults))


def _keys(listed: Mapping[str, Any], file: Path, defaults: Mapping[str, str]) -> Iterator[Profile]:
    """Yield the profiles with API keys.

    Profiles of other types, such as OAuth, are ignored, because embeddings need an API key; so are those that OpenClaw
    has not activated yet, which have the key `setup`.
    """
    for name, raw in listed.items():
        if not isinstance(raw, dict) or raw.get("type") != _KIND or raw.get("setup") is not None:
            continue
        provider, field = raw.get("provider"), "key" if raw.get("keyRef") is None else "keyRef"
        key = _key(raw[field], field, defaults) if field in raw else None
        if isinstance(provider, str) and key is not None:
            yield Profile(name, provider.strip().lower(), key, KeyPlace(str(file), ("profiles", name, field)))


def _key(value: object, field: str, defaults: Mapping[str, str]) -> SecretValue | None:
    """Return the key of a profile; None if the profile has none."""
    if isinstance(value, dict):
        return parse_reference(value, defaults)
    if field == "keyRef" and not (isinstance(value, str) and environment_reference(value, "default")):
        return MalformedReference("it is neither an object nor the name of a variable")
    return SecretStr(value.strip()) if isinstance(value, str) and value.strip() else None
