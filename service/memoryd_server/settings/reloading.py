"""Settings that are read again while the daemon runs: what of them comes into force, and what waits for a restart."""

import re
from collections.abc import Mapping
from dataclasses import replace

from memoryd_server.errors import SettingsError

from .resolved import ResolvedSettings, effective
from .words import dotted

# Keys of the `memoryd` block with which the daemon was built: its listeners, and the model that agents share.
WAITING: tuple[str, ...] = ("listen", "token_file", "tls", "local", "metrics")

_ACCESS = re.compile(r"\]\.(?:access|fallbackAccess)\.")


def brought_into_force(old: ResolvedSettings, loaded: ResolvedSettings) -> ResolvedSettings:
    """`loaded`, with the old values of the keys that wait for a restart.

    Raises:
        SettingsError: the state directory is another one, so that nothing can be compared.
    """
    if loaded.state_dir != old.state_dir:
        raise SettingsError(
            f"the state directory would now be {loaded.state_dir}, and the daemon runs on {old.state_dir}; restart it"
        )
    kept = {name: getattr(old.service, name) for name in WAITING}
    kept["log"] = loaded.service.log.model_copy(update={"format": old.service.log.format})
    connections = old.service.limits.max_connections
    kept["limits"] = loaded.service.limits.model_copy(update={"max_connections": connections})
    return replace(loaded, service=loaded.service.model_copy(update=kept))


def changed_keys(old: ResolvedSettings, new: ResolvedSettings) -> tuple[str, ...]:
    """The keys whose values differ, in the order of `describe`. An agent that came or went is one key, itself."""
    before, after = _values(old), _values(new)
    came_or_went = sorted(old.agents.keys() ^ new.agents.keys())
    moved = tuple(dotted(("agents", "list", f"[{agent_id}]")) for agent_id in came_or_went)
    keys = [key for key in {**before, **after} if not key.startswith(moved)]
    changed = [key for key in keys if key not in before or key not in after or before[key] != after[key]]
    if any(".memorySearch.remote." in key for key in changed):
        # The access to each provider is made of it, and would be told once for each.
        changed = [key for key in changed if not _ACCESS.search(key)]
    return (*changed, *moved)


def _values(settings: ResolvedSettings) -> Mapping[str, object]:
    values = effective(settings.state_dir, settings.service, settings.agents, settings.remote_embeddings_blocked_by)
    return {dotted(path): value for path, value in values}
