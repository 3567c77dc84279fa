"""`memoryd import folder` and `memoryd export folder`: copy an agent's files between a folder and the database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    agent_option,
    bytes_text,
    complain,
    fail,
    location_options,
    print_json,
    printable,
    reported,
)
from memoryd_server.cli.progress import progress_bar

if TYPE_CHECKING:
    from memoryd_server.app import DocumentCopies
    from memoryd_server.postgres import CopyOptions, CopyReport

_F = TypeVar("_F", bound=Callable[..., Any])
_FOLDER = click.Path(file_okay=False, path_type=Path)
_MOST_SHOWN = 20
_KEPT = "A transcript that exists is extended, never replaced."
_JSON_HELP = "Print the report as JSON: numbers of files, and the paths of those that were kept or skipped."


@click.group()
def export() -> None:
    """Copy memory files and transcripts from the database of memoryd.store.url."""


def _copy_options(sessions_help: str) -> Callable[[_F], _F]:
    def add(command: _F) -> _F:
        for option in (
            click.argument("folder", type=_FOLDER),
            click.option("--json", "as_json", is_flag=True, help=_JSON_HELP),
            click.option("--dry-run", is_flag=True, help="Copy nothing; show what would be copied."),
            click.option(
                "--replace", is_flag=True, help="Replace memory files that differ. Default: keep and list them."
            ),
            click.option("--sessions", type=_FOLDER, help=f"{sessions_help} {_KEPT}"),
            agent_option,
        ):
            command = option(command)
        return location_options(command)

    return add


@click.command(name="folder")
@_copy_options("Also copy the transcripts in this folder into the database.")
def import_folder(**given: Any) -> None:
    """Copy the memory files of the workspace FOLDER into PostgreSQL (memoryd.store.url).

    These are MEMORY.md, memory.md, USER.md, DREAMS.md, .memoryignore and the Markdown files below memory/. Files that
    are equal in the database are not copied, so an interrupted import can be repeated; no file is deleted. At the end,
    the SHA-256 of all files is compared. If a file was kept because it differs, was skipped, or changed during the
    import, the command lists it and exits with status 1. Running daemons are notified at the end, and index the files
    then; a daemon that is not connected to the database at that moment indexes them after it has connected again.
    """
    _run(given, into_database=True)


@export.command(name="folder")
@_copy_options("Also copy the transcripts from the database into this folder.")
def export_folder(**given: Any) -> None:
    """Copy the memory files of an agent from PostgreSQL (memoryd.store.url) into FOLDER.

    FOLDER is created if it is missing. Files that are equal are not written, so an interrupted export can be repeated;
    other files in FOLDER are not changed. At the end, the SHA-256 of all files is compared. If a file was kept because
    it differs, was skipped, or changed during the export, the command lists it and exits with status 1. The history of
    edits is not exported.
    """
    _run(given, into_database=False)


def _run(given: Mapping[str, Any], *, into_database: bool) -> None:
    from memoryd_server.app import open_copies  # noqa: PLC0415 -- not needed for help

    common = CommonOptions(given["config"], given["state_dir"], given["workspace"], address=None, token_file=None)
    folder, sessions = given["folder"], given["sessions"]
    with reported():
        settings = common.settings(read_secrets=False)
        with open_copies(settings, given["agent"], folder, sessions) as copies:
            if not into_database and not given["dry_run"]:
                for each in filter(None, (folder, sessions)):
                    _create(each)
            # First, so that no sync indexes a forgotten file between.
            forgotten, problem = (0, "") if not into_database or given["dry_run"] else copies.forgotten.into_database()
            reports = _copy(copies, given, into_database=into_database)
            if into_database and not given["dry_run"]:
                copies.documents.notify_replicas()
    is_complete = all(report.is_complete for report in reports.values()) and not problem
    if given["as_json"]:
        shown = {name: asdict(report) for name, report in reports.items()}
        totals = {"agent": copies.agent_id, "database": copies.location, "dryRun": given["dry_run"]}
        print_json({**totals, **({"forgotten": forgotten} if into_database else {}), **shown})
    else:
        if forgotten:
            click.echo(f"Copied the list of {forgotten} forgotten files and sessions, which stay out of the index.")
        for name, report in reports.items():
            for line in report_lines(name, report, dry_run=given["dry_run"]):
                click.echo(printable(line))
            hint = "--replace replaces it" if name == "files" else "transcripts are never replaced"
            complain_of(name, report, f"differs and was kept; {hint}")
    if problem:
        complain(printable(problem))
    if not is_complete:
        sys.exit(FAILURE)


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{printable(str(folder))} cannot be created: {error.strerror}", FAILURE)


def _copy(copies: DocumentCopies, given: Mapping[str, Any], *, into_database: bool) -> dict[str, CopyReport]:
    from memoryd_server.postgres import CopyOptions  # noqa: PLC0415 -- an extra

    reports: dict[str, CopyReport] = {}
    with progress_bar(transient=True) as bar:
        options = partial(CopyOptions, replace=given["replace"], dry_run=given["dry_run"])
        files = options(progress=lambda done, total: bar.update("Files", done, total))
        reports["files"] = _one_way(copies.files, files, into_database=into_database)
        if copies.transcripts is not None:
            transcripts = options(progress=lambda done, total: bar.update("Transcripts", done, total))
            reports["transcripts"] = _one_way(copies.transcripts, transcripts, into_database=into_database)
    return reports


def _one_way(copy: Any, options: CopyOptions, *, into_database: bool) -> CopyReport:
    report: CopyReport = copy.into_database(options) if into_database else copy.into_folder(options)
    return report


def report_lines(name: str, report: CopyReport, *, dry_run: bool, has_sizes: bool = True) -> Iterator[str]:
    """Yield what a copy did, as lines of text; `name` is the plural of what was copied."""
    verb = "Would copy" if dry_run else "Copied"
    size = f" ({bytes_text(report.copied_bytes)})" if has_sizes else ""
    text = f"{verb} {report.copied} {name}{size}; {report.equal} were equal"
    yield text + (f", {report.replaced} replaced." if report.replaced else ".")
    if report.verified:
        yield f"Compared {report.verified} {name} afterwards: {len(report.mismatched)} differ."
    if report.others:
        yield f"Left out {len(report.others)} other files below memory/: they are not Markdown."


def complain_of(name: str, report: CopyReport, conflict: str, skipped: str = "was skipped: ") -> None:
    """Print why a copy is not complete; `conflict` says what was done with what differs."""
    messages = {
        **{path: f"{skipped}{reason}" for path, reason in report.skipped.items()},
        **dict.fromkeys(report.conflicts, conflict),
        **dict.fromkeys(report.mismatched, "changed during the copy; repeat the command"),
    }
    for path, message in list(messages.items())[:_MOST_SHOWN]:
        complain(printable(f"{path} {message}"))
    if len(messages) > _MOST_SHOWN:
        complain(f"{len(messages) - _MOST_SHOWN} more {name} were kept, skipped or changed; --json lists all")
