"""The keys that the gateway keeps for an agent, in `agents/<id>/agent/auth-profiles.json` of the state directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .files import read_layer
from .report import Report, UnreadKey
from .words import kind_of

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


def read_profiles(file: Path, report: Report) -> Profiles:
    """Return the profiles of `file`; none where there is no file.

    Profiles of other types (OAuth) are of no use for embeddings. A file that cannot be read is a warning: it is the
    gateway's.
    """
    found = Report()
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
