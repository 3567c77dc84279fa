"""The values that select chunks before they are ranked: FileFilter and ChunkFilter."""

from dataclasses import dataclass
from datetime import date

from memoryd_server.model import Origin, Source
from memoryd_server.text import normalized


@dataclass(frozen=True, slots=True)
class FrontMatterCondition:
    """A key of the front matter and the values of which it must have at least one.

    The values are as `front_matter_value` returns them.
    """

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Conditions on files, all of which must be true. An unset condition is true for every file.

    `since` and `until` are the first and the last day of the file's date: that of its name, or else of its front
    matter, or else of its last modification in UTC. A path must begin with one of `path_prefixes`.
    """

    since: date | None = None
    until: date | None = None
    path_prefixes: tuple[str, ...] = ()
    front_matter: tuple[FrontMatterCondition, ...] = ()


ALL_FILES = FileFilter()


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """Conditions on chunks, all of which must be true. Empty `sources` and empty `origins` mean all.

    A chunk whose origin is not known yet, because an older version indexed it, has none of the origins.
    """

    files: FileFilter = ALL_FILES
    sources: tuple[Source, ...] = ()
    origins: tuple[Origin, ...] = ()


ALL_CHUNKS = ChunkFilter()


def front_matter_value(text: str) -> str:
    """Return a value of the front matter as it is compared: in NFC, without case, outer spaces and a leading `#`."""
    return normalized("NFC", text).strip().removeprefix("#").strip().casefold()
