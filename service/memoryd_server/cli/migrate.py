"""`memoryd migrate`: copy agents from files into the database of memoryd.store.url."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.copies import complain_of, report_lines
from memoryd_server.cli.options import (
    FAILURE,
    CommonOptions,
    complain,
    json_option,
    print_json,
    printable,
    reported,
    settings_options,
)
from memoryd_server.cli.progress import progress_bar

if TYPE_CHECKING:
    from memoryd_server.app import AgentMigration, MigratedPart
    from memoryd_server.cli.progress import ProgressBar
    from memoryd_server.postgres import CopyReport

_WITH_SIZES = ("files", "transcripts", "history", "vectors", "indexVectors")
_REMAINS = """\
The index was not copied: a daemon builds it from the memory files, with the copied vectors. Entries, tokens and
settings are not in the database. The old home was not changed; to use it again, stop the daemon, remove
memoryd.store.url from the settings, and start the daemon. What was written to the database since is then missing."""

_KEPT = "differs in the database and was kept"


@click.command()
@settings_options
@click.option(
    "--agent", "agents", multiple=True, metavar="ID", help="Agent id. Can be repeated. Default: all configured agents."
)
@click.option(
    "--from",
    "origin",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Copy the agents of this state directory, which has its own settings. Default: those of the settings in use.",
)
@click.option("--dry-run", is_flag=True, help="Copy nothing; show what would be copied.")
@json_option
def migrate(agents: Sequence[str], origin: Path | None, *, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Copy agents from SQLite files and workspaces into the database of memoryd.store.url.

    Copies the memory files, the transcripts if they are indexed, the history of edits, the idempotency keys of appends,
    the list of forgotten files and sessions, and the embedding cache. The files are not changed. Stop the daemon that
    uses these files first; daemons of the database can run.

    An interrupted migration can be repeated: it copies what is missing, and overwrites nothing. At
    the end, everything is read from the database and compared. If something differs, was kept or skipped, the command
    lists it and exits with status 1. --dry-run can be used while the daemon runs; it creates the tables if they are
    missing, and changes nothing else.
    """
    from memoryd_server.app import HomeMigration  # noqa: PLC0415 -- not needed for help

    common = CommonOptions(given["config"], given["state_dir"], given["workspace"], None, given["token_file"])
    with reported():
        settings = common.settings(read_secrets=False)
        home = settings
        if origin is not None:
            home = replace(common, config=None, state_dir=origin).settings(read_secrets=False)
        migration = HomeMigration(settings, home)
        wanted = migration.agents(agents)
        if not dry_run:
            migration.require_unused(wanted)
        unconfigured = [] if agents else migration.unconfigured()
        reports: dict[str, list[tuple[MigratedPart, CopyReport]]] = {}
        location = ""
        with progress_bar(transient=True) as bar:
            for agent_id in wanted:
                with migration.opened(agent_id, dry_run=dry_run) as agent:
                    location = agent.location
                    reports[agent_id] = _copy(agent, agent_id, bar, dry_run=dry_run)
                if not as_json:
                    _show(agent_id, agent.workspace, reports[agent_id], dry_run=dry_run)
    is_complete = not unconfigured and all(each.is_complete for parts in reports.values() for _, each in parts)
    if as_json:
        shown = {name: {part.name: asdict(each) for part, each in parts} for name, parts in reports.items()}
        totals = {"database": location, "from": str(home.state_dir), "dryRun": dry_run, "complete": is_complete}
        print_json({**totals, "unconfigured": unconfigured, "agents": shown})
    elif not dry_run:
        click.echo(_REMAINS)
    for agent_id in unconfigured:
        complain(printable(f"the agent {agent_id} of {home.state_dir} is not configured, and was not copied"))
    if not is_complete:
        sys.exit(FAILURE)


def _copy(
    agent: AgentMigration, agent_id: str, bar: ProgressBar, *, dry_run: bool
) -> list[tuple[MigratedPart, CopyReport]]:
    from memoryd_server.postgres import CopyOptions  # noqa: PLC0415 -- an extra

    reports = []
    for part in agent.parts():
        progress = partial(bar.update, printable(f"{agent_id}: {part.noun}"))
        reports.append((part, part.copy(CopyOptions(dry_run=dry_run, progress=progress))))
    if not dry_run:
        agent.notify_replicas()
    return reports


def _show(agent_id: str, workspace: str, reports: Sequence[tuple[MigratedPart, CopyReport]], *, dry_run: bool) -> None:
    """Print what was copied of an agent, without the parts that it does not have."""
    click.echo(printable(f"Agent {agent_id}, workspace {workspace}:"))
    for part, report in reports:
        if report.copied or report.equal or report.others:
            for line in report_lines(part.noun, report, dry_run=dry_run, has_sizes=part.name in _WITH_SIZES):
                click.echo(f"  {printable(line)}")
        complain_of(part.noun, report, _KEPT, skipped="")
