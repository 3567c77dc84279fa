"""`memoryd recall`: print the block of memories that a gateway inserts before a turn."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.filters import ALL_SOURCES, filter_options, source_option
from memoryd_server.cli.options import (
    CommonOptions,
    agent_option,
    common_options,
    complain,
    enum_word,
    json_option,
    show,
)
from memoryd_server.cli.searched_memory import (
    complain_about,
    max_staleness_option,
    nothing_indexed,
    searched_memory,
    session_key_option,
)

if TYPE_CHECKING:
    from memoryd import messages


@click.command()
@common_options
@agent_option
@json_option
@click.option(
    "--max-tokens", type=int, help="Maximum length of the block in tokens. Default: memoryd.recall.maxTokens."
)
@click.option("--max-chars", type=int, help="Maximum length of the block in characters.")
@click.option(
    "--min-confidence",
    type=float,
    help="Print nothing if the confidence is lower, 0 to 1. Default: memoryd.recall.minConfidence, or "
    "minKeywordConfidence if only keyword search answered.",
)
@source_option(
    ALL_SOURCES, "Only this source. Repeated: any. Default: all configured sources, and entries if they are enabled."
)
@filter_options
@click.option(
    "--remember-shown",
    is_flag=True,
    help="Do not return again what was returned for --session-key. Requires a running daemon.",
)
@click.option(
    "--explain", is_flag=True, help="Print on standard error why each item is in the block; add details to the JSON."
)
@max_staleness_option
@session_key_option
@click.argument("text", nargs=-1)
def recall(
    common: CommonOptions,
    agent: str,
    as_json: bool,
    max_tokens: int | None,
    max_chars: int | None,
    min_confidence: float | None,
    sources: list[str],
    file_filter: dict[str, Any] | None,
    remember_shown: bool,
    explain: bool,
    max_staleness: dict[str, int] | None,
    session_key: str | None,
    text: tuple[str, ...],
) -> None:
    """Print what the memory contains about a message, as a text block to insert before it.

    TEXT is the user's message. If it is `-`, it is read from standard input. If nothing is relevant enough, prints
    nothing, and the reason on standard error; the exit status is 0.

    If no daemon is running, the index is updated first, and a missing local model is downloaded.
    """
    if not text:
        raise click.UsageError("there is no text; usage: memoryd recall TEXT, or memoryd recall - to read it")
    if remember_shown and not session_key:
        raise click.UsageError("--remember-shown requires --session-key: what was shown is remembered for a session")
    turn = sys.stdin.buffer.read() if text == ("-",) else os.fsencode(" ".join(text))
    with searched_memory(common, agent, session_key) as memory:
        if remember_shown and not memory.remote:
            complain("no daemon is running, so what is shown now is not remembered")
        answer = memory.client.recall(
            agent_id=agent,
            # A log that is piped into the command may contain any bytes.
            text=turn.decode("utf-8", "replace"),
            session_key=memory.session_key,
            max_tokens=max_tokens,
            max_chars=max_chars,
            min_confidence=min_confidence,
            sources=sources,
            filter=file_filter,
            remember_shown=remember_shown,
            explain=explain,
            max_staleness=max_staleness,
        )
        memory.name_approval(answer.info.degradations)
        show(answer, lambda: _lines(answer, explain=explain), as_json=as_json)


def _lines(answer: messages.MemoryRecallResponse, *, explain: bool) -> Iterator[str]:
    if answer.block:
        yield answer.block
    else:
        complain(_silence(answer))
    if explain:
        for item in answer.items:
            complain(f"{item.citation}: score {item.score:.3f}, {item.date}; {item.why}")
        complain(_summary(answer))
    complain_about(answer.info, explain=explain)


def _silence(answer: messages.MemoryRecallResponse) -> str:
    reason = enum_word(answer, "silent_reason")
    if reason == "empty index":
        return nothing_indexed()
    return f"{reason}: {answer.silent_explanation}"


def _summary(answer: messages.MemoryRecallResponse) -> str:
    mode, info = enum_word(answer.info, "served_mode"), answer.info
    confidence = f", confidence {info.confidence:.2f}" if info.HasField("confidence") else ""
    return f"{mode} search{confidence}; {answer.tokens_used:,} tokens"
