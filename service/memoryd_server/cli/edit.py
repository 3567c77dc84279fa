"""`memoryd edit`: change a memory file in the user's editor.

The editor opens a private copy of the file. The copy is written back with MemoryWrite, which changes nothing if another
program has changed the file during the edit. The copy is deleted when its text is written, and kept if it could not be
written.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.history import print_diff
from memoryd_server.cli.index import used_agent
from memoryd_server.cli.options import (
    FAILURE,
    PRECONDITION,
    USAGE,
    CommonOptions,
    agent_option,
    common_options,
    complain,
    connected,
    fail,
    json_option,
    program_name,
    show,
)

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient

_PAGE_LINES = 2_000
_MOST_READS = 5
_MOST_DIFF_BYTES = 64 * 1024


@click.command()
@common_options
@agent_option
@json_option
@click.argument("path")
def edit(common: CommonOptions, agent: str, as_json: bool, path: str) -> None:
    """Edit a memory file in $VISUAL or $EDITOR.

    PATH is MEMORY.md, USER.md or a .md file under memory/. The file is created if it does not exist. If another program
    changes the file during the edit, your text is not written; it is kept in a temporary file, whose path is printed.
    """
    command = _editor_command()
    with connected(common) as daemon:
        client = daemon.client
        seen = _read(client, agent, path)
        _require_edits(client, agent)
        with _private_copy(seen) as copy:
            _run_editor(command, copy)
            text = copy.changed_text()
            if text is None:
                unchanged = _unchanged(seen)
                show(unchanged, lambda: iter([f"No change: {seen.path}"]), as_json=as_json)
                return
            done = _write(client, agent, copy, text)
        word = "Written" if seen.content_sha256 else "Created"
        show(done, lambda: iter([f"{word}: {done.path}"]), as_json=as_json)


def _editor_command() -> list[str]:
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help

    environment = Environment.of_process()
    editor = environment.text("VISUAL") or environment.text("EDITOR")
    if editor is None:
        fail("neither $VISUAL nor $EDITOR is set; set one of them to the command of your editor", USAGE)
    try:
        return shlex.split(editor)
    except ValueError as error:
        fail(f"the editor {editor!r} is not a command: {error}; set $VISUAL or $EDITOR", USAGE)


@dataclass(frozen=True, slots=True)
class _SeenFile:
    """A file as it was read. `content_sha256` is empty if it does not exist."""

    path: str
    text: str
    content_sha256: str


def _read(client: MemorydClient, agent: str, path: str) -> _SeenFile:
    """Return the whole file, which is read again if it changes between two pages."""
    from memoryd.client import MemorydError  # noqa: PLC0415 -- not needed for help

    for _ in range(_MOST_READS):
        try:
            pages = list(_pages(client, agent, path))
        except MemorydError as error:
            if error.reason != "FILE_NOT_FOUND":
                raise
            return _SeenFile(path, "", "")
        if len({page.content_sha256 for page in pages}) == 1:
            break
    else:
        fail(f"{path} is changed repeatedly by another program; try again when that program has finished", FAILURE)
    return _whole(pages)


def _pages(client: MemorydClient, agent: str, path: str) -> Iterator[messages.MemoryGetResponse]:
    line = 1
    while line:
        page = client.get(agent_id=agent, path=path, start_line=line, line_count=_PAGE_LINES)
        yield page
        line = page.next_start_line


def _whole(pages: Sequence[messages.MemoryGetResponse]) -> _SeenFile:
    path, digest = pages[0].path, pages[0].content_sha256
    text = "\n".join(page.text for page in pages)
    if not digest:
        fail(f"{path} is a transcript, which cannot be edited", USAGE)
    if any(page.truncated for page in pages):
        fail(f"{path} has a line that is too long to be read through memoryd; edit the file directly", FAILURE)
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        fail(f"{path} contains bytes that are not UTF-8 text; edit the file directly", FAILURE)
    return _SeenFile(path, text, digest)


def _require_edits(client: MemorydClient, agent: str) -> None:
    """Fail before the editor starts if the text could not be written."""
    used = used_agent(client, agent)
    if used is not None and not used.may_edit:
        fail(
            f"the files of agent {used.agent_id!r} cannot be edited through this connection: edits need the setting "
            '`memoryd.writes: "edit"` and, over TCP, a token with the scope `edit` (`memoryd token new --scope edit`)',
            PRECONDITION,
        )


@dataclass(slots=True)
class _Copy:
    """A private copy of a file, which is deleted unless `kept` is set."""

    seen: _SeenFile
    file: Path
    kept: bool = False

    def keep(self) -> Path:
        """Keep the copy, and return its path."""
        self.kept = True
        return self.file

    def data(self) -> bytes:
        """Return the content of the copy; that of the file if the copy is missing."""
        try:
            return self.file.read_bytes()
        except FileNotFoundError:
            return self.seen.text.encode()

    def changed_text(self) -> str | None:
        """Return the text of the copy; None if it is the same as that of the file."""
        data = self.data()
        if data == self.seen.text.encode():
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            fail(f"your text is not valid UTF-8, so it was not written: {error}; it is in {self.keep()}", FAILURE)


@contextmanager
def _private_copy(seen: _SeenFile) -> Iterator[_Copy]:
    """Yield a copy in a folder that only this user can read. It has the name of the file, for the editor's modes."""
    folder = Path(tempfile.mkdtemp(prefix="memoryd-"))
    copy = _Copy(seen, folder / Path(seen.path).name)
    try:
        copy.file.write_bytes(seen.text.encode())
        yield copy
    finally:
        if not copy.kept:
            shutil.rmtree(folder, ignore_errors=True)


