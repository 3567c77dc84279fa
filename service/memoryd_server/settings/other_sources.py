"""Variables and files that hold settings of OpenClaw, or seem to be memoryd's, and that memoryd does not read.

Where one of them is set, what it says about providers is unknown, so each of them disables remote embeddings.
"""

from collections.abc import Mapping
from pathlib import Path

from . import environment as env
from .files import REFERENCE_FILE, exists
from .misspelt import CLOSE
from .overrides import Overrides
from .paths import absolute
from .report import Report
from .resolved import AgentSettings
from .tree import DEFAULT
from .words import nearest

_UNREAD = "memoryd does not read it"
_CONFIG_PATH, _HOME = "OPENCLAW_CONFIG_PATH", "OPENCLAW_HOME"
_WORKSPACE, _PROFILE = "OPENCLAW_WORKSPACE_DIR", "OPENCLAW_PROFILE"
# Of older versions; OpenClaw reads them where there is no newer one.
_OLDER_FOLDER = ".clawdbot"
_OLDER_FILES = ("clawdbot.json", "moltbot.json")
_ABOUT_PROVIDERS = frozenset(
    {"provider", "providers", "embedding", "embeddings", "search", "remote", "fallback", "offline"}
)
_BLANK = frozenset({"", "undefined", "null"})


def check_files(overrides: Overrides, state_dir: Path, home: Path, report: Report) -> None:
    """Block remote embeddings where OpenClaw's settings are in a file that memoryd does not read."""
    file = state_dir / REFERENCE_FILE
    read = {file, absolute(overrides.config.text, None, home) if overrides.config.text else file}
    config = _value(overrides.environ, _CONFIG_PATH)
    if config and absolute(config, None, home) not in read:
        report.block_remote(f"env {_CONFIG_PATH}", (), f"{_UNREAD}; the settings were read from {file}")
    other_home = _value(overrides.environ, _HOME)
    if other_home and overrides.state_dir.origin == DEFAULT and absolute(other_home, None, home) != home:
        report.block_remote(f"env {_HOME}", (), f"{_UNREAD}; the settings were read from {file}")
    if exists(file):
        return
    others = [state_dir / name for name in _OLDER_FILES]
    if overrides.state_dir.origin == DEFAULT and not exists(state_dir):
        others += [home / _OLDER_FOLDER / name for name in (REFERENCE_FILE, *_OLDER_FILES)]
    for other in others:
        if exists(other):
            report.block_remote(other, (), _UNREAD)


def check_workspace(default: AgentSettings, overrides: Overrides, state_dir: Path, home: Path, report: Report) -> None:
    """Block remote embeddings where a variable moves OpenClaw's default workspace, and memoryd uses its own default.

    The folder that memoryd indexes is another one than OpenClaw's, and may hold what is not to be sent.
    """
    if default.workspace != state_dir / "workspace":
        return
    folder = _value(overrides.environ, _WORKSPACE)
    if folder and absolute(folder, None, home) != default.workspace:
        report.block_remote(f"env {_WORKSPACE}", (), f"{_UNREAD}; the workspace is {default.workspace}")
    profile = _value(overrides.environ, _PROFILE)
    if profile not in {"", "default"} and not folder and overrides.state_dir.origin == DEFAULT:
        report.block_remote(f"env {_PROFILE}", (), f"{_UNREAD}; the workspace is {default.workspace}")


def check_variables(environ: Mapping[str, str], report: Report) -> None:
    """Block remote embeddings for variables of memoryd that do not exist and seem to be about providers or files."""
    for name in env.unknown_variables(environ):
        words = set(name.lower().split("_"))
        files = (env.CONFIG, env.STATE_DIR, env.WORKSPACE)
        if words & _ABOUT_PROVIDERS or nearest(name, files, CLOSE):
            report.block_remote(f"env {name}", (), _UNREAD)


def _value(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "").strip()
    return "" if text in _BLANK else text
