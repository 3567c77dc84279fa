"""`memoryd history`, `diff` and `undo`: list the writes to memory files, show what one changed, and undo one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import (
    FAILURE,
    NOT_FOUND,
    CommonOptions,
    agent_option,
    bytes_text,
    common_options,
    complain,
    connected,
    enum_word,
    fail,
    json_option,
    printable,
    show,
)

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient

_MOST_PAGE = 1_000


@click.command()
@common_options
@agent_option
@json_option
@click.option("--limit", type=click.IntRange(min=1), default=100, help="Maximum number of writes. Default: 100.")
@click.option("--diff", "with_diffs", is_flag=True, help="Also show what each write changed.")
@click.argument("path", default="")
def history(common: CommonOptions, agent: str, as_json: bool, limit: int, with_diffs: bool, path: str) -> None:
    """List the writes to a memory file, newest first.

    Without PATH, lists the writes to all files of the agent. Each line shows the time, the ID, the operation, the size
    before and after, the caller and the path. Appends are not listed.
    """
    with connected(common) as daemon:
        listed = _listed(daemon.client, agent, path, limit, with_diffs=with_diffs)
    if as_json or not with_diffs:
        show(listed, lambda: _history_lines(listed, path), as_json=as_json)
        return
    for version, line in zip(listed.versions, _version_lines(listed), strict=True):
        click.echo(printable(line))
        print_diff(version.diff, truncated=version.diff_truncated)


def _listed(
    client: MemorydClient, agent: str, path: str, limit: int, *, with_diffs: bool
) -> messages.MemoryHistoryResponse:
    """Return the newest writes, of as many pages as are needed, and the token of the page after them."""
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    listed = messages.MemoryHistoryResponse()
    while True:
        page = client.history(
            agent_id=agent,
            path=path,
            include_diffs=with_diffs,
            page_size=min(limit - len(listed.versions), _MOST_PAGE),
            page_token=listed.next_page_token,
        )
        listed.versions.extend(page.versions)
        listed.next_page_token = page.next_page_token
        if not page.next_page_token or len(listed.versions) >= limit:
            return listed


def _history_lines(listed: messages.MemoryHistoryResponse, path: str) -> Iterator[str]:
    if not listed.versions:
        yield f"The history has no write to {path}." if path else "The history has no writes."
    yield from _version_lines(listed)


def _version_lines(listed: messages.MemoryHistoryResponse) -> Iterator[str]:
    rows = [_columns(version) for version in listed.versions]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _columns(version: messages.FileVersion) -> tuple[str, ...]:
    time = version.time.ToDatetime(tzinfo=UTC).astimezone()
    before = bytes_text(version.before_bytes) if version.before_sha256 else "-"
    after = bytes_text(version.after_bytes) if version.after_sha256 else "-"
    path = f"{version.moved_from} -> {version.path}" if version.moved_from else version.path
    # A file name may contain line breaks, which would look like other writes.
    path = re.sub(r"\s", " ", path)
    note = "" if version.restorable else "not restorable"
    kind = enum_word(version, "kind")
    return f"{time:%Y-%m-%d %H:%M:%S}", version.version_id, kind, f"{before} -> {after}", version.caller, path, note


@click.command()
@common_options
@agent_option
@json_option
@click.argument("target", metavar="PATH|VERSION")
def diff(common: CommonOptions, agent: str, as_json: bool, target: str) -> None:
    """Show what a write changed, as a unified diff.

    PATH is a file, whose newest write is shown. VERSION is the ID of a write, as `memoryd history` prints it.
    """
    with connected(common) as daemon:
        version = _version(daemon.client, agent, target)
    if as_json:
        show(version, lambda: iter(()), as_json=True)
        return
    if not version.diff:
        complain(f"{_no_diff_reason(version)}: {_description(version)}")
    print_diff(version.diff, truncated=version.diff_truncated)


def _version(client: MemorydClient, agent: str, target: str) -> messages.FileVersion:
    """Return a write by its ID, or the newest write to a path, with its diff."""
    if not target.strip():
        # An empty path would be that of all files.
        raise click.UsageError("the argument is empty; pass a path or the ID of a write")
    # Every path of a memory file ends with `.md`; an ID has no full stop.
    path, version_id = (target, "") if "." in target or "/" in target else ("", target)
    page = client.history(agent_id=agent, path=path, version_id=version_id, include_diffs=True, page_size=1)
    if not page.versions:
        fail(f"the history has no write {f'to {path}' if path else version_id}", NOT_FOUND)
    return page.versions[0]


def _no_diff_reason(version: messages.FileVersion) -> str:
    # An empty file is created and deleted without a line of difference.
    if version.before_sha256 == version.after_sha256 or version.before_bytes == version.after_bytes == 0:
        return "this write did not change the content"
    return "there is no diff, because the history no longer has the content before or after this write"


def _description(version: messages.FileVersion) -> str:
    return "  ".join(filter(None, _columns(version)))


def print_diff(diff: str, *, truncated: bool = False, err: bool = False) -> None:
    """Print a unified diff: at a terminal, in colours and without control characters.

    `truncated` adds a note on standard error. `err` prints the diff there, too.
    """
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help

    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        # `click.echo` would remove escape sequences.
        stream.write(diff if diff.endswith("\n") or not diff else diff + "\n")
    else:
        plain = Environment.of_process().text("NO_COLOR") is not None
        for line in diff.removesuffix("\n").split("\n") if diff else ():
            shown = printable(line)
            click.echo(shown if plain else click.style(shown, fg=_colour(line)), err=err)
    if truncated:
        complain("the diff is longer than shown")


def _colour(line: str) -> str | None:
    if line.startswith(("---", "+++")):
        return None
    return {"-": "red", "+": "green", "@": "cyan"}.get(line[:1])


@click.command()
@common_options
@agent_option
@json_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. Implied by --json, and without a terminal.")
@click.option(
    "--force", is_flag=True, help="Undo even if the file was changed after the write. The history keeps that change."
)
@click.argument("target", metavar="PATH|VERSION")
def undo(common: CommonOptions, agent: str, as_json: bool, yes: bool, force: bool, target: str) -> None:
    """Undo a write: restore the content before it.

    PATH is a file, whose newest write is undone. VERSION is the ID of a write, as `memoryd history` prints it. If the
    write moved the file, it is moved back. An undo is itself a write, so a second undo of the same PATH undoes the
    first one.
    """
    interactive = not (yes or as_json) and _is_at_terminal()
    with connected(common) as daemon:
        client = daemon.client
        version = _version(client, agent, target)
        current = _current_sha256(client, agent, version.path)
        _require_undoable(version, current, force=force)
        if interactive and not _is_confirmed(version):
            fail("nothing was changed", FAILURE)
        if version.moved_from:
            moved = client.move(agent_id=agent, path=version.path, new_path=version.moved_from, expected_sha256=current)
            show(moved, lambda: iter([f"Moved back: {version.path} -> {moved.path}"]), as_json=as_json)
            return
        restored = client.restore(agent_id=agent, version_id=version.version_id, expected_sha256=current)
        word = "Restored" if restored.content_sha256 else "Deleted"
        show(restored, lambda: iter([f"{word}: {restored.path}"]), as_json=as_json)


def _is_at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _current_sha256(client: MemorydClient, agent: str, path: str) -> str:
    """Return the SHA-256 of a file, empty if it does not exist."""
    from memoryd.client import MemorydError  # noqa: PLC0415 -- not needed for help

    try:
        return client.get(agent_id=agent, path=path, line_count=1).content_sha256
    except MemorydError as error:
        if error.reason != "FILE_NOT_FOUND":
            raise
        return ""


def _require_undoable(version: messages.FileVersion, current: str, *, force: bool) -> None:
    path = version.path
    if version.moved_from:
        if not current:
            fail(f"{path} no longer exists, so it cannot be moved back to {version.moved_from}", NOT_FOUND)
        return
    if not version.restorable:
        fail(f"the history no longer has the content of {path} before this write, so it cannot be restored", NOT_FOUND)
    if current != version.after_sha256 and not force:
        state = "was changed" if current else "was deleted or moved"
        fail(
            f"{path} {state} after this write; undo would discard that change, too. Compare `memoryd get {path}` with "
            f"`memoryd diff {version.version_id}`, or repeat the command with --force; the history keeps the discarded "
            "content",
            FAILURE,
        )


def _is_confirmed(version: messages.FileVersion) -> bool:
    click.echo(printable(f"Undo this write: {_description(version)}"))
    print_diff(version.diff, truncated=version.diff_truncated)
    return click.confirm("Undo it?")