def _run_editor(command: Sequence[str], copy: _Copy) -> None:
    """Run the editor until it ends. If it fails, fail, and keep a text that was changed."""
    try:
        process = subprocess.Popen([*command, str(copy.file)])  # noqa: S603 -- the user's own command
    except OSError as error:
        fail(f"cannot start the editor {shlex.join(command)!r}: {error.strerror}; set $VISUAL or $EDITOR", FAILURE)
    # Ctrl-C at the terminal is for the editor.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, previous)
    if code:
        text = f"; your text is in {copy.keep()}" if copy.data() != copy.seen.text.encode() else ""
        fail(f"the editor ended with status {code}; nothing was written{text}", FAILURE)


def _write(client: MemorydClient, agent: str, copy: _Copy, text: str) -> messages.MemoryWriteResponse:
    """Write the text. If that fails, keep the copy, and print its path."""
    from memoryd.client import MemorydError  # noqa: PLC0415 -- not needed for help

    seen = copy.seen
    try:
        return client.write(agent_id=agent, path=seen.path, expected_sha256=seen.content_sha256, content=text)
    except MemorydError as error:
        kept = copy.keep()
        if error.reason != "CONTENT_CHANGED":
            complain(f"your text is in {kept}")
            raise
    complain(f"{seen.path} was changed by another program during the edit, so your text was not written")
    _show_changes(seen, _read(client, agent, seen.path))
    complain(f"your text is in {kept}")
    again = shlex.join(["edit", *(["--agent", agent] if agent else []), seen.path])
    complain(f"to continue, run `{program_name()} {again}` again and copy your text from there", "CONTENT_CHANGED")
    sys.exit(FAILURE)


def _show_changes(seen: _SeenFile, current: _SeenFile) -> None:
    """Print on standard error how the file was changed since it was read."""
    from memoryd_server.writing import unified_diff  # noqa: PLC0415 -- only after a conflict

    if not current.content_sha256:
        complain(f"{seen.path} no longer exists")
        return
    diff, truncated = unified_diff(
        seen.text.encode(),
        current.text.encode(),
        before_name=seen.path,
        after_name=seen.path,
        most_bytes=_MOST_DIFF_BYTES,
    )
    print_diff(diff, truncated=truncated, err=True)


def _unchanged(seen: _SeenFile) -> messages.MemoryWriteResponse:
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    return messages.MemoryWriteResponse(path=seen.path, content_sha256=seen.content_sha256)
