"""The names of imported conversations: notes below `memory/imported/<origin>/`, and sessions.

The name of a note is `<date>-<words of the title>-<key>.md`; the key has 8 or 16 hexadecimal digits. The notes of a
long conversation have the same key, and from the second one on a number: `-<key>-2.md`. The id of a session is
`import-<origin>-<id or key>`.
"""

import re
from typing import Final

from memoryd_server.sources.roots import MEMORY_FOLDER

IMPORTED_FOLDER: Final = f"{MEMORY_FOLDER}/imported"

IMPORTED_SESSION_PREFIX: Final = "import-"
_SESSION = re.compile(r"import-(?:chatgpt|claude|claude-code|codex)-.")

SHORT_KEY_CHARS: Final = 8
LONG_KEY_CHARS: Final = 16
"""The characters of the key of a note whose short key is that of another conversation, too."""

_NAME = re.compile(r"(?:\A|-)([0-9a-f]{16}|[0-9a-f]{8})(?:-([2-9]|[1-9][0-9]{1,3}))?\.md\Z")


def note_name_key(name: str) -> tuple[str, int] | None:
    """Return the short key in the name of a note, and the number of its part; None for another name."""
    match = _NAME.search(name)
    return None if match is None else (match[1][:SHORT_KEY_CHARS], int(match[2] or 1))


def note_name_stem(name: str) -> str:
    """Return the name or path of a note without the number of its part and `.md`."""
    match = _NAME.search(name.rpartition("/")[2])
    return name.removesuffix(".md" if match is None or match[2] is None else f"-{match[2]}.md")


def imported_note_key(path: str) -> tuple[str, str] | None:
    """Return the origin and the key of an imported note, as in its path; None for the path of another file."""
    folder, _, name = path.rpartition("/")
    parent, _, origin = folder.rpartition("/")
    match = _NAME.search(name) if parent == IMPORTED_FOLDER else None
    return None if match is None else (origin, match[1])


def is_imported_session(session_id: str) -> bool:
    """Return whether a session id is that of an imported conversation."""
    return _SESSION.match(session_id) is not None


def path_without_title(path: str) -> str:
    """Return the path by which a deleted imported note is remembered; "" for the path of another file.

    It contains the origin and the key, but no words of the title.
    """
    found = imported_note_key(path)
    return "" if found is None else f"{IMPORTED_FOLDER}/{found[0]}/{found[1]}.md"
