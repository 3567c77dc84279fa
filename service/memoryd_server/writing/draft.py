"""The block of the append at work, kept until all of it is in the memory file.

A crash in the middle of a write leaves a part of a block at the file's end. Whose bytes those are, and what is missing
of them, only the block itself can tell: the ledger has no more than its hash.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from memoryd_server.writing.faults import ledger_errors
from memoryd_server.writing.files import write_whole


class Draft:
    """A file that is there only while an append is at work, or when one was cut short. For the ledger's lock holder."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def exists(self) -> bool:
        """Whether an append was cut short."""
        return self._path.exists()

    @contextmanager
    def kept(self, block: bytes) -> Iterator[None]:
        """Keeps a block until its own end; not beyond a power cut, which `block` notices.

        Raises:
            DiskFull: there is no space for it.
            IndexUnavailable: the file cannot be written for any other reason.
        """
        try:
            with ledger_errors(str(self._path)):
                write_whole(self._path, block, durable=False)
            yield
        finally:
            self.drop()

    def block(self, digest: str) -> bytes | None:
        """Returns the block with this SHA-256, None when it is not what was kept."""
        with suppress(OSError):
            kept = self._path.read_bytes()
            if sha256(kept).hexdigest() == digest:
                return kept
        return None

    def drop(self) -> None:
        """Forgets the block."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
