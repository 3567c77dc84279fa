"""`memoryd session`: what a session loads at its start, and what is kept of it at its end."""

from collections.abc import Iterator

import click

from memoryd import messages
from memoryd_server.cli.connection import session as client_session
from memoryd_server.cli.options import CommonOptions, agent_option, common_options, json_option, reported, show


@click.group()
def session() -> None:
    """What a session loads at its start, and what is kept of it at its end."""


@session.command()
@common_options
@agent_option
@json_option
@click.option("--session-key", default="", help="The session; only the agent's main session loads MEMORY.md.")
@click.option("--max-chars", type=int, help="Budget for all texts together.")
@click.option("--recall", is_flag=True, help="Also the recall section of the system prompt, and the tools' schemas.")
@click.option("--time-zone", default="", help="IANA time zone of the session's day.")
def context(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    session_key: str,
    max_chars: int | None,
    recall: bool,
    time_zone: str,
) -> None:
    """Shows the files that a session loads at its start."""
    with reported(), client_session(common) as found:
        reply = found.client.session_context(
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
        return "absent"
    if file.problem:
        return f"not read: {file.problem}"
    if not file.text:
        return "left out for want of room" if file.truncated else "empty"
    return f"lines {file.start_line}-{file.end_line}{', cut' if file.truncated else ''}"


@session.command()
@common_options
@agent_option
@json_option
@click.option("--slug", default="", help="Short name for the file; one is made when it is not given.")
@click.option("--messages", "count", type=int, help="Messages to keep, counted from the end.  [default: 15]")
@click.option("--session-key", default="", help="The session, for the file's head.")
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
    """Turns the last messages of TRANSCRIPT, a file name or a session id, into a memory file."""
    with reported(), client_session(common) as found:
        done = found.client.session_archive(
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
        return "Nothing was said in this transcript; no file was written."
    word = "Already archived" if done.already_archived else "Archived"
    return f"{word}: {done.messages} {'message' if done.messages == 1 else 'messages'} in {done.path}"
