"""The last messages of a transcript, and the transcript that the name of a session means."""

from collections.abc import Callable, Sequence

from memoryd_server.errors import FileNotFound, MemorydError, PathNotAllowed
from memoryd_server.model import Source, SourceFile
from memoryd_server.sources.corpus import Corpus
from memoryd_server.sources.roots import Location
from memoryd_server.sources.session_list import is_transcript_name, session_path
from memoryd_server.sources.session_source import Transcript, open_quickly, open_transcript
from memoryd_server.sources.transcript_text import Message
from memoryd_server.sources.transcripts import TranscriptReader, is_rotated, is_transcript, session_id

_FIRST_TAIL_BYTES = 1 << 20
# The events that are read at first for each wanted message.
_TAIL_EVENTS = 4
_TAIL_GROWTH = 4
_TOPIC = "-topic-"


def last_messages(
    reader: Transcript,
    count: int,
    keep: Callable[[Message], bool] = lambda _: True,
    *,
    first_tail_bytes: int = _FIRST_TAIL_BYTES,
) -> list[Message]:
    """Return the last `count` messages of an open transcript that `keep` accepts, in order.

    Reads only as much of its end as necessary. The `line` numbers of the messages of a file are 0.
    """
    is_file = isinstance(reader, TranscriptReader)
    tail = first_tail_bytes if is_file else _TAIL_EVENTS * count
    while True:
        if isinstance(reader, TranscriptReader):
            found = [message for message in reader.tail_messages(tail) if keep(message)]
        else:
            lines = reader.lines(reader.position_after(max(0, reader.stat.size_bytes - tail)))
            found = [line.message for line in lines if line.message is not None and keep(line.message)]
        if len(found) >= count or tail >= reader.stat.size_bytes:
            return found[len(found) - min(count, len(found)) :]
        tail *= _TAIL_GROWTH


def last_session_messages(
    database: str,
    agent_id: str,
    folder: str,
    session: str,
    count: int,
    *,
    keep: Callable[[Message], bool] = lambda _: True,
) -> list[Message] | None:
    """Return the last `count` messages of a session in the agent's database that `keep` accepts, in order.

    None if the database has no such session, or cannot be read.
    """
    name = f"{session}.jsonl"
    if not is_transcript_name(name):
        return None
    place = Location(session_path(agent_id, name), folder, (name,), Source.SESSIONS, database, agent_id)
    try:
        with open_transcript(place, open_database=open_quickly) as reader:
            return last_messages(reader, count, keep)
    except (OSError, MemorydError):
        return None


def messages_of_session(
    corpus: Corpus, name: str, count: int, keep: Callable[[Message], bool]
) -> tuple[str, list[Message]]:
    """Return the id of a session, and the last `count` messages of its transcript that `keep` accepts. Blocks.

    `name` is a file name or session id. If a transcript was rotated, or restarted and has no message yet, the messages
    are read from the session's newest rotated file, else from the files of its topics.

    Raises:
        PathNotAllowed: `name` is not a file name or session id, or the transcripts are not readable.
        FileNotFound: the transcript does not exist.
    """
    if not name or "/" in name or "\0" in name or name in {".", ".."}:
        raise PathNotAllowed(name, "it is not the name of a transcript or the id of a session")
    try:
        files = _candidates([file for file in corpus.list_transcripts() if is_transcript(file.parts[-1])], name)
        for file in files:
            with corpus.open_transcript(file, quickly=True) as reader:
                messages = last_messages(reader, count, keep)
            if messages:
                return session_id(file.parts[-1]), messages
    except FileNotFound:
        raise _no_transcript(name) from None
    except OSError as error:
        raise PathNotAllowed(name, f"the transcript cannot be read: {error.strerror}") from error
    if not files:
        raise _no_transcript(name)
    return session_id(files[0].parts[-1]), []


def _candidates(files: Sequence[SourceFile], name: str) -> Sequence[SourceFile]:
    named = [file for file in files if file.parts[-1] == name]
    if named and is_rotated(name):
        return named
    session = session_id(name)
    live = [file for file in files if _session(file) == session and not is_rotated(file.parts[-1])]
    rotated = [file for file in files if _session(file) == session and is_rotated(file.parts[-1])]
    topics = [file for file in files if _session(file).startswith(session + _TOPIC)]
    return live + _newest_first(rotated) + _newest_first(topics)


def _session(file: SourceFile) -> str:
    return session_id(file.parts[-1])


def _newest_first(files: list[SourceFile]) -> list[SourceFile]:
    return sorted(files, key=lambda file: (file.stat.mtime_ns, file.parts[-1]), reverse=True)


def _no_transcript(name: str) -> FileNotFound:
    return FileNotFound(
        f"no transcript {name!r} in the agent's sessions folder; name a file in it or a session id",
        metadata={"path": name},
    )
