"""`memoryd import`: the group of its commands, and those that import conversations of other programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoryd_server.cli.copies import import_folder
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
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
    from memoryd_server.app import ConversationImport
    from memoryd_server.imports import ConversationFormat, ImportReport

_F = TypeVar("_F", bound=Callable[..., Any])
_MOST_SHOWN = 20
_MOST_PATHS = 10
_MB = 1_000_000
_TO_HELP = (
    "Write Markdown notes below memory/imported, or transcripts, which searches find only if the settings index them. "
    "Default: notes."
)
_AGENT_HELP = (
    "Agent whose memory the conversations are written to. Default: main, or the default agent if there is no main. "
    "Required if no agent is the default."
)
_JSON_HELP = "Print the report as JSON: numbers, written paths, kept notes, and parts that cannot be read."


@click.group(name="import")
def import_() -> None:
    """Import conversations of other programs, or copy a folder into PostgreSQL.

    An import can be repeated: it writes only what is new or has changed. Edited notes, and files that differ in the
    database, are kept and listed unless --replace is given.
    """


import_.add_command(import_folder)


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a program keeps its conversations: the folder that an environment variable names, or one in the home."""

    variable: str
    folder: str
    below: str = ""

    def path(self, environ: Mapping[str, str]) -> Path:
        """Return the folder, which may not exist."""
        return Path(environ.get(self.variable) or Path.home() / self.folder) / self.below


