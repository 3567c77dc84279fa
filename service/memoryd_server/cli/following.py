"""Follows a sync run, with a progress bar for people."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd_server.cli.output import print_json_line


def follow_quietly(client: MemorydClient, agent: str) -> messages.SyncCompleted:
    """Syncs with a bar on standard error that goes away; files that fail are told there."""
    with client.sync(agent_id=agent) as events:
        return follow_with_bar(events, label="indexing", transient=True)


def follow_with_bar(
    events: Iterable[messages.SyncResponse], *, label: str, transient: bool = False
) -> messages.SyncCompleted:
    """Follows a run to its end with a bar on standard error where that is a terminal."""
    completed = messages.SyncCompleted()
    with _bar(label, transient=transient) as (bar, task):
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "progress":
                bar.update(task, total=event.progress.total_files or None, completed=event.progress.completed_files)
            elif kind == "file_failed":
                click.echo(f"memoryd: {event.file_failed.path}: {event.file_failed.error}", err=True)
            elif kind == "completed":
                completed = event.completed
    return completed


def follow_as_json(events: Iterable[messages.SyncResponse], agent: str) -> messages.SyncCompleted:
    """Follow a run to its end; print one line of JSON an event, with the agent's id as `agentId`."""
    completed = messages.SyncCompleted()
    for event in events:
        print_json_line({"agentId": agent, **messages.to_dict(event)})
        if event.WhichOneof("event") == "completed":
            completed = event.completed
    return completed


def is_complete(done: messages.SyncCompleted) -> bool:
    """Return whether every file is indexed and no vector that is wanted is missing."""
    return not (done.failed_files or done.vectors_missing)


@contextmanager
def _bar(label: str, *, transient: bool) -> Iterator[tuple[Progress, TaskID]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    disable = not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=transient, disable=disable) as progress:
        yield progress, progress.add_task(label, total=None)
