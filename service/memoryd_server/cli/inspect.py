"""`memoryd agents`, `files` and `config`: what there is, and why."""

from collections.abc import Iterator

import click

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd_server.cli.index import all_agents
from memoryd_server.cli.options import Common, agent_option, common_options, json_option
from memoryd_server.cli.output import bytes_text, enum_word, print_json, reported
from memoryd_server.cli.session import session


@click.command()
@common_options
@json_option
def agents(common: Common, as_json: bool) -> None:
    """Lists the configured agents."""
    with reported(), session(common) as found:
        listed = list(all_agents(found.client))
    if as_json:
        print_json([messages.to_dict(agent) for agent in listed])
        return
    for agent in listed:
        state = enum_word(messages.IndexState.Name(agent.index_state), "INDEX_STATE_")
        mark = " (default)" if agent.default else ""
        click.echo(f"{agent.agent_id}{mark}: {state if agent.enabled else 'disabled'}, {agent.workspace}")


@click.command()
@common_options
@agent_option
@json_option
def files(common: Common, agent: str, as_json: bool) -> None:
    """Lists an agent's memory files, each with whether it can be found, or why not."""
    with reported(), session(common) as found:
        listed = list(_all_files(found.client, agent))
    if as_json:
        print_json([messages.to_dict(file) for file in listed])
        return
    for file in listed:
        state = enum_word(messages.FileState.Name(file.state), "FILE_STATE_")
        why = f": {file.error}" if file.error else ""
        click.echo(f"{state:8} {bytes_text(file.size_bytes):>10} {file.chunks:>5} chunks  {file.path}{why}")


def _all_files(client: MemorydClient, agent: str) -> Iterator[messages.File]:
    token = ""
    while True:
        page = client.list_files(agent_id=agent, page_size=1000, page_token=token)
        yield from page.files
        token = page.next_page_token
        if not token:
            return


@click.command()
@common_options
@json_option
def config(common: Common, as_json: bool) -> None:
    """Prints every setting, its value and where it came from; secrets are masked."""
    with reported():
        settings = common.settings()
        described = settings.describe()
    if as_json:
        print_json({"settings": described, "warnings": list(settings.warnings)})
        return
    width = max(len(str(entry["key"])) for entry in described)
    for entry in described:
        click.echo(f"{entry['key']:<{width}}  {entry['value']}  ({entry['origin']})")
    for warning in settings.warnings:
        click.echo(f"memoryd: warning: {warning}", err=True)
