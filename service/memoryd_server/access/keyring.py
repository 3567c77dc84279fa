"""The tokens in force: read from their files, and read again when those change."""

import hmac
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog

from memoryd_server.access.freshness import Signature, signature
from memoryd_server.access.grant import Grant
from memoryd_server.access.plain import generate_token, read_tokens
from memoryd_server.access.store import TokenStore, digest
from memoryd_server.access.token_files import TokenFiles
from memoryd_server.errors import SettingsError


@dataclass(frozen=True, slots=True)
class _Key:
    digest: bytes
    grant: Grant
    expires: datetime | None = None


class Keyring:
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
