"""The keys that the gateway keeps for an agent, in `agents/<id>/agent/auth-profiles.json` of the state directory."""

from pathlib import Path
from typing import Any

from .files import read_layer
from .report import Report
from .words import kind_of


def profiles_file(state_dir: Path, agent_id: str) -> Path:
    """Where the gateway keeps an agent's keys."""
    return state_dir / "agents" / agent_id / "agent" / "auth-profiles.json"


def profile_keys(file: Path, report: Report) -> dict[str, tuple[str, ...]]:
    """The API keys of each provider, in the file's order; nothing where there is no file.

    Profiles of other types (OAuth) are of no use for embeddings. A file that cannot be read is a warning: it is the
    gateway's.
    """
    found = Report()
    layer = read_layer(file, found, required=False)
    profiles = layer.get("profiles")
    if profiles is not None and not isinstance(profiles, dict):
        found.problem(file, "profiles", f"expected an object, found {kind_of(profiles)}")
    report.warnings.extend(f"{problem}; its keys are not used" for problem in found.problems)
    keys: dict[str, tuple[str, ...]] = {}
    for profile in profiles.values() if isinstance(profiles, dict) else ():
        provider, key = _api_key(profile)
        if key:
            keys[provider] = (*keys.get(provider, ()), key)
    return keys


def _api_key(profile: Any) -> tuple[str, str]:
    if not isinstance(profile, dict) or profile.get("type") != "api_key":
        return "", ""
    provider, key = profile.get("provider"), profile.get("key")
    if not isinstance(provider, str) or not isinstance(key, str):
        return "", ""
    return provider.strip().lower(), key.strip()
