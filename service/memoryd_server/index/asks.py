"""What a sync run is asked to bring up to date, collected until a pass takes it."""

import threading
from dataclasses import dataclass, replace
from typing import Self

from memoryd_server.model import Source

EVERY_SOURCE = frozenset(Source)


@dataclass(frozen=True, slots=True)
class SyncAsk:
    """The sources to bring up to date, and which transcripts count however little they have grown.

    These are all of them, or those of `transcripts`, file names. `files` are paths of Markdown files that count where
    their source is left out: somebody knows that these alone have changed.
    """

    sources: frozenset[Source] = EVERY_SOURCE
    every_transcript: bool = True
    transcripts: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def of_file(cls, path: str) -> Self:
        """One Markdown file that has changed."""
        return cls(frozenset(), every_transcript=False, files=frozenset({path}))

    @property
    def whole(self) -> bool:
        """Whether no source is left out."""
        return self.sources == EVERY_SOURCE

    def and_also(self, other: "SyncAsk") -> "SyncAsk":
        """Both at once."""
        return replace(
            self,
            sources=self.sources | other.sources,
            every_transcript=self.every_transcript or other.every_transcript,
            transcripts=self.transcripts | other.transcripts,
            files=self.files | other.files,
        )


EVERYTHING = SyncAsk()
"""All sources, and every transcript."""

WHAT_IS_DUE = SyncAsk(every_transcript=False)
"""All sources; of the transcripts those that have grown enough, or have gone quiet."""


class Asks:
    """The asks that no pass has taken yet. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: SyncAsk | None = None

    def add(self, ask: SyncAsk) -> None:
        """Lets the next pass see to `ask`, too."""
        with self._lock:
            self._asked = ask if self._asked is None else self._asked.and_also(ask)

    def take(self) -> SyncAsk:
        """What has been asked since the last time; what is due where nothing was."""
        with self._lock:
            asked, self._asked = self._asked, None
        return WHAT_IS_DUE if asked is None else asked

    @property
    def whole(self) -> bool:
        """Whether the next pass leaves no source out."""
        with self._lock:
            return self._asked is None or self._asked.whole
