"""The store of the tokens that `memoryd token` creates.

The store holds SHA-256 hashes instead of tokens, so that reading the file does not allow calls.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memoryd_server.access.grants import DEFAULT_SCOPES, Scope
from memoryd_server.access.private_files import read_private, write_private
from memoryd_server.errors import FileBusy, SettingsError
from memoryd_server.foreign_text import parse_json
from memoryd_server.system import FileLock

_VERSION = 1
_LOCK_SECONDS = 10.0
_KEYS = frozenset({"id", "name", "sha256", "agents", "created", "expires"})
# Only in the entries of tokens with scopes, so that a version without scopes can read a store that has no such token.
_SCOPES_KEY = "scopes"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token. `agents` None means every agent; `expires` None means never; times are in UTC, to the second.

    `scopes` are those that the token was created with, in the order of `Scope`; None if it was created without any.
    """

    token_id: str
    name: str
    sha256: bytes
    agents: tuple[str, ...] | None
    created: datetime
    expires: datetime | None
    scopes: tuple[Scope, ...] | None = None

    @property
    def granted_scopes(self) -> tuple[Scope, ...]:
        """The scopes that are in force, without those that they include."""
        return DEFAULT_SCOPES if self.scopes is None else self.scopes

    def expired(self, now: datetime) -> bool:
        """Return whether the token has expired."""
        return self.expires is not None and now >= self.expires


class TokenStore:
    """The file of token records, which commands change while a daemon reads it.

    `lock_seconds` is how long a change waits for another process that holds the lock.
    """

    def __init__(self, path: Path, lock_seconds: float = _LOCK_SECONDS) -> None:
        self.path = path
        self._lock_seconds = lock_seconds

    def read(self) -> tuple[TokenRecord, ...]:
        """Return every record, including those of expired tokens; none if the file does not exist.

        Raises:
            SettingsError: the file cannot be read, other users can open it, or it is damaged.
        """
        try:
            content = read_private(self.path, "the token store")
        except FileNotFoundError:
            return ()
        try:
            return tuple(_records(parse_json(content)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SettingsError(
                f"the token store {self.path} is damaged ({error}); repair it, or remove it and create the tokens again"
            ) from error

    def add(
        self,
        name: str,
        agents: Sequence[str] | None,
        now: datetime,
        expires: datetime | None,
        *,
        scopes: Sequence[Scope] | None = None,
    ) -> tuple[TokenRecord, str]:
        """Create a token; return its record and the token itself, which is not stored.

        `scopes` None creates a token without scopes, which has the default scopes.

        Raises:
            SettingsError: the store cannot be read or written.
            FileBusy: another process holds the store's lock.
        """
        token = new_token()
        with self._locked():
            records = self.read()
            record = TokenRecord(
                token_id=_unused_id({known.token_id for known in records}),
                name=name,
                sha256=digest(token.encode()),
                agents=None if agents is None else tuple(sorted(set(agents))),
                created=now.astimezone(UTC).replace(microsecond=0),
                expires=None if expires is None else expires.astimezone(UTC).replace(microsecond=0),
                scopes=None if scopes is None else _ordered(scopes),
            )
            self._write((*records, record))
        return record, token

    def revoke(self, token_id: str) -> bool:
        """Remove a token; return False if no token has this id.

        Raises:
            SettingsError: the store cannot be read or written.
            FileBusy: another process holds the store's lock.
        """
        with self._locked():
            records = self.read()
            kept = tuple(record for record in records if record.token_id != token_id)
            if len(kept) == len(records):
                return False
            self._write(kept)
        return True

    def _write(self, records: Sequence[TokenRecord]) -> None:
        content = {"version": _VERSION, "tokens": [_entry(record) for record in records]}
        write_private(self.path, json.dumps(content, indent=2).encode() + b"\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the store's lock, so that concurrent commands do not overwrite each other's changes."""
        lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock.wait(self._lock_seconds)
        except TimeoutError as error:
            words = f"is still locked by another process after {self._lock_seconds:g} s; nothing was changed, try again"
            raise FileBusy(f"{self.path}.lock", words) from error
        except OSError as error:
            raise SettingsError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()


def digest(token: bytes) -> bytes:
    """Return the hash of a token for the store. Tokens have 256 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(token).digest()


def _unused_id(taken: set[str], make: Callable[[], str] = lambda: secrets.token_hex(4)) -> str:
    while (token_id := make()) in taken:
        pass
    return token_id


def _entry(record: TokenRecord) -> dict[str, Any]:
    entry = {
        "id": record.token_id,
        "name": record.name,
        "sha256": record.sha256.hex(),
        "agents": record.agents,
        "created": record.created.isoformat(),
        "expires": record.expires and record.expires.isoformat(),
    }
    return entry if record.scopes is None else {**entry, _SCOPES_KEY: record.scopes}


def _records(content: Any) -> Iterator[TokenRecord]:
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']} is not supported by this memoryd")
    for entry in content["tokens"]:
        # A key of a newer version may be a restriction; ignoring it would lift the restriction.
        if set(entry) - {_SCOPES_KEY} != _KEYS:
            raise ValueError(f"a token has the keys {', '.join(sorted(map(str, entry)))}")
        yield TokenRecord(
            token_id=_text(entry["id"]),
            name=_text(entry["name"]),
            sha256=_digest(entry["sha256"]),
            agents=_agents(entry["agents"]),
            created=_time(entry["created"]),
            expires=None if entry["expires"] is None else _time(entry["expires"]),
            scopes=_scopes(entry[_SCOPES_KEY]) if _SCOPES_KEY in entry else None,
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _digest(value: Any) -> bytes:
    hashed = bytes.fromhex(_text(value))
    if len(hashed) != hashlib.sha256().digest_size:
        raise ValueError("a hash has the wrong length")
    return hashed


def _agents(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        raise TypeError("agents must be null or a list of at least one agent")
    return tuple(_text(agent).strip().lower() for agent in value)


def _scopes(value: Any) -> tuple[Scope, ...]:
    if not isinstance(value, list) or not value:
        raise TypeError("scopes must be a list of at least one scope")
    # A scope of a newer version is refused, because the methods that it allows are not known.
    return _ordered([Scope(_text(scope)) for scope in value])


def _ordered(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    if not scopes:
        raise ValueError("a token has at least one scope")
    return tuple(scope for scope in Scope if scope in scopes)


def _time(value: Any) -> datetime:
    time = datetime.fromisoformat(_text(value))
    if time.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return time.astimezone(UTC)


# The prefix lets people and secret scanners recognize a token.
_PREFIX = "memoryd_"
_RANDOM_BYTES = 32


def new_token() -> str:
    """Return a new token of 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
