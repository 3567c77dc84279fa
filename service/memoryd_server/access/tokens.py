"""Grant; a bearer token verified against the files.

What a caller may use, by the credential that it showed.

The tokens in force: read from their files, and read again when those change.

Tokens as they stand in a file, one a line: for every agent, and for clients to read.

Where the tokens of a daemon are.
"""

import hmac
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import structlog

from memoryd_server.access.private_files import Signature, read_private, signature, write_private
from memoryd_server.access.token_store import TokenStore, digest, new_token
from memoryd_server.errors import SettingsError

# What an empty agent id means to a caller who may not use every agent. It depends on nothing that is configured:
# otherwise the answer would tell whether other agents exist.
DEFAULT_AGENT = "main"


@dataclass(frozen=True, slots=True)
class Grant:
    """The agents that a caller may use, by id; None means every agent, also those configured later.

    `token_id` is for the log: the id of the token that was shown, empty for one of the plain file and on the socket.
    `share` names the token whose share of the limits a call counts against, empty on the socket.
    """

    agents: frozenset[str] | None = None
    token_id: str = field(default="", compare=False)
    share: str = field(default="", compare=False)

    @property
    def limited(self) -> bool:
        """Whether there are agents that the caller may not use, and may learn nothing of."""
        return self.agents is not None

    def allows(self, agent_id: str) -> bool:
        """Whether the caller may use the agent of this exact id."""
        return self.agents is None or agent_id in self.agents


ALL_AGENTS_GRANT = Grant()

PLAIN_FILE = "memoryd.token"
STORE_FILE = "memoryd.tokens.json"


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """`plain` has tokens for every agent, one a line; `store` the records of those that `memoryd token` made.

    `named` says that the settings name `plain`: then it must be there, and is never made.
    """

    plain: Path
    named: bool
    store: Path

    @classmethod
    def beneath(cls, state_dir: Path, named: Path | None) -> "TokenFiles":
        """The files of a state directory, with the plain one that the settings name, if they do."""
        return cls(named or state_dir / PLAIN_FILE, named is not None, state_dir / STORE_FILE)


@dataclass(frozen=True, slots=True)
class _Key:
    digest: bytes
    grant: Grant
    expires: datetime | None = None


class TokenVerifier:
    """Which token opens what. `problem` says which file is not used and why; it is empty when all is well.

    A file that cannot be used counts as empty: a caller is then refused, and nobody is let in by mistake. Thread-safe.
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
        """Reads the files for the first time; `for_tcp` makes the first token where there is none. Blocks.

        Raises:
            SettingsError: a file cannot be used, or the one that the settings name holds no token.
        """
        if not (for_tcp or self._files.named):
            return
        plain = self._plain(required=self._files.named)
        if not for_tcp:
            return
        records = self._store.read()
        if not plain and not records:
            generate_token(self._files.plain)
            self._log.info("generate-token", file=str(self._files.plain))
        self.refresh()

    def _plain(self, *, required: bool) -> tuple[str, ...]:
        try:
            tokens = read_tokens(self._files.plain)
        except FileNotFoundError as error:
            if required:
                raise SettingsError(f"cannot read the token file {self._files.plain}: there is none") from error
            return ()
        if required and not tokens:
            raise SettingsError(f"the token file {self._files.plain} holds no token: write one on a line of its own")
        return tokens

    def refresh(self) -> None:
        """Reads the files again if they have changed. Blocks, for some microseconds where they have not."""
        with self._lock:
            found = signature((self._files.plain, self._files.store))
            if found is not None and found == self._read:
                return
            problems: list[str] = []
            keys = (*self._plain_keys(problems), *self._store_keys(problems))
            if {*keys} != {*self._keys}:
                self._log.info("load-tokens", tokens=len(keys))
            if (problem := "; ".join(problems)) and problem != self.problem:
                self._log.error("refuse-tokens", problem=problem)
            self._read, self._keys, self.problem = found, keys, problem

    def _plain_keys(self, problems: list[str]) -> Iterator[_Key]:
        try:
            for token in self._plain(required=False):
                hashed = digest(token.encode())
                yield _Key(hashed, Grant(share=hashed.hex()))
        except SettingsError as error:
            problems.append(error.message)

    def _store_keys(self, problems: list[str]) -> Iterator[_Key]:
        try:
            for record in self._store.read():
                agents = None if record.agents is None else frozenset(record.agents)
                yield _Key(record.sha256, Grant(agents, record.token_id, record.token_id), record.expires)
        except SettingsError as error:
            problems.append(error.message)

    def grant(self, token: bytes) -> Grant | None:
        """What a token opens; None where it is not, or no longer, one of ours. Takes the same time for all of them."""
        shown, now, found = digest(token), self._now(), None
        for key in self._keys:
            same = hmac.compare_digest(shown, key.digest)
            if same and (key.expires is None or now < key.expires):
                found = key.grant
        return found


_WHAT = "the token file"


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens of a file; blank lines and lines that begin with `#` are passed over.

    Raises:
        FileNotFoundError: there is none.
        SettingsError: it cannot be read, or others can open it.
    """
    try:
        lines = [line.strip() for line in read_private(path, _WHAT).decode().splitlines()]
    except UnicodeError as error:
        raise SettingsError(f"cannot read {_WHAT} {path}: {error}") from error
    return tuple(line for line in lines if line and not line.startswith("#"))


def first_token(path: Path) -> str | None:
    """The token that a client on this machine shows; None where there is no such file or no token in it.

    Raises:
        SettingsError: it cannot be read, or others can open it.
    """
    try:
        return next(iter(read_tokens(path)), None)
    except FileNotFoundError:
        return None


def generate_token(path: Path) -> None:
    """Puts a new token into a private file at `path`.

    Raises:
        SettingsError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error
    write_private(path, f"{new_token()}\n".encode())
