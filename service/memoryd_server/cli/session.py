"""`memoryd session`: the files that a session loads at its start, its transcript, and the archive at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from memoryd_server.cli.options import CommonOptions, agent_option, common_options, connected, json_option, show
from memoryd_server.errors import FieldViolation, InvalidRequest

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient

# The limits of SessionAppend.
_MOST_RECORDS = 1_000
_MOST_BYTES = 3 * 2**20


@click.group()
def session() -> None:
    """Show the context of a session, store its transcript, and archive it."""


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


@session.command("append")
@common_options
@agent_option
@json_option
@click.option("--session-id", default="", help="Session ID. Default: the name of FILE without .jsonl.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    help="Number of records that the transcript has before the first record of FILE.  [default: 0]",
)
@click.argument("file", type=click.File("rb"))
def append_(common: CommonOptions, agent: str, as_json: bool, session_id: str, after: int, file: IO[bytes]) -> None:
    """Append the records in FILE to the transcript of a session.

    FILE has one JSON object per line; if it is `-`, standard input is read. Blank lines are skipped. The command can be
    repeated, also after FILE has grown: it compares the records that are already stored, and appends the others.
    Requires memory files in PostgreSQL (`memoryd.store.url`, with `memoryd.store.documents: "database"`).
    """
    session_id = session_id or Path(file.name).name.removesuffix(".jsonl")
    if session_id in {"", "-", "<stdin>"}:
        raise click.UsageError("--session-id is required if FILE is standard input")
    with connected(common) as daemon:
        transcript = _Transcript(daemon.client, agent, session_id)
        appended, done = 0, None
        for records in _batches(_records(file)):
            count, done = transcript.append(records, after)
            appended, after = appended + count, after + len(records)
        if done is None:
            raise InvalidRequest([FieldViolation("FILE", "has no records")])
        last = done
        show(last, lambda: iter([_stored_line(appended, last)]), as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Record:
    """A record, and the number of its line."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class _Transcript:
    """The transcript of a session, and the client that appends to it."""

    client: MemorydClient
    agent: str
    session_id: str

    def append(self, records: list[_Record], before: int) -> tuple[int, messages.SessionAppendResponse]:
        """Store records that follow the first `before` ones; return how many were missing, and the last response.

        Raises:
            ClientError: the transcript has other records there, or fewer than `before`.
        """
        from memoryd.client import MemorydError as ClientError  # noqa: PLC0415 -- help does not need gRPC

        try:
            return self._append(records, before)
        except ClientError as error:
            stored = int(error.metadata.get("records", "0")) - before
            if error.reason != "CONTENT_CHANGED" or not 0 < stored < len(records):
                raise
        # Only the first of the records are stored. They are compared, too.
        self._append(records[:stored], before)
        return self._append(records[stored:], before + stored)

    def _append(self, records: list[_Record], before: int) -> tuple[int, messages.SessionAppendResponse]:
        from memoryd.client import MemorydError as ClientError  # noqa: PLC0415 -- help does not need gRPC

        try:
            done = self.client.session_append(
                agent_id=self.agent,
                session_id=self.session_id,
                records=[record.text for record in records],
                expected_records=before,
            )
        except ClientError as error:
            lines = {f"records[{index}]": f"line {record.line}" for index, record in enumerate(records)}
            violations = [
                FieldViolation(lines.get(each.field, each.field), each.description) for each in error.violations
            ]
            if not violations:
                raise
            raise InvalidRequest(violations) from error
        return 0 if done.already_appended else len(records), done


def _records(file: IO[bytes]) -> Iterator[_Record]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise InvalidRequest([FieldViolation(f"line {number}", "is not valid UTF-8")]) from None
        yield _Record(number, text)


def _batches(records: Iterable[_Record]) -> Iterator[list[_Record]]:
    """Yield the records in lists that fit into one call each."""
    batch: list[_Record] = []
    size = 0
    for record in records:
        length = len(record.text.encode())
        if batch and (len(batch) == _MOST_RECORDS or size + length > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield batch


def _stored_line(appended: int, done: messages.SessionAppendResponse) -> str:
    words = f"{appended:,} {'record' if appended == 1 else 'records'}" if appended else "nothing"
    return f"Appended {words} to {done.path}, which has {done.records:,} records ({done.size_bytes:,} bytes)"
