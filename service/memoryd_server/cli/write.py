"""Append, flush, forget.

`memoryd append` and `memoryd flush`: writing notes, and when to.

`memoryd forget`: what is to be found no more.
"""

import sys
from collections.abc import Iterator

import click

from memoryd import messages
from memoryd_server.cli.connection import session
from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    enum_word,
    json_option,
    reported,
    show,
)


@click.command()
@common_options
@agent_option
@json_option
@click.option("--path", default="", help="MEMORY.md or a file under memory/; today's log when it is not given.")
@click.option("--key", default="", help="Idempotency key: a repeated call writes nothing.")
@click.option("--heading", default="", help="Heading above the text.")
@click.option("--time-zone", default="", help="IANA time zone whose day names the log.")
@click.argument("text")
def append(
    common: CommonOptions, agent: str, as_json: bool, path: str, key: str, heading: str, time_zone: str, text: str
) -> None:
    """Appends TEXT to a memory file; `-` reads it from standard input."""
    content = sys.stdin.read() if text == "-" else text
    with reported(), session(common) as found:
        done = found.client.append(
            agent_id=agent, text=content, path=path, idempotency_key=key, heading=heading, time_zone=time_zone
        )
        show(done, lambda: iter([_appended_line(done)]), as_json=as_json)


def _appended_line(done: messages.MemoryAppendResponse) -> str:
    word = "Already appended" if done.already_appended else "Appended"
    return f"{word}: {done.path}:{done.start_line}-{done.end_line}"


@click.command()
@common_options
@agent_option
@json_option
@click.option("--total-tokens", type=int, help="Tokens in the context after the last turn.")
@click.option("--incoming-tokens", type=int, default=0, help="Tokens of the prompt about to be sent.")
@click.option("--output-tokens", type=int, default=0, help="Tokens of the last reply.")
@click.option("--context-window", type=int, default=0, help="The model's window.")
@click.option("--transcript-bytes", type=int, help="Size of the transcript.")
@click.option("--compaction-count", type=int, default=0, help="Compactions so far.")
@click.option("--last-flush-count", type=int, help="The flush count stored at the last flush; leave out when none.")
@click.option("--time-zone", default="", help="IANA time zone whose day names the log.")
def flush(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    total_tokens: int | None,
    incoming_tokens: int,
    output_tokens: int,
    context_window: int,
    transcript_bytes: int | None,
    compaction_count: int,
    last_flush_count: int | None,
    time_zone: str,
) -> None:
    """Decides whether lasting notes should be written before the context is compacted."""
    request = messages.FlushDecisionRequest(
        agent_id=agent,
        total_tokens=total_tokens,
        incoming_prompt_tokens=incoming_tokens,
        last_output_tokens=output_tokens,
        context_window_tokens=context_window,
        transcript_bytes=transcript_bytes,
        compaction_count=compaction_count,
        last_flush_compaction_count=last_flush_count,
        time_zone=time_zone,
    )
    with reported(), session(common) as found:
        decision = found.client.flush_decision(request)
        show(decision, lambda: _decision_lines(decision), as_json=as_json)


def _decision_lines(decision: messages.FlushDecisionResponse) -> Iterator[str]:
    reason = enum_word(messages.FlushReason.Name(decision.reason), "FLUSH_REASON_")
    yield f"{'Flush now' if decision.flush else 'No flush'}: {reason}."
    yield f"threshold {decision.threshold_tokens:,} · projected {decision.projected_tokens:,} tokens"
    if decision.flush:
        yield f"write {decision.target_path}, then store flush_compaction_count {decision.flush_compaction_count}"


@click.command()
@common_options
@agent_option
@json_option
@click.option("--session", "session_id", help="A session's id: its transcripts, rotated ones included.")
@click.option("--text", help="A text: the embeddings cached for it.")
@click.option("--delete-source", is_flag=True, help="Delete the Markdown file or the transcripts themselves, too.")
@click.argument("path", required=False)
def forget(
    common: CommonOptions,
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
