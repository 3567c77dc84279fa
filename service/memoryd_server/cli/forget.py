"""`memoryd forget`: what is to be found no more."""

from collections.abc import Iterator

import click

from memoryd import messages
from memoryd_server.cli.options import Common, agent_option, common_options, json_option
from memoryd_server.cli.output import reported, show
from memoryd_server.cli.session import session


@click.command()
@common_options
@agent_option
@json_option
@click.option("--session", "session_id", help="A session's id: its transcripts, rotated ones included.")
@click.option("--text", help="A text: the embeddings cached for it.")
@click.option("--delete-source", is_flag=True, help="Delete the Markdown file or the transcripts themselves, too.")
@click.argument("path", required=False)
def forget(
    common: Common,
    agent: str,
    as_json: bool,
    session_id: str | None,
    text: str | None,
    delete_source: bool,
    path: str | None,
) -> None:
    """Removes the memory file PATH, a session or a text from the index, the cache and qmd, and says what was removed.

    The file itself stays, unless --delete-source is given, and is indexed again when its content changes.
    """
    given = {"path": path, "session_id": session_id, "text": text}
    target = {name: value for name, value in given.items() if value is not None}
    if len(target) != 1:
        raise click.UsageError("name one of PATH, --session and --text")
    with reported(), session(common) as found:
        request = messages.MemoryForgetRequest(agent_id=agent, delete_source=delete_source, **target)
        done = found.client.forget(request)
        show(done, lambda: _lines(done), as_json=as_json)


def _lines(done: messages.MemoryForgetResponse) -> Iterator[str]:
    counts = {
        "chunks": done.chunks,
        "keyword entries": done.keyword_entries,
        "vectors": done.vectors,
        "cached embeddings": done.cached_embeddings,
        "qmd documents": done.qmd_documents,
        "source files": done.source_files,
    }
    yield "Removed: " + (", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing was left")
    if done.purge_pending:
        yield "The words are still to be overwritten on the disk, which happens by itself within about a minute."
