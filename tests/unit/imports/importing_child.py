"""Import conversations into a workspace and a folder of sessions; print a line after each. Killed by its parent."""

import sys
from pathlib import Path

from imported import conversation
from memoryd_server.imports import (
    FolderNotes,
    FolderTranscripts,
    ImportOptions,
    NoteImport,
    NoteOptions,
    SessionImport,
    import_all,
)
from memoryd_server.sources import Roots

COUNT = 20
MOST_BYTES = 20_000


def conversations(messages):
    """Conversations of some messages each, of which every tenth has several notes."""
    for number in range(COUNT):
        words = "word " * (1000 if number % 10 == 0 else 10)
        yield conversation(*[f"{number} {part} {words}" for part in range(messages)], own=f"own-{number}")


def run(workspace, sessions, messages, progress=lambda: None):
    """Import into both places, and return both reports."""
    notes, transcripts = FolderNotes(Roots(str(workspace)), 1 << 20), FolderTranscripts(sessions)
    options = ImportOptions(progress=progress)
    with notes.locked(), transcripts.locked():
        note_import = NoteImport(notes, (), NoteOptions(most_bytes=MOST_BYTES))
        return (
            import_all(conversations(messages), note_import, options),
            import_all(conversations(messages), SessionImport(transcripts, ()), options),
        )


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), lambda: print("done", flush=True))  # noqa: T201
    # Wait for the kill, also after the last conversation.
    sys.stdin.read()