_HOMES: Mapping[str, _Home] = {
    "claude-code": _Home("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    "codex": _Home("CODEX_HOME", ".codex"),
}


def _import_options(*, files_required: bool) -> Callable[[_F], _F]:
    def add(command: _F) -> _F:
        for option in (
            click.argument(
                "files",
                metavar="FILE..." if files_required else "[FILE...]",
                nargs=-1,
                required=files_required,
                type=click.Path(path_type=Path),
            ),
            click.option("--json", "as_json", is_flag=True, help=_JSON_HELP),
            click.option("--dry-run", is_flag=True, help="Write nothing; show what would be written."),
            click.option(
                "--replace",
                is_flag=True,
                help="If a conversation has changed, replace its note also if the note was edited. Default: keep it.",
            ),
            click.option(
                "--since",
                type=click.DateTime(["%Y-%m-%d"]),
                metavar="DATE",
                help="Import only what was last changed on this day (UTC) or later, or has no time.",
            ),
            click.option("--to", type=click.Choice(["notes", "sessions"]), default="notes", help=_TO_HELP),
            click.option("--agent", default="", help=_AGENT_HELP),
        ):
            command = option(command)
        return location_options(command)

    return add


@import_.command(name="chatgpt")
@_import_options(files_required=True)
def import_chatgpt(**given: Any) -> None:
    """Import the conversations of ChatGPT's data export.

    Each FILE is the zip archive of the export, its unpacked folder, or one of its files conversations.json or
    conversations-000.json. Secrets are masked, but not all secrets are recognized. If a note was edited and its
    conversation has changed, the note is kept and listed, and the exit status is 1. It is also 1 if parts of the export
    cannot be read.
    """
    _run("chatgpt", given)


@import_.command(name="claude")
@_import_options(files_required=True)
def import_claude(**given: Any) -> None:
    """Import conversations and documents of Claude's data export.

    Documents are memories, and the instructions and files of projects. Each FILE is a zip archive of the export, a
    folder with the archives or with their content, or one of the JSON files. Secrets are masked, but not all secrets
    are recognized. If a note was edited and its conversation or document has changed, the note is kept and listed, and
    the exit status is 1. It is also 1 if parts of the export cannot be read.
    """
    _run("claude", given)


@import_.command(name="claude-code")
@_import_options(files_required=False)
def import_claude_code(**given: Any) -> None:
    """Import the sessions of Claude Code.

    Each FILE is a session file (<session>.jsonl), or a folder or zip archive of them. Default: the folder projects in
    CLAUDE_CONFIG_DIR, else in ~/.claude. Tool calls and their results are left out. Secrets are masked, but not all
    secrets are recognized. If a note was edited and its session has changed, the note is kept and listed, and the exit
    status is 1. It is also 1 if parts of a session file cannot be read.
    """
    _run("claude-code", given)


@import_.command(name="codex")
@_import_options(files_required=False)
def import_codex(**given: Any) -> None:
    """Import the sessions of Codex.

    Each FILE is a session file (rollout-*.jsonl or rollout-*.jsonl.zst), or a folder or zip archive of them. Default:
    CODEX_HOME, else ~/.codex. Tool calls and their results are left out. Secrets are masked, but not all secrets are
    recognized. If a note was edited and its session has changed, the note is kept and listed, and the exit status is 1.
    It is also 1 if parts of a session file cannot be read.
    """
    _run("codex", given)


def _run(origin: str, given: Mapping[str, Any]) -> None:
    from memoryd_server.app import ConversationImportOptions, open_conversation_import  # noqa: PLC0415 -- not needed for help
    from memoryd_server.imports import CONVERSATION_FORMATS  # noqa: PLC0415 -- as above
    from memoryd_server.settings import process_environment  # noqa: PLC0415 -- as above

    files = given["files"]
    if not files:
        files = [_HOMES[origin].path(process_environment())]
        if not given["as_json"]:
            click.echo(printable(f"Reading {files[0]}."))
    common = CommonOptions(given["config"], given["state_dir"], given["workspace"], address=None, token_file=None)
    options = ConversationImportOptions(given["to"], given["replace"], given["dry_run"])
    since = given["since"] and given["since"].replace(tzinfo=UTC)
    with reported():
        settings = common.settings(read_secrets=False)
        with open_conversation_import(settings, given["agent"], options) as opened:
            if opened.problem:
                complain(printable(opened.problem))
            report = _import(CONVERSATION_FORMATS[origin], files, opened, since)
            if not given["dry_run"]:
                opened.notify()
    if given["as_json"]:
        print_json({"agent": opened.agent_id, "place": opened.place, "dryRun": given["dry_run"], **_as_json(report)})
    else:
        for line in _report_lines(report, opened, {**given, "origin": origin}):
            click.echo(printable(line))
        _complain(report)
    if not report.is_complete:
        sys.exit(FAILURE)


def _import(
    format_: ConversationFormat, files: list[Path], opened: ConversationImport, since: datetime | None
) -> ImportReport:
    from memoryd_server.imports import ImportOptions, InputFiles, import_all  # noqa: PLC0415 -- not needed for help

    try:
        with (
            progress_bar(transient=True) as bar,
            InputFiles(files, format_.is_file, format_.looked_for) as inputs,
        ):
            total = inputs.total_bytes

            def show() -> None:
                bar.update("Import", min(inputs.bytes_read, total) // _MB, total // _MB, "MB")

            return import_all(chain(inputs.unreadable, format_.read(inputs)), opened.target, ImportOptions(since, show))
    except PermissionError:
        raise
    except OSError as error:
        fail(printable(f"the import stopped: {error.strerror or error}; repeat the command to continue it"), FAILURE)


def _as_json(report: ImportReport) -> dict[str, Any]:
    from memoryd_server.imports import Effect  # noqa: PLC0415 -- not needed for help

    names = {Effect.BEFORE_SINCE: "beforeSince"}
    return {
        **{
            names.get(effect, effect.value): report.counts[effect] for effect in Effect if effect is not Effect.CONFLICT
        },
        "messages": report.messages,
        "writtenBytes": report.written_bytes,
        "paths": report.paths,
        "conflicts": report.conflicts,
        "unreadable": [asdict(each) for each in report.unreadable],
    }


def _report_lines(report: ImportReport, opened: ConversationImport, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an import did, as lines of text."""
    from memoryd_server.imports import Effect  # noqa: PLC0415 -- not needed for help

    counts, is_dry_run = report.counts, given["dry_run"]
    total = sum(counts[each] for each in (Effect.NEW, Effect.UPDATED, Effect.UNCHANGED))
    left_out = len(report.conflicts) + len(report.unreadable)
    more = {
        "older than what was imported before": counts[Effect.OLDER],
        "forgotten": counts[Effect.FORGOTTEN],
        f"before {given['since'] and given['since'].date()}": counts[Effect.BEFORE_SINCE],
        "documents, which only --to notes imports": counts[Effect.UNSUITABLE],
        "left out": left_out,
    }
    noun = f"conversation{'' if total == 1 else 's'}"
    if given["origin"] == "claude":
        noun = "conversations and documents"
    rest = ", ".join(f"{count} {words}" for words, count in more.items() if count)
    yield (
        f"{'Would import' if is_dry_run else 'Imported'} {total} {noun}: "
        f"{counts[Effect.NEW]} new, {counts[Effect.UPDATED]} updated ({bytes_text(report.written_bytes)}), "
        f"{counts[Effect.UNCHANGED]} unchanged" + (f"; {rest}." if rest else ".")
    )
    if is_dry_run:
        yield from (f"  {path}" for path in report.paths[:_MOST_PATHS])
        if len(report.paths) > _MOST_PATHS:
            yield f"  and {len(report.paths) - _MOST_PATHS} more; --json lists all"
    elif report.paths:
        yield f"Written to {opened.place}."
    if report.paths and not opened.is_indexed:
        yield (
            "The settings do not index transcripts, so searches do not find them. Set memory.search."
            'experimental.sessionMemory to true, and memory.search.sources to ["memory", "sessions"].'
            if given["to"] == "sessions"
            else 'The settings do not index memory files, so searches do not find the notes: add "memory" to sources.'
        )


def _complain(report: ImportReport) -> None:
    """Print what was left out, and why."""
    lines = [f"{path} {reason}" for path, reason in report.conflicts.items()]
    lines += [f"{each.place}: {each.reason}" for each in report.unreadable]
    for line in lines[:_MOST_SHOWN]:
        complain(printable(line))
    if len(lines) > _MOST_SHOWN:
        complain(f"{len(lines) - _MOST_SHOWN} more were left out; --json lists all")
