"""The paths of the memory tool, and the memory files that they name.

    /memories/a.md        memory/a.md
    /memories/notes.txt   memory/notes.txt.md
    /memories/notes       memory/notes.md
    /memories/projects/   the files below memory/projects/

memoryd stores Markdown only, so `.md` is added to every other name. A list shows `notes.txt` again, without the added
`.md`, because a name without `.md` that has a suffix always names the same file.
"""

import re
from dataclasses import dataclass

ROOT = "/memories"
FOLDER = "memory"
MARKDOWN = ".md"

_SUFFIX = re.compile(r".\.[A-Za-z0-9]{1,16}\Z")
_ENCODED_SEPARATOR = re.compile(r"%(2e|2f|5c)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ToolProblem(Exception):
    """A call of the tool that failed. The message is its result text, which the model reads."""


@dataclass(frozen=True, slots=True)
class MemoryPath:
    """A path of the tool. `given` is the path as the model wrote it, and `parts` are the names below `/memories`.

    `is_directory` is true for `/memories` and for a path that ends with a slash. Every other path can name a file or a
    directory.
    """

    given: str
    parts: tuple[str, ...]
    is_directory: bool

    @property
    def file(self) -> str:
        """Return the memory file that the path names."""
        path = "/".join((FOLDER, *self.parts))
        return path if path.endswith(MARKDOWN) else path + MARKDOWN

    @property
    def prefix(self) -> str:
        """Return the beginning of the paths of all memory files below the directory that the path names."""
        return "/".join((FOLDER, *self.parts, ""))


def parse_path(given: str) -> MemoryPath:
    """Return the path that a model wrote. Repeated slashes count as one.

    Raises:
        ToolProblem: the path is not `/memories` or below it, or contains `.` or `..` as a name, a backslash, a control
            character or a percent-encoded separator.
    """
    first, *names = given.split("/")[1:] or [""]
    parts = tuple(name for name in names if name)
    refused = {".", ".."}.intersection(parts) or "\\" in given or _CONTROL.search(given)
    if not given.startswith("/") or first != ROOT[1:] or refused or _ENCODED_SEPARATOR.search(given):
        raise ToolProblem(
            f"Error: The path {given} is not valid. A path is {ROOT} or begins with {ROOT}/, and contains no "
            "backslash, no control character, no `.` or `..` as a name, and no percent-encoded separator"
        )
    return MemoryPath(given, parts, not parts or given.endswith("/"))


def listed_path(file: str) -> MemoryPath:
    """Return the path by which a list shows a memory file below `memory/`."""
    *folders, name = file.removeprefix(f"{FOLDER}/").split("/")
    return MemoryPath("/".join((ROOT, *folders, shown_name(name))), (*folders, name), is_directory=False)


def printable(path: str) -> str:
    """Return the path of a memory file without control characters, which could forge lines of a list."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", path)


def shown_name(name: str) -> str:
    """Return the name by which a list shows a memory file: without an added `.md`."""
    rest = name.removesuffix(MARKDOWN)
    return rest if _SUFFIX.search(rest) and not rest.endswith(MARKDOWN) else name
