"""Which transcript an archive is made of, and what of it."""

import re
from pathlib import Path

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.flattening import Message
from memoryd_server.sources.noise import USER
from memoryd_server.sources.transcripts import TranscriptFile, last_messages, list_transcripts, session_id

_TOPIC = "-topic-"
# "/new", "/model gpt" and their like are told to the gateway; "/etc/hosts is missing" is said to the agent.
_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")


def last_said(folder: Path, asked: str, count: int) -> tuple[TranscriptFile, list[Message]]:
    """The last `count` messages of the transcript or session `asked`, commands left out, and the file that has them.

    A transcript that was rotated, or begun anew and still without a message, is looked for in its newest rotated file,
    then in those of the session's topics. Blocks.

    Raises:
        PathNotAllowed: `asked` is no file name or session id, or the folder may not be read.
        FileNotFound: there is no such transcript.
    """
    if not asked or "/" in asked or "\0" in asked or asked in {".", ".."}:
        raise PathNotAllowed(asked, "it is not the name of a transcript or the id of a session")
    try:
        files = _candidates(list_transcripts(folder), asked)
        found = ((file, last_messages(file, count, _is_said)) for file in files)
        best = next(((file, messages) for file, messages in found if messages), None)
    except FileNotFound:
        raise _no_transcript(asked) from None
    except OSError as error:
        raise PathNotAllowed(asked, f"the transcript cannot be read: {error.strerror}") from error
    if best is not None:
        return best
    if not files:
        raise _no_transcript(asked)
    return files[0], []


def _candidates(files: list[TranscriptFile], asked: str) -> list[TranscriptFile]:
    named = [file for file in files if file.file_name == asked]
    if named and named[0].rotated:
        return named
    session = session_id(asked)
    live = [file for file in files if file.session_id == session and not file.rotated]
    rotated = [file for file in files if file.session_id == session and file.rotated]
    topics = [file for file in files if file.session_id.startswith(session + _TOPIC)]
    return live + _newest_first(rotated) + _newest_first(topics)


def _newest_first(files: list[TranscriptFile]) -> list[TranscriptFile]:
    return sorted(files, key=lambda file: (file.mtime_ns, file.file_name), reverse=True)


def _is_said(message: Message) -> bool:
    return message.role != USER or not _COMMAND.match(message.text)


def _no_transcript(asked: str) -> FileNotFound:
    return FileNotFound(
        f"no transcript {asked!r} in the agent's sessions folder; name a file in it or a session id",
        metadata={"path": asked},
    )
