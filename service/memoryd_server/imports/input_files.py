"""The files behind the arguments of an import: single files, folders, and zip archives, which are not unpacked.

Archives and the names of their members are foreign. A member is read from within the archive and never written to
disk, so that its name cannot lead anywhere. A folder is searched without following symbolic links. The archives in a
folder are searched only if the folder itself contains no file of the format, because an export of a chat service can
contain archives that somebody attached to a message. Otherwise those that contain one are reported. Archives in
archives are not searched; the error says so.
"""

import contextlib
import io
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from memoryd_server.errors import InvalidImport
from memoryd_server.foreign_text import shown_path, valid_text
from memoryd_server.imports.conversation import Unreadable

MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
"""Maximum size of the list of members of an archive, which is held in memory; 100,000 members take about 10 MB."""
MAX_RATIO = 200
"""Maximum ratio of the size of a member to its compressed size. JSON and text are compressed to a tenth or so."""
MAX_DEPTH = 16
"""Maximum depth of the folders that are searched."""
MAX_NAME_CHARS = 300

_ZIP_MAGIC = b"PK\x03\x04"
_ENCRYPTED = 0x1
_BESIDE_FILES = "it was left out, because the folder to import also contains unpacked files; import it separately"
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)


class _Progress:
    """Number of bytes read from all streams of one import."""

    def __init__(self) -> None:
        self.bytes_read = 0


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to import. `path` is relative to the argument that it was found through, "" for the argument itself.

    `name` is for people: the path as the user wrote it, followed by the path within an archive. `size_bytes` is the
    size of the unpacked file.
    """

    name: str
    path: str
    size_bytes: int
    modified_ns: int
    _opener: Callable[[], io.RawIOBase] = field(repr=False, compare=False)

    def open(self) -> BinaryIO:
        """Return a buffered stream of the content. The caller closes it.

        Raises:
            OSError: the file cannot be read. Reading from the stream raises it, too, also for a damaged archive.
        """
        return io.BufferedReader(self._opener())


class InputFiles:
    """Find the files of a format behind command line arguments.

    A file that is named by an argument is always accepted; `wanted` chooses among the files of folders and archives
    by their relative path, whose separator is "/". Iterating starts from the beginning each time. Archives stay open
    until `close`, or as long as the object, so that their members can be read.

    `unreadable` lists what was left out: folders, files and archives in folders that cannot be read, and archives with
    files of the format in a folder that also contains such files itself.

    Raises:
        InvalidImport: an argument does not exist or cannot be read, or no argument contains a file of the format, nor
            anything that is unreadable. `looked_for` describes the files to the user.
    """

    def __init__(self, arguments: Sequence[Path], wanted: Callable[[str], bool], looked_for: str = "") -> None:
        self._wanted = wanted
        self._progress = _Progress()
        self._archives: list[_ArchiveFile] = []
        self._has_nested_archives = False
        self.unreadable: list[Unreadable] = []
        self._files = [file for argument in arguments for file in self._find(argument)]
        if not (self._files or self.unreadable):
            shown = ", ".join(_shown(str(argument)) for argument in arguments)
            missing = f": it contains no {looked_for}" if looked_for else ""
            hint = "; it contains other archives: unpack it, and import the folder" if self._has_nested_archives else ""
            raise InvalidImport(f"nothing to import in {shown}{missing}{hint}")

    @property
    def total_bytes(self) -> int:
        """Size of all files, unpacked."""
        return sum(file.size_bytes for file in self._files)

    @property
    def bytes_read(self) -> int:
        """Number of bytes that were read so far from the streams of all files."""
        return self._progress.bytes_read

    def __iter__(self) -> Iterator[InputFile]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files of the archives."""
        for archive in self._archives:
            archive.close()

    def _find(self, argument: Path) -> list[InputFile]:
        try:
            found = argument.stat()
            if stat.S_ISDIR(found.st_mode):
                return self._find_in_folder(argument)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidImport(f"{_shown(str(argument))} is neither a file nor a folder")
            with argument.open("rb") as file:
                is_archive = _is_archive_name(argument.name) or file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
            return self._find_in_archive(argument) if is_archive else [self._plain_file(argument, "", found)]
        except OSError as error:
            raise InvalidImport(f"cannot read {_shown(str(argument))}: {error.strerror or error}") from error

    def _plain_file(self, location: Path, path: str, found: os.stat_result) -> InputFile:
        return InputFile(
            _shown(str(location)),
            path,
            found.st_size,
            found.st_mtime_ns,
            lambda: _CountedStream(location.open("rb", buffering=0), self._progress),
        )

    def _find_in_folder(self, folder: Path) -> list[InputFile]:
        files: list[InputFile] = []
        archives: list[Path] = []
        pending = [(folder, "")]
        while pending:
            parent, prefix = pending.pop()
            for entry in self._entries(parent, is_argument=parent is folder):
                path = prefix + entry.name
                with self._reporting(Path(entry.path)):
                    if entry.is_dir(follow_symlinks=False):
                        if path.count("/") < MAX_DEPTH:
                            pending.append((Path(entry.path), path + "/"))
                    elif not entry.is_file(follow_symlinks=False):
                        continue
                    elif self._wanted(path):
                        files.append(self._plain_file(Path(entry.path), path, entry.stat(follow_symlinks=False)))
                    elif _is_archive_name(path):
                        archives.append(Path(entry.path))
        if not files:
            return [file for archive in sorted(archives) for file in self._find_in_foldered_archive(archive)]
        for archive in sorted(archives):
            self._report_archive(archive)
        return sorted(files, key=lambda file: file.path)

    def _entries(self, folder: Path, *, is_argument: bool) -> Iterator[os.DirEntry[str]]:
        """Yield what is in a folder. An error is reported, but raised for the folder that is the argument."""
        with contextlib.nullcontext() if is_argument else self._reporting(folder), os.scandir(folder) as entries:
            yield from entries

    @contextlib.contextmanager
    def _reporting(self, place: Path) -> Iterator[None]:
        try:
            yield
        except InvalidImport as error:
            self.unreadable.append(Unreadable(_shown(str(place)), error.message))
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
            self.unreadable.append(Unreadable(_shown(str(place)), reason))

    def _find_in_foldered_archive(self, archive: Path) -> list[InputFile]:
        """Return the files of an archive that was found in a folder. An error is reported."""
        with self._reporting(archive):
            return self._find_in_archive(archive)
        return []

    def _report_archive(self, archive: Path) -> None:
        """Report an archive beside files of the format if it also contains such files, or if it cannot be read."""
        with self._reporting(archive):
            if self._find_in_archive(archive):
                self.unreadable.append(Unreadable(_shown(str(archive)), _BESIDE_FILES))
            self._archives.pop().close()

    def _find_in_archive(self, location: Path) -> list[InputFile]:
        file = _ArchiveFile(location)
        try:
            archive = zipfile.ZipFile(cast("BinaryIO", file))
        except (*_ARCHIVE_ERRORS, ValueError) as error:
            file.close()
            reason = f"{_shown(str(location))} is not a zip archive, or is damaged or incomplete ({error})"
            raise InvalidImport(reason) from error
        self._archives.append(file)
        modified_ns = location.stat().st_mtime_ns
        members = [each for each in archive.infolist() if not each.is_dir() and self._wanted(each.filename)]
        self._has_nested_archives |= not members and any(map(_is_archive_name, archive.namelist()))
        return [self._member(archive, location, member, modified_ns) for member in members]

    def _member(
        self, archive: zipfile.ZipFile, location: Path, member: zipfile.ZipInfo, archive_modified_ns: int
    ) -> InputFile:
        return InputFile(
            _shown(f"{location}/{member.filename}"),
            valid_text(member.filename),
            member.file_size,
            _member_modified_ns(member, archive_modified_ns),
            lambda: _CountedStream(_open_member(archive, member), self._progress),
        )


