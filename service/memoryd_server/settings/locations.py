"""Which folders and files hold the settings: OpenClaw's rules, below memoryd's own flags and variables.

OpenClaw's home is `OPENCLAW_HOME`, else the user's home. The state directory is below it, unless a variable names
another one. The settings file is in the state directory, unless `OPENCLAW_CONFIG_PATH` names another one.
"""

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memoryd_server.settings.environment import OPENCLAW_STATE_DIR, Overrides, SourcedValue, openclaw_text
from memoryd_server.settings.layers import DEFAULT, OPENCLAW_FILE, OWN_FILE, Findings, absolute, exists
from memoryd_server.settings.variables import Variables

CONFIG_PATH = "OPENCLAW_CONFIG_PATH"
HOME = "OPENCLAW_HOME"
INCLUDE_ROOTS = "OPENCLAW_INCLUDE_ROOTS"
PROFILE = "OPENCLAW_PROFILE"
WORKSPACE_DIR = "OPENCLAW_WORKSPACE_DIR"

_STATE_FOLDER = ".openclaw"
_OLDER_FILE = "clawdbot.json"
_OLDER_FOLDER = ".clawdbot"
# OpenClaw no longer looks for it, but memoryd 0.1.0 did.
_OLDEST_FOLDER = ".moltbot"
_DOTENV = ".env"
_GATEWAY_DOTENV = Path(".config", "openclaw", "gateway.env")
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII | re.IGNORECASE)
_UNREAD = "memoryd reads this variable only from the environment of its process"


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the settings are. All paths are absolute.

    `user_home` is the home of the user, and `home` is OpenClaw's: `~` in OpenClaw's file and variables. `openclaw_file`
    and `own_file` may not exist, except if `own_is_named`; `config_path` is whether a variable names `openclaw_file`.
    `dotenv_files` are the files of variables, in the order of precedence.
    """

    user_home: Path
    home: Path
    state_dir: Path
    state_origin: str
    openclaw_file: Path
    config_path: bool
    own_file: Path
    own_is_named: bool

    @property
    def is_default_state(self) -> bool:
        """Return whether neither a flag nor a variable names the state directory."""
        return self.state_origin == DEFAULT

    @property
    def dotenv_files(self) -> tuple[Path, ...]:
        """Return the `.env` files: of the state directory, of the settings file, and of the gateway's service."""
        files = [self.state_dir / _DOTENV, *([self.openclaw_file.parent / _DOTENV] if self.config_path else ())]
        if self.is_default_state or self.state_dir == self.home / _STATE_FOLDER:
            files.append(self.home / _GATEWAY_DOTENV)
        return tuple(dict.fromkeys(files))


def locate(overrides: Overrides, home: Path) -> Locations:
    """Return where the settings are for a user with this home directory."""
    environ = overrides.environ
    user_home = _account_home(home) if "HOME" in environ and not openclaw_text(environ, "HOME") else home
    named_home = openclaw_text(environ, HOME)
    openclaw_home = absolute(named_home, None, user_home) if named_home else user_home
    state = overrides.state_dir
    base = openclaw_home if state.origin == f"env {OPENCLAW_STATE_DIR}" else user_home
    state_dir = absolute(state.text, None, base) if state.text else _default_state_dir(openclaw_home)
    config = openclaw_text(environ, CONFIG_PATH)
    own = overrides.config.text
    return Locations(
        user_home,
        openclaw_home,
        state_dir,
        state.origin,
        absolute(config, None, openclaw_home) if config else _settings_file(state_dir, openclaw_home, state),
        bool(config),
        absolute(own, None, user_home) if own else state_dir / OWN_FILE,
        bool(own),
    )


def _account_home(otherwise: Path) -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        # A container may run with an id that has no account.
        return otherwise


def _default_state_dir(home: Path) -> Path:
    folders = [home / name for name in (_STATE_FOLDER, _OLDER_FOLDER, _OLDEST_FOLDER)]
    return next((folder for folder in folders if exists(folder)), folders[0])


def _settings_file(state_dir: Path, home: Path, state: SourcedValue) -> Path:
    folders = [state_dir] if state.text else [state_dir, home / _STATE_FOLDER, home / _OLDER_FOLDER]
    files = [folder / name for folder in folders for name in (OPENCLAW_FILE, _OLDER_FILE)]
    return next((file for file in files if os.path.lexists(file)), files[0])


def include_roots(environ: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Return the folders outside that of the settings file from which files may be included."""
    named = openclaw_text(environ, INCLUDE_ROOTS).split(os.pathsep)
    return tuple(dict.fromkeys(absolute(text.strip(), None, home) for text in named if text.strip()))


def default_workspace(locations: Locations, variables: Variables, report: Findings) -> SourcedValue:
    """Return the default workspace, with its origin.

    A relative path in OPENCLAW_WORKSPACE_DIR disables remote embeddings, because OpenClaw resolves it from its own
    working directory, which may be another one.
    """
    named, where = openclaw_text(variables.values, WORKSPACE_DIR), variables.origin(WORKSPACE_DIR)
    if named:
        folder = absolute(named, None, locations.home)
        if not named.startswith("/"):
            message = f"not an absolute path: OpenClaw resolves it from its own working directory; {folder} is used"
            report.block_remote(where, (), message)
        return SourcedValue(str(folder), where)
    home, state_dir = locations.home, locations.state_dir
    if not locations.is_default_state or state_dir == home / _OLDEST_FOLDER:
        return SourcedValue(str(state_dir / "workspace"), DEFAULT)
    profile, where = openclaw_text(variables.values, PROFILE), variables.origin(PROFILE)
    if profile.lower() in {"", "default"}:
        return SourcedValue(str(home / _STATE_FOLDER / "workspace"), DEFAULT)
    if not _PROFILE_NAME.fullmatch(profile):
        report.block_remote(where, (), "not a name of a profile: 1 to 64 letters, digits, - and _")
        return SourcedValue(str(home / _STATE_FOLDER / "workspace"), DEFAULT)
    return SourcedValue(str(home / f"{_STATE_FOLDER}-{profile}" / "workspace"), where)


def check_moved(locations: Locations, variables: Variables, report: Findings) -> None:
    """Block remote embeddings for a variable in a file that would name other folders or another settings file."""
    used = {HOME: locations.home, OPENCLAW_STATE_DIR: locations.state_dir, CONFIG_PATH: locations.openclaw_file}
    for name, path in used.items():
        text = openclaw_text(variables.values, name)
        if name in variables.origins and text and absolute(text, None, locations.home) != path:
            report.block_remote(variables.origin(name), (), f"{_UNREAD}; {path} is used")
