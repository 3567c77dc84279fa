"""What the memory of an agent must contain: every append, every version of every note, and what was forgotten."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

LETTERS = "bcdfghjklmnpqrtvwxz"
WIDTH = 5
PREFIX = "zq"
_STEP = 7_919


def token_of(number):
    """Return a word that no other number has, which no stemmer changes."""
    letters, rest = "", number * _STEP % len(LETTERS) ** WIDTH
    for _ in range(WIDTH):
        rest, letter = divmod(rest, len(LETTERS))
        letters += LETTERS[letter]
    return PREFIX + letters


def is_part_of_edit(line):
    """Return whether a line is `edit <number>`, or its beginning or end: a snippet may be cut within a line."""
    return "edit ".startswith(line) or "edit ".endswith(line.rstrip("0123456789"))


@dataclass
class Append:
    """One append. Without a key it was sent once. `answer` is (first line, last line) once it is acknowledged."""

    token: str
    path: str
    text: str
    key: str = ""
    heading: str = ""
    answer: tuple | None = None


@dataclass
class Note:
    """A file that only the soak test writes. `versions` are (token, text), `saved` counts the complete saves."""

    path: str
    versions: list = field(default_factory=list)
    saved: int = 0

    @property
    def is_resting(self):
        """Whether no save is in progress."""
        return self.saved == len(self.versions)


@dataclass
class Session:
    """A transcript; `forgotten` once its removal was acknowledged."""

    session_id: str
    tokens: list
    forgotten: bool = False
    source_deleted: bool = False


@dataclass
class AgentModel:
    """The model of one agent's memory."""

    agent_id: str
    workspace: Path
    sessions_folder: Path
    appends: dict = field(default_factory=dict)
    lines: dict = field(default_factory=dict)
    edited: set = field(default_factory=set)
    notes: dict = field(default_factory=dict)
    sessions: dict = field(default_factory=dict)
    archives: set = field(default_factory=set)
    forgotten: dict = field(default_factory=dict)
    revision: int = 0

    def acknowledged(self, path=None):
        """Return the acknowledged appends, of all files or of one."""
        return [each for each in self.appends.values() if each.answer and path in {None, each.path}]

    def sending(self, append):
        """Record an append before it is sent."""
        self.appends[append.token] = append
        lines = self.lines.setdefault(append.path, set())
        lines.update(append.text.split("\n"))
        if append.heading:
            lines.add(f"## {append.heading}")

    def is_known_line(self, path, line):
        """Return whether a line, or a part of it, was sent to an append file or written by its editor."""
        known = self.lines[path]
        if not line.strip() or line in known or (path in self.edited and is_part_of_edit(line)):
            return True
        return any(line in other for other in known)

    def wrong_copies(self, path, content):
        """Return (token, copies) of each append of which a file's content has a wrong number of copies."""
        found = Counter(word for word in content.replace("<", " ").split() if word.startswith(PREFIX))
        wrong = []
        for append in self.appends.values():
            if append.path != path:
                continue
            # Each text contains its token once.
            copies, whole = found[append.token], content.count(append.text)
            if (copies, whole) != (1, 1) and (append.answer or (copies, whole) != (0, 0)):
                wrong.append((append.token, copies, whole, bool(append.answer), append.key))
        return wrong

    def is_version(self, path, text):
        """Return whether a text is a part of a version of a note.

        Some editors save in place. A reader can then get the beginning of one version and the end of a later one.
        """
        versions = [version for _, version in self.notes[path].versions]
        if any(text in version for version in versions):
            return True
        return any(
            any(text[:end] in version for version in versions) and any(text[end:] in version for version in versions)
            for end in range(1, len(text))
        )

    def forget_file(self, path):
        """Move everything in a file to the forgotten words."""
        for token in [token for token, append in self.appends.items() if append.path == path]:
            del self.appends[token]
            self.forgotten[token] = path
        self.lines.pop(path, None)


@dataclass
class EntryModel:
    """The entries of one agent: acknowledged texts by id, and the ids whose removal was acknowledged.

    `sent` holds every text. `uncertain` counts removals by text that were not acknowledged, each of which may have
    removed one entry.
    """

    stored: dict = field(default_factory=dict)
    forgotten: dict = field(default_factory=dict)
    sent: set = field(default_factory=set)
    uncertain: int = 0

    def remove(self, entry_id):
        """Record an acknowledged removal."""
        self.forgotten[entry_id] = self.stored.pop(entry_id, "")

    def problems(self, listed):
        """Compare (id, text) of all listed entries with the model; return what differs."""
        texts = dict(listed)
        found = []
        if len(texts) != len(listed):
            found.append(("listed twice", [each for each, count in Counter(i for i, _ in listed).items() if count > 1]))
        if doubled := [text for text, count in Counter(texts.values()).items() if count > 1]:
            found.append(("stored twice", doubled))
        missing = {key: text for key, text in self.stored.items() if key not in texts}
        if len(missing) > self.uncertain:
            found.append(("lost", missing))
        if changed := {key: texts[key] for key, text in self.stored.items() if texts.get(key, text) != text}:
            found.append(("changed", changed))
        if kept := self.forgotten.keys() & texts.keys():
            found.append(("forgotten and listed", sorted(kept)))
        if strange := set(texts.values()) - self.sent:
            found.append(("never sent", sorted(strange)))
        return found
