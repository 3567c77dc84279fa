"""Environment variables and flags. This is the only module that reads or changes `os.environ`.

A flag takes precedence over a variable, and both over the files. `child_environment` selects the variables that memoryd
passes on to the commands that it runs.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_origin

from memoryd_server.settings.layers import DEFAULT, Findings
from memoryd_server.settings.rules import KeyPath, SettingsBlock, did_you_mean, keys, nested
from memoryd_server.settings.service import ServiceSettings

PREFIX = "MEMORYD_"
CONFIG = "MEMORYD_CONFIG"
STATE_DIR = "MEMORYD_STATE_DIR"
WORKSPACE = "MEMORYD_WORKSPACE"
ADDRESS = "MEMORYD_ADDRESS"
TOKEN_FILE = "MEMORYD_TOKEN_FILE"  # noqa: S105 -- a name
CLIENT_TLS = ("MEMORYD_TLS", *(f"MEMORYD_TLS_{part}" for part in ("CA", "CERT", "KEY", "SERVER_NAME")))
OPENCLAW_STATE_DIR = "OPENCLAW_STATE_DIR"
RUNTIME_DIR = "XDG_RUNTIME_DIR"

PROVIDER_KEYS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEYS", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "voyage": ("VOYAGE_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "lmstudio": ("LM_API_TOKEN",),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
}
"""The variables with a provider's API key, in the order of precedence."""

# The first would let a variable start programs, the second is an object.
_FILE_ONLY: frozenset[KeyPath] = frozenset({("secrets", "exec"), ("rerank", "headers")})
_SHORT: Mapping[str, KeyPath] = {"MEMORYD_LOG_LEVEL": ("log", "level"), "MEMORYD_LOG_FORMAT": ("log", "format")}


def process_environment() -> Mapping[str, str]:
    """Return a copy of the variables of this process."""
    return dict(os.environ)


_EXPERIMENTS = "GRPC_EXPERIMENTS"
_WITHOUT_LISTENER_THREADS = "-event_engine_listener"

_NEWEST_GRPC = (1, 85)
"""The newest gRPC that is known to have this experiment. gRPC reports an unknown one on standard error."""


def use_one_grpc_thread() -> None:
    """Let gRPC read and write a server's connections in the thread that waits for its events.

    By default, gRPC hands each event of a connection to a pool of four threads, which hand the result to that thread: a
    call takes about 0.1 ms more processor time and as much longer. gRPC reads its experiments when it is imported, so
    this has to be called before. If the environment sets the variable, it is left as it is.
    """
    release = re.match(r"(\d+)\.(\d+)", version("grpcio"))
    if release is not None and (int(release[1]), int(release[2])) <= _NEWEST_GRPC:
        os.environ.setdefault(_EXPERIMENTS, _WITHOUT_LISTENER_THREADS)


def variables() -> dict[str, KeyPath]:
    """Return the variables that set a key of the `memoryd` block, with the path of the key in the block."""
    found = {
        PREFIX + "__".join(part.upper() for part in names): path
        for names, path, _ in _leaves(ServiceSettings)
        if path not in _FILE_ONLY
    }
    return {**found, **_SHORT}


