"""Where the daemon of a state directory listens, noted in a file there for the commands that look for it."""

import json
from collections.abc import Sequence
from pathlib import Path


def _file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.json"


def note_endpoint(state_dir: Path, addresses: Sequence[str]) -> None:
    """Notes the addresses of a daemon that has started."""
    temporary = _file(state_dir).with_suffix(".tmp")
    temporary.write_text(json.dumps({"addresses": list(addresses)}) + "\n", "utf-8")
    temporary.chmod(0o600)
    temporary.replace(_file(state_dir))


def forget_endpoint(state_dir: Path) -> None:
    """Removes the note of a daemon that has stopped."""
    _file(state_dir).unlink(missing_ok=True)


def endpoint_of(state_dir: Path) -> list[str]:
    """The noted addresses; none when no daemon has noted any. A note may outlive its daemon."""
    try:
        noted = json.loads(_file(state_dir).read_text("utf-8"))
        return [str(address) for address in noted["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
