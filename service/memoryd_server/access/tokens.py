"""Bearer tokens: the files that hold them, and their verification, which gives a grant.

Tokens come from two files. The plain file has one token per line, each valid for every agent; local clients read it
too. The token store has the hashed tokens that `memoryd token` creates. `TokenVerifier` reads both again when they
change.
"""

import hmac
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from memoryd_server.access.grants import Grant, expand_scopes
from memoryd_server.access.private_files import Signature, read_private, signature, write_private
from memoryd_server.access.token_store import TokenRecord, TokenStore, digest, new_token
from memoryd_server.errors import SettingsError

TOKEN_FILE_CALLER = "token file"  # noqa: S105 -- the name of a caller

PLAIN_FILE = "memoryd.token"
STORE_FILE = "memoryd.tokens.json"


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """The paths of the token files.

    `plain` has tokens for every agent, one per line; `store` has the records of `memoryd token`. `named` is true if
    `plain` is set in the settings: the file must then exist and is never created.
    """

    plain: Path
    named: bool
    store: Path

    @classmethod
    def in_state_dir(cls, state_dir: Path, named: Path | None) -> "TokenFiles":
        """Return the token files of a state directory; `named` is the plain file from the settings, if set."""
        return cls(named or state_dir / PLAIN_FILE, named is not None, state_dir / STORE_FILE)


@dataclass(frozen=True, slots=True)
class _Key:
    digest: bytes
    grant: Grant
    expires: datetime | None = None


class TokenVerifier:
    """Verifies bearer tokens. `problem` says which file is not used and why; it is empty if there is no problem.

    A file that cannot be used counts as empty, so its tokens are refused. Thread-safe.
    """

    def __init__(
        self, files: TokenFiles, now: Callable[[], datetime], log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._files = files
        self._store = TokenStore(files.store)
        self._now = now
        self._log = log
        self._lock = threading.Lock()
        self._read: Signature | None = None
        self._keys: tuple[_Key, ...] = ()
        self.problem = ""

    def open(self, *, for_tcp: bool) -> None:
        """Read the files for the first time; with `for_tcp`, create the first token if there is none. Blocks.

        Raises:
            SettingsError: a file cannot be used, or the plain file named in the settings has no token.
        """
        if not (for_tcp or self._files.named):
            return
        plain = self._read_plain(required=self._files.named)
        if not for_tcp:
            return
        records = self._store.read()
        if not plain and not records:
            generate_token(self._files.plain)
            self._log.info("generate-token", file=str(self._files.plain))
        self.refresh()

    def _read_plain(self, *, required: bool) -> tuple[str, ...]:
        try:
            tokens = read_tokens(self._files.plain)
        except FileNotFoundError as error:
            if required:
                raise SettingsError(
                    f"the token file {self._files.plain} does not exist; create it, or remove memoryd.tokenFile"
                ) from error
            return ()
        if required and not tokens:
            raise SettingsError(f"the token file {self._files.plain} contains no token; write one token per line")
        return tokens

    def refresh(self) -> None:
        """Read the files again if they have changed. Blocks, for some microseconds if they have not."""
        with self._lock:
            current = signature((self._files.plain, self._files.store))
            if current is not None and current == self._read:
                return
            problems: list[str] = []
            keys = (*self._plain_keys(problems), *self._store_keys(problems))
            if {*keys} != {*self._keys}:
                self._log.info("load-tokens", tokens=len(keys))
            if (problem := "; ".join(problems)) and problem != self.problem:
                self._log.error("refuse-tokens", problem=problem)
            self._read, self._keys, self.problem = current, keys, problem

    def _plain_keys(self, problems: list[str]) -> Iterator[_Key]:
        try:
            for token in self._read_plain(required=False):
                hashed = digest(token.encode())
                yield _Key(hashed, Grant(share=hashed.hex(), caller=TOKEN_FILE_CALLER))
        except SettingsError as error:
            problems.append(error.message)

    def _store_keys(self, problems: list[str]) -> Iterator[_Key]:
        try:
            for record in self._store.read():
                yield _Key(record.sha256, _grant_of(record), record.expires)
        except SettingsError as error:
            problems.append(error.message)

    def grant(self, token: bytes) -> Grant | None:
        """Return the grant of a token; None if the token is unknown or has expired.

        The comparison takes the same time for every token.
        """
        hashed, now, grant = digest(token), self._now(), None
        for key in self._keys:
            same = hmac.compare_digest(hashed, key.digest)
            if same and (key.expires is None or now < key.expires):
                grant = key.grant
        return grant


def _grant_of(record: TokenRecord) -> Grant:
    return Grant(
        None if record.agents is None else frozenset(record.agents),
        expand_scopes(record.granted_scopes),
        token_id=record.token_id,
        share=record.token_id,
        caller=record.name or record.token_id,
    )


_WHAT = "the token file"


def read_tokens(path: Path) -> tuple[str, ...]:
    """Return the tokens of a file. Blank lines and lines that begin with `#` are ignored.

    Raises:
        FileNotFoundError: the file does not exist.
        SettingsError: the file cannot be read, or other users can open it.
    """
    try:
        lines = [line.strip() for line in read_private(path, _WHAT).decode().splitlines()]
    except UnicodeError as error:
        raise SettingsError(f"cannot read {_WHAT} {path}: {error}") from error
    return tuple(line for line in lines if line and not line.startswith("#"))


def first_token(path: Path) -> str | None:
    """Return the token that a client on this machine sends; None if the file does not exist or has no token.

    Raises:
        SettingsError: the file cannot be read, or other users can open it.
    """
    try:
        return next(iter(read_tokens(path)), None)
    except FileNotFoundError:
        return None


def generate_token(path: Path) -> None:
    """Write a new token to a private file at `path`.

    Raises:
        SettingsError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error
    write_private(path, f"{new_token()}\n".encode())
