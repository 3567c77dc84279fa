"""`memoryd append`, `flush` and `forget`: write notes, decide when to, and remove notes from the index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    connected,
    enum_word,
    json_option,
    show,
)

if TYPE_CHECKING:
    from memoryd import messages

time_zone_option = click.option("--time-zone", default="", help="IANA time zone that determines today's date.")


@click.command()
@common_options
@agent_option
@json_option
@click.option(
    "--path", default="", help="File to append to: MEMORY.md, USER.md or a file under memory/. Default: today's log."
)
@click.option("--key", default="", help="Idempotency key: a second call with this key writes nothing.")
@click.option("--heading", default="", help="Heading above the text.")
@time_zone_option
@click.argument("text")
def append(
    common: CommonOptions, agent: str, as_json: bool, path: str, key: str, heading: str, time_zone: str, text: str
) -> None:
    """Append TEXT to a memory file.

    If TEXT is `-`, the text is read from standard input.
    """
    content = sys.stdin.read() if text == "-" else text
    with connected(common) as daemon:
        done = daemon.client.append(
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
@click.option("--incoming-tokens", type=int, default=0, help="Tokens of the next prompt.")
@click.option("--output-tokens", type=int, default=0, help="Tokens of the last reply.")
@click.option("--context-window", type=int, default=0, help="Context window of the model, in tokens.")
@click.option("--transcript-bytes", type=int, help="Size of the transcript in bytes.")
@click.option("--compaction-count", type=int, default=0, help="Number of compactions so far.")
@click.option("--last-flush-count", type=int, help="flush_compaction_count of the last flush; omit if there was none.")
@time_zone_option
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
    """Decide whether to write notes before the context is compacted."""
    with connected(common) as daemon:
        decision = daemon.client.flush_decision(
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
        show(decision, lambda: _decision_lines(decision), as_json=as_json)


def _decision_lines(decision: messages.FlushDecisionResponse) -> Iterator[str]:
    reason = enum_word(decision, "reason")
    yield f"{'Flush now' if decision.flush else 'No flush'}: {reason}."
    yield f"threshold {decision.threshold_tokens:,} · projected {decision.projected_tokens:,} tokens"
    if decision.flush:
        yield f"write {decision.target_path}, then store flush_compaction_count {decision.flush_compaction_count}"


@click.command()
@common_options
@agent_option
@json_option
@click.option(
    "--session", "session_id", help="Remove the transcripts of the session with this id, including rotated ones."
)
@click.option("--text", help="Remove the cached embeddings of this text.")
@click.option("--delete-source", is_flag=True, help="Also delete the Markdown file or the transcripts.")
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
    """Remove a file, a session or text from the index and the caches.

    PATH is a memory file. The file itself is kept unless --delete-source is given; it is indexed again if its content
    changes. Prints what was removed.
    """
    given = {"path": path, "session_id": session_id, "text": text}
    target: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if len(target) != 1:
        raise click.UsageError("give exactly one of PATH, --session and --text")
    with connected(common) as daemon:
        done = daemon.client.forget(agent_id=agent, delete_source=delete_source, **target)
        show(done, lambda: _lines(done), as_json=as_json)


def _lines(done: messages.MemoryForgetResponse) -> Iterator[str]:
    counts = {
        "chunks": done.chunks,
        "keyword entries": done.keyword_entries,
        "vectors": done.vectors,
        "cached embeddings": done.cached_embeddings,
        "qmd documents": done.qmd_documents,
        "source files": done.source_files,
        "contents of the history": done.history_contents,
    }
    yield "Removed: " + (", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing")
    if done.purge_pending:
        yield (
            "The deleted words are still on disk; the daemon removes them within about a minute, or with PostgreSQL "
            "when it next runs VACUUM."
        )