class _ArchiveFile(io.FileIO):
    """A file of a zip archive that refuses to read a list of members too large for the memory.

    `zipfile` reads this list with one call, whose size is that which the archive states. The file is closed with the
    last reference, because `zipfile` does not close a file that it is given.
    """

    def __del__(self) -> None:
        self.close()

    def read(self, size: int | None = -1, /) -> Any:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile("its list of members is too long")
        return super().read(size)


class _CountedStream(io.RawIOBase):
    """A raw stream that counts what is read, and raises OSError for a damaged archive."""

    def __init__(self, source: Any, progress: _Progress) -> None:
        self._source = source
        self._progress = progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            data = self._source.read(len(buffer))
        except _ARCHIVE_ERRORS as error:
            raise OSError(f"the archive is damaged ({error})") from error
        buffer[: len(data)] = data
        self._progress.bytes_read += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    if member.flag_bits & _ENCRYPTED:
        raise OSError("it is encrypted; unpack the archive, and import the folder")
    if member.file_size > MAX_RATIO * max(member.compress_size, 1):
        raise OSError(f"it is compressed to less than 1/{MAX_RATIO} of its size, so it is not an export")
    try:
        return archive.open(member)
    except _ARCHIVE_ERRORS as error:
        raise OSError(f"the archive is damaged ({error})") from error


def _is_archive_name(name: str) -> bool:
    return name.lower().endswith(".zip")


def _member_modified_ns(member: zipfile.ZipInfo, otherwise: int) -> int:
    """Return the time of a member, which has no time zone and counts as UTC, as in exports; `otherwise` if invalid."""
    try:
        return int(datetime(*member.date_time, tzinfo=UTC).timestamp()) * 1_000_000_000
    except ValueError:
        return otherwise


def _shown(path: str) -> str:
    """Return a path as one printable line of at most `MAX_NAME_CHARS`; of a longer one, its end."""
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in shown_path(path))
    return text if len(text) <= MAX_NAME_CHARS else f"…{text[-MAX_NAME_CHARS:]}"
