"""`resolve_secrets`: the values of references, from the sources that `secrets.providers` configures.

Each source is read once per call, whatever the number of references to it. A setting of a source that is not understood
makes its references unresolvable, because it may restrict which secrets are used.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memoryd_server.credentials.command import SecretCommand, SecretCommandError, check_command, run_command
from memoryd_server.credentials.openclaw_database import (
    STORED_SECRET,
    OpenClawDatabaseError,
    read_openclaw_value,
    shared_database,
)
from memoryd_server.credentials.private_file import SecretFileError, read_private_file
from memoryd_server.credentials.references import SINGLE_VALUE, SecretReference, Source, at_pointer
from memoryd_server.foreign_text import parse_json

MAX_SECRET_CHARS = 65_536
_MAX_BYTES = 2**20
_MAX_MS = 120_000
_DEFAULT_MS = 5_000
_MAX_REFERENCES = 512
_BUILT_IN = frozenset({"env", "store"})
_SHOWN_CODES = frozenset({"NOT_FOUND", "AMBIGUOUS_DUPLICATE_KEY"})
_KEYS: Mapping[str, frozenset[str]] = {
    "env": frozenset({"source", "allowlist"}),
    "file": frozenset({"source", "path", "mode", "timeoutMs", "maxBytes"}),
    "exec": frozenset(
        {
            *("source", "command", "args", "env", "passEnv", "timeoutMs", "noOutputTimeoutMs"),
            *("maxOutputBytes", "jsonOnly", "trustedDirs"),
        }
    ),
    "store": frozenset({"source"}),
}


@dataclass(frozen=True, slots=True)
class ResolvedSecret:
    """The value of a reference."""

    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnresolvedSecret:
    """Why a reference has no value. `reason` contains no secret."""

    reason: str


SecretLookup = Callable[[SecretReference], ResolvedSecret | UnresolvedSecret]
"""Returns the value of a reference."""


@dataclass(frozen=True, slots=True)
class SecretSources:
    """Where secrets are read.

    `providers` is `secrets.providers` and `defaults` is `secrets.defaults`, both as written. `environ` is the
    environment of OpenClaw, `home` the folder that a leading `~` stands for. `may_run_commands` is whether sources of
    the kind exec are used. `problem` says why no reference resolves; empty if there is no such reason.
    """

    providers: Mapping[str, Any]
    defaults: Mapping[str, Any]
    environ: Mapping[str, str]
    home: Path
    state_dir: Path
    may_run_commands: bool = False
    problem: str = ""

    def default_alias(self, source: Source) -> str:
        """Return the alias that references of a kind use if they name none."""
        alias = self.defaults.get(source)
        return alias.strip() if isinstance(alias, str) and alias.strip() else "default"

    def default_aliases(self) -> Mapping[str, str]:
        """Return the default alias of each kind of source."""
        return {source: self.default_alias(source) for source in ("env", "file", "exec", "store")}


class _UnresolvedError(Exception):
    """The references have no value; the message is the reason."""


def resolve_secrets(
    references: Collection[SecretReference], sources: SecretSources
) -> Mapping[SecretReference, ResolvedSecret | UnresolvedSecret]:
    """Return the value of each reference, or why it has none. Blocks: reads files, rows and the output of commands."""
    groups: dict[tuple[Source, str], list[SecretReference]] = {}
    for reference in dict.fromkeys(references):
        groups.setdefault((reference.source, reference.provider), []).append(reference)
    found: dict[SecretReference, ResolvedSecret | UnresolvedSecret] = {}
    for (source, alias), group in groups.items():
        try:
            values = _values(source, alias, [reference.id for reference in group], sources)
        except _UnresolvedError as error:
            values = dict.fromkeys((reference.id for reference in group), UnresolvedSecret(str(error)))
        found.update((reference, _usable(values[reference.id])) for reference in group)
    return found


def denied_variable(name: str, sources: SecretSources) -> str:
    """Return why the default source of variables does not provide a variable; empty if it does, or if it is unset."""
    alias = sources.default_alias("env")
    try:
        allowed = _allowlist(alias, _configuration("env", alias, sources))
    except _UnresolvedError as error:
        return str(error)
    return "" if allowed is None or name in allowed else _not_allowed(name, alias)


def _usable(value: object) -> ResolvedSecret | UnresolvedSecret:
    if isinstance(value, UnresolvedSecret):
        return value
    if not isinstance(value, str) or not value.strip():
        return UnresolvedSecret("its value is not a text, or is blank")
    if len(value) > MAX_SECRET_CHARS or not value.strip().isprintable():
        return UnresolvedSecret("its value is too long, or contains control characters")
    return ResolvedSecret(value.strip())


def _values(source: Source, alias: str, ids: list[str], sources: SecretSources) -> Mapping[str, object]:
    """Return the value of each id, or an `UnresolvedSecret`.

    Raises:
        _UnresolvedError: none of the ids has a value.
    """
    configuration = _configuration(source, alias, sources)
    if len(ids) > _MAX_REFERENCES:
        raise _UnresolvedError(f"more than {_MAX_REFERENCES} secrets are read from secrets.providers.{alias}")
    if source == "env":
        return _from_environment(alias, configuration, ids, sources.environ)
    if source == "file":
        return _from_file(alias, configuration, ids, sources.home)
    if source == "store":
        return {name: _stored(name, sources.state_dir) for name in ids}
    return _from_command(alias, configuration, ids, sources)


def _configuration(source: Source, alias: str, sources: SecretSources) -> Mapping[str, Any]:
    """Return the entry of an alias. Variables and the store need none under the default alias."""
    if sources.problem:
        raise _UnresolvedError(sources.problem)
    entry = sources.providers.get(alias)
    matches = isinstance(entry, Mapping) and entry.get("source") == source
    if not matches and source in _BUILT_IN and alias == sources.default_alias(source):
        if entry is not None and not isinstance(entry, Mapping):
            raise _UnresolvedError(f"secrets.providers.{alias} is not an object")
        return {"source": source}
    if entry is None:
        raise _UnresolvedError(f"secrets.providers.{alias} is not configured")
    if not isinstance(entry, Mapping) or not matches:
        raise _UnresolvedError(f"secrets.providers.{alias} is not of the source {source}")
    if unknown := sorted(entry.keys() - _KEYS[source]):
        raise _UnresolvedError(f"memoryd does not know the key secrets.providers.{alias}.{unknown[0]}")
    return entry


def _from_environment(
    alias: str, configuration: Mapping[str, Any], ids: list[str], environ: Mapping[str, str]
) -> Mapping[str, object]:
    allowed = _allowlist(alias, configuration)
    found: dict[str, object] = {}
    for name in ids:
        if allowed is not None and name not in allowed:
            found[name] = UnresolvedSecret(_not_allowed(name, alias))
        elif environ.get(name, "").strip():
            found[name] = environ[name]
        else:
            found[name] = UnresolvedSecret(f"the variable {name} is not set")
    return found


def _allowlist(alias: str, configuration: Mapping[str, Any]) -> frozenset[str] | None:
    return None if "allowlist" not in configuration else frozenset(_texts(alias, configuration, "allowlist"))


def _not_allowed(name: str, alias: str) -> str:
    return f"the variable {name} is not in secrets.providers.{alias}.allowlist"


def _from_file(alias: str, configuration: Mapping[str, Any], ids: list[str], home: Path) -> Mapping[str, object]:
    mode = configuration.get("mode", "json")
    if mode not in {"json", "singleValue"}:
        raise _UnresolvedError(f"secrets.providers.{alias}.mode is neither json nor singleValue")
    path = _path(alias, configuration, "path", home)
    max_bytes = _number(alias, configuration, "maxBytes", _MAX_BYTES, most=_MAX_BYTES)
    seconds = _number(alias, configuration, "timeoutMs", _DEFAULT_MS, most=_MAX_MS) / 1000
    try:
        text = read_private_file(path, max_bytes=max_bytes, seconds=seconds).decode("utf-8-sig")
    except SecretFileError as error:
        raise _UnresolvedError(f"the file of secrets.providers.{alias}.path {error}") from None
    except UnicodeDecodeError:
        raise _UnresolvedError(f"the file of secrets.providers.{alias}.path is not UTF-8") from None
    if mode == "singleValue":
        return {
            name: text if name == SINGLE_VALUE else UnresolvedSecret('the id in a file of one value is "value"')
            for name in ids
        }
    document = _object(text, f"the file of secrets.providers.{alias}.path")
    return {name: _pointed(document, name) for name in ids}


def _pointed(document: Mapping[str, Any], pointer: str) -> object:
    if not pointer.startswith("/"):
        return UnresolvedSecret("the id in a JSON file is a JSON pointer, such as /openai/apiKey")
    try:
        return at_pointer(document, pointer)
    except LookupError:
        return UnresolvedSecret(f"the file has no value at {pointer}")


def _stored(name: str, state_dir: Path) -> object:
    try:
        value = read_openclaw_value(shared_database(state_dir), STORED_SECRET, name)
    except OpenClawDatabaseError as error:
        return UnresolvedSecret(f"OpenClaw's secret store: {error}")
    return UnresolvedSecret(f"OpenClaw's secret store has no {name}") if value is None else value


def _from_command(
    alias: str, configuration: Mapping[str, Any], ids: list[str], sources: SecretSources
) -> Mapping[str, object]:
    if not sources.may_run_commands:
        raise _UnresolvedError("commands are run only if memoryd.secrets.exec is true in memoryd's own settings file")
    path = _path(alias, configuration, "command", sources.home)
    folders = _texts(alias, configuration, "trustedDirs")
    if folders and not any(_real(path).is_relative_to(_real(_expanded(folder, sources.home))) for folder in folders):
        raise _UnresolvedError(f"secrets.providers.{alias}.command is outside of trustedDirs")
    command = SecretCommand(
        path,
        _texts(alias, configuration, "args"),
        _command_environment(alias, configuration, sources.environ),
        _number(alias, configuration, "timeoutMs", _DEFAULT_MS, most=_MAX_MS) / 1000,
        _number(alias, configuration, "maxOutputBytes", _MAX_BYTES, most=_MAX_BYTES),
    )
    request = {"protocolVersion": 1, "provider": alias, "ids": ids}
    try:
        check_command(path)
        output = run_command(command, json.dumps(request).encode())
    except SecretCommandError as error:
        raise _UnresolvedError(f"the command of secrets.providers.{alias} {error}") from None
    text = output.decode("utf-8", "replace").strip()
    if configuration.get("jsonOnly", True) is False and len(ids) == 1 and not text.startswith(("{", "[")):
        return {ids[0]: text}
    return _answers(alias, _object(text, f"the output of the command of secrets.providers.{alias}"), ids)


def _answers(alias: str, answer: Mapping[str, Any], ids: list[str]) -> Mapping[str, object]:
    values, errors = answer.get("values"), answer.get("errors")
    if answer.get("protocolVersion") != 1 or not isinstance(values, dict):
        raise _UnresolvedError(f"the output of the command of secrets.providers.{alias} is not of protocol version 1")
    found: dict[str, object] = {}
    for name in ids:
        if isinstance(errors, dict) and name in errors:
            code = errors[name].get("code") if isinstance(errors[name], dict) else None
            shown = f" ({code})" if isinstance(code, str) and code in _SHOWN_CODES else ""
            found[name] = UnresolvedSecret(f"the command of secrets.providers.{alias} reports an error{shown}")
        elif name in values:
            found[name] = values[name]
        else:
            found[name] = UnresolvedSecret(f"the command of secrets.providers.{alias} returns no value")
    return found


def _command_environment(alias: str, configuration: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    own = configuration.get("env", {})
    if not isinstance(own, Mapping) or not all(isinstance(value, str) for value in own.values()):
        raise _UnresolvedError(f"secrets.providers.{alias}.env is not an object of strings")
    passed = _texts(alias, configuration, "passEnv")
    return {**{name: environ[name] for name in passed if name in environ}, **own}


def _object(text: str, what: str) -> Mapping[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        raise _UnresolvedError(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise _UnresolvedError(f"{what} is not an object")
    return value


def _texts(alias: str, configuration: Mapping[str, Any], key: str) -> list[str]:
    listed = configuration.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise _UnresolvedError(f"secrets.providers.{alias}.{key} is not an array of strings")
    return listed


def _number(alias: str, configuration: Mapping[str, Any], key: str, default: int, *, most: int) -> int:
    value = configuration.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _UnresolvedError(f"secrets.providers.{alias}.{key} is not a whole number above 0")
    return min(value, most)


def _path(alias: str, configuration: Mapping[str, Any], key: str, home: Path) -> Path:
    text = configuration.get(key)
    path = _expanded(text, home) if isinstance(text, str) and text.strip() else None
    if path is None or not path.is_absolute():
        raise _UnresolvedError(f"secrets.providers.{alias}.{key} is not an absolute path")
    return path


def _expanded(text: str, home: Path) -> Path:
    text = text.strip()
    return home / text[2:] if text.startswith("~/") else Path(text)


def _real(path: Path) -> Path:
    """Return a path without `..` and links."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        raise _UnresolvedError("a command or a folder of trustedDirs is not a file name") from None