def variable_layers(environ: Mapping[str, str], report: Findings) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield a layer with its origin for each variable that is not blank. An unknown variable is a warning."""
    known = variables()
    arrays = {path: is_array for _, path, is_array in _leaves(ServiceSettings)}
    for name in sorted(n for n in environ if n.startswith(PREFIX) and environ[n].strip()):
        if name in known:
            path = known[name]
            yield service_layer(path, _value(environ[name].strip(), is_array=arrays[path])), f"env {name}"
    for name in unknown_variables(environ):
        report.warn(f"env {name}", (), f"unknown variable{did_you_mean(name, known)}")


def runtime_folder(environ: Mapping[str, str]) -> Path | None:
    """Return memoryd's folder below XDG_RUNTIME_DIR; None if that variable is not set to an absolute path."""
    runtime = environ.get(RUNTIME_DIR, "").strip()
    return Path(runtime) / "memoryd" if runtime.startswith("/") else None


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that start with `MEMORYD_`, are not blank, and are not known."""
    known = {*variables(), CONFIG, STATE_DIR, WORKSPACE, ADDRESS, *CLIENT_TLS}
    return sorted(n for n in environ if n.startswith(PREFIX) and environ[n].strip() and n not in known)


def service_layer(path: KeyPath, value: object) -> dict[str, Any]:
    """Return a layer that sets one key of the `memoryd` block."""
    layer: Any = value
    for key in reversed(("memoryd", *path)):
        layer = {key: layer}
    return dict(layer)


def _leaves(
    block: type[SettingsBlock], names: KeyPath = (), path: KeyPath = ()
) -> Iterator[tuple[KeyPath, KeyPath, bool]]:
    for name, key, field in keys(block):
        inner = nested(field.annotation)
        if inner:
            yield from _leaves(inner, (*names, name), (*path, key))
        else:
            yield (*names, name), (*path, key), get_origin(field.annotation) is tuple


def _value(text: str, *, is_array: bool) -> object:
    if is_array:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        number = json.loads(text)
    except ValueError:
        return text
    return number if isinstance(number, int | float) else text


_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
        *("XDG_CACHE_HOME", "XDG_DATA_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HF_ENDPOINT", "CUDA_VISIBLE_DEVICES", "CUDA_PATH", "VK_ICD_FILENAMES"),
    }
)
_PREFIXES = ("QMD_",)
# These would override folders that memoryd chooses.
_OURS = frozenset({"QMD_CONFIG_DIR"})


_UNSET = frozenset({"", "undefined", "null"})


def openclaw_text(environ: Mapping[str, str], name: str) -> str:
    """Return a variable of OpenClaw, trimmed; empty if it is unset, blank, `undefined` or `null`."""
    text = environ.get(name, "").strip()
    return "" if text in _UNSET else text


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are passed on to commands.

    Keys, tokens, `CI`, and variables that select another configuration are never among them.
    """
    return {
        name: value
        for name, value in environ.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in _OURS
    }


_SERVICE_FLAGS: Mapping[str, KeyPath] = {
    "listen": ("listen",),
    "token_file": ("tokenFile",),
    "log_level": ("log", "level"),
}
_OTHER_FLAGS = ("workspace", "state_dir", "config")


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value and its origin; both are empty or the default if it was not given."""

    text: str
    origin: str


class Overrides:
    """The flags and variables. A flag that is None and a blank variable count as not given."""

    def __init__(self, environ: Mapping[str, str], flags: Mapping[str, object], report: Findings) -> None:
        self.environ = environ
        self._flags = {name: value for name, value in flags.items() if value is not None}
        self._report = report
        for name in self._flags.keys() - {*_SERVICE_FLAGS, *_OTHER_FLAGS}:
            report.problem(_flag(name), (), f"no such flag{did_you_mean(name, [*_SERVICE_FLAGS, *_OTHER_FLAGS])}")
        self.config = self._first("config", CONFIG)
        self.state_dir = self._first("state_dir", STATE_DIR, OPENCLAW_STATE_DIR)
        self.workspace = self._first("workspace", WORKSPACE)

    def layers(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield a layer with its origin for each variable, then each flag, that sets a key of the `memoryd` block."""
        yield from variable_layers(self.environ, self._report)
        for name, path in _SERVICE_FLAGS.items():
            value = self._flags.get(name)
            if value:
                given = (
                    value if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else str(value)
                )
                as_array = name == "listen" and isinstance(given, str)
                yield service_layer(path, [given] if as_array else given), _flag(name)

    def _first(self, flag: str, *variables: str) -> SourcedValue:
        if flag in self._flags and str(self._flags[flag]).strip():
            return SourcedValue(str(self._flags[flag]).strip(), _flag(flag))
        for name in variables:
            own = name.startswith(PREFIX)
            text = self.environ.get(name, "").strip() if own else openclaw_text(self.environ, name)
            if text:
                return SourcedValue(text, f"env {name}")
        return SourcedValue("", DEFAULT)


def _flag(name: str) -> str:
    return f"flag --{name.replace('_', '-')}"
