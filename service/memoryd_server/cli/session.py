"""`memoryd session`: the files that a session loads at its start, and the archive written at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import CommonOptions, agent_option, common_options, connected, json_option, show

if TYPE_CHECKING:
    from memoryd import messages


@click.group()
def session() -> None:
    """Show the context of a session, and archive its transcript."""


@session.command()
@common_options
@agent_option
@json_option
@click.option(
    "--session-key", default="", help="Key of the session. Only the agent's main session loads MEMORY.md and USER.md."
)
@click.option("--max-chars", type=int, help="Maximum total length of all texts, in characters.")
@click.option("--recall", is_flag=True, help="Also show the recall section of the system prompt, and the tool schemas.")
@click.option("--time-zone", default="", help="IANA time zone of the session's date.")
def context(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    session_key: str,
    max_chars: int | None,
    recall: bool,
    time_zone: str,
) -> None:
    """Show the files that a session loads at its start."""
    with connected(common) as daemon:
        reply = daemon.client.session_context(
            agent_id=agent,
            session_key=session_key,
            max_total_chars=max_chars,
            include_recall_prompt=recall,
            time_zone=time_zone,
        )
        show(reply, lambda: _context_lines(reply), as_json=as_json)


def _context_lines(reply: messages.SessionContextResponse) -> Iterator[str]:
    for file in reply.files:
        yield f"== {file.path} ({_file_note(file)})"
        if file.text:
            yield file.text
    if reply.recall_prompt:
        yield f"== recall section\n{reply.recall_prompt}"
    for tool in reply.tool_schemas:
        yield f"== {tool.name}: {tool.description}\n{tool.parameters_json}"


def _file_note(file: messages.SessionContextFile) -> str:
    if not file.exists:
        return "missing"
    if file.problem:
        return f"not read: {file.problem}"
    if not file.text:
        return "omitted: no space left" if file.truncated else "empty"
    return f"lines {file.start_line}-{file.end_line}{', truncated' if file.truncated else ''}"


@session.command()
@common_options
@agent_option
@json_option
@click.option("--slug", default="", help="Short name for the file. Default: a name derived from the text.")
@click.option("--messages", "count", type=int, help="Number of messages to keep, counted from the end.  [default: 15]")
@click.option("--session-key", default="", help="Session key to write in the header of the file.")
@click.option("--time-zone", default="", help="IANA time zone of the file's date.")
@click.argument("transcript")
def archive(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    slug: str,
    count: int | None,
    session_key: str,
    time_zone: str,
    transcript: str,
) -> None:
    """Write the last messages of a transcript to a memory file.

    TRANSCRIPT is a file name or a session ID.
    """
    with connected(common) as daemon:
        done = daemon.client.session_archive(
            agent_id=agent,
            transcript=transcript,
            slug=slug,
            message_count=count,
            session_key=session_key,
            time_zone=time_zone,
        )
        show(done, lambda: iter([_archived_line(done)]), as_json=as_json)


def _archived_line(done: messages.SessionArchiveResponse) -> str:
    if not done.path:
        return "The transcript contains no messages; no file was written."
    word = "Already archived" if done.already_archived else "Archived"
    return f"{word}: {done.messages} {'message' if done.messages == 1 else 'messages'} in {done.path}"
