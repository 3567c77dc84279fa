"""The commands of the memory tool, each a generator of the calls of the client that it needs; see `_memory_files`."""

import re
from collections.abc import Callable, Mapping

from memoryd._memory_files import MISSING, Edit, MemoryFiles, Steps
from memoryd._memory_paths import ROOT, MemoryPath, ToolProblem, listed_path, parse_path
from memoryd._memory_texts import lines_of_occurrences, listing, numbered, snippet, split_lines
from memoryd.failure import MemorydError
from memoryd.v1 import memory_service_pb2 as pb

# Errors whose message tells the model what to change in its call.
_OF_THE_CALL = frozenset({"INVALID_REQUEST", "PATH_NOT_ALLOWED"})
_SURROGATE = re.compile("[\ud800-\udfff]")


class Arguments:
    """The arguments of a call of the tool, which a model wrote."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        """Return an argument that is a text.

        Raises:
            ToolProblem: it is missing, is not a text, or contains half of a surrogate pair.
        """
        value = self._given.get(name)
        if value is None:
            raise ToolProblem(f"Error: The parameter `{name}` is missing")
        if not isinstance(value, str):
            raise ToolProblem(f"Error: The parameter `{name}` must be a string")
        if _SURROGATE.search(value):
            raise ToolProblem(f"Error: The parameter `{name}` is not valid Unicode text")
        return value

    def path(self, name: str = "path") -> MemoryPath:
        """Return an argument that is a path.

        Raises:
            ToolProblem: it is missing or not a valid path.
        """
        return parse_path(self.text(name))

    def integer(self, name: str) -> int:
        """Return an argument that is an integer.

        Raises:
            ToolProblem: it is missing or not an integer.
        """
        value = self._given.get(name)
        if value is None:
            raise ToolProblem(f"Error: The parameter `{name}` is missing")
        return _integer(name, value)

    def view_range(self) -> tuple[int, int]:
        """Return the first and the last line to view. A last line of -1 means the last line of the file.

        Raises:
            ToolProblem: the argument is neither missing nor a list of two integers in order.
        """
        value = self._given.get("view_range")
        if value is None:
            return 1, -1
        if not isinstance(value, list | tuple) or len(value) != 2:  # noqa: PLR2004 -- first and last line
            raise ToolProblem("Error: Invalid `view_range` parameter. It should be a list of two integers")
        first, last = (_integer("view_range", each) for each in value)
        if last != -1 and last < max(first, 1):
            raise ToolProblem(
                f"Error: Invalid `view_range` parameter: [{first}, {last}]. Its second element should be -1 or not "
                "less than its first element"
            )
        return max(first, 1), last


def _integer(name: str, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ToolProblem(f"Error: Invalid `{name}` parameter: {value}. It should be an integer")
    return value


def run(given: object, agent_id: str) -> Steps[str]:
    """Execute a call of the tool with the input `given`, and return its result text.

    Raises:
        MemorydError: a call of the client failed for a reason that the model cannot change.
    """
    try:
        if not isinstance(given, Mapping):
            return "Error: The input must be an object"
        arguments = Arguments(given)
        name = arguments.text("command")
        command = _COMMANDS.get(name)
        if command is None:
            return f"Error: Unknown command: {name}. The commands are {', '.join(_COMMANDS)}"
        return (yield from command(MemoryFiles(agent_id), arguments))
    except ToolProblem as problem:
        return str(problem)
    except MemorydError as error:
        of_agent = any(violation.field == "agent_id" for violation in error.violations)
        if error.reason not in _OF_THE_CALL or of_agent:
            raise
        return f"Error: {error.message}"


def _view(files: MemoryFiles, arguments: Arguments) -> Steps[str]:
    path = arguments.path()
    first, last = arguments.view_range()
    if not path.is_directory:
        try:
            return (yield from _view_file(files, path, first, last))
        except MemorydError as error:
            if error.reason != MISSING:
                raise
    found = yield from files.below(path)
    if path.parts and not found:
        return f"The path {path.given} does not exist. Please provide a valid path."
    return listing(path, found)


def _view_file(files: MemoryFiles, path: MemoryPath, first: int, last: int) -> Steps[str]:
    found = yield from files.read(path, first, last)
    lines = found.lines
    if lines and not lines[-1] and first + len(lines) - 1 == found.total:
        lines = lines[:-1]
    if not lines and first > 1:
        return (
            f"Error: Invalid `view_range` parameter: [{first}, {last}]. Its first element is after the last line of "
            "the file"
        )
    cut = [f"\n(Line {number} is too long: only its beginning is shown)" for number in found.cut]
    return f"Here's the content of {path.given} with line numbers:\n{numbered(lines, first)}{''.join(cut)}"


def _create(files: MemoryFiles, arguments: Arguments) -> Steps[str]:
    path, content = arguments.path(), arguments.text("file_text")
    _require_file_name(path)
    created = yield from files.create(path, content)
    if not created:
        return f"Error: File {path.given} already exists"
    return f"File created successfully at: {path.given}"


def _str_replace(files: MemoryFiles, arguments: Arguments) -> Steps[str]:
    path, old, new = arguments.path(), arguments.text("old_str"), arguments.text("new_str")
    if not old:
        return "Error: The parameter `old_str` must not be empty"

    def plan(text: str) -> Edit:
        start = text.find(old)
        if start < 0:
            raise ToolProblem(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path.given}.")
        if text.find(old, start + 1) >= 0:
            raise ToolProblem(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
                f"{lines_of_occurrences(text, old)}. Please ensure it is unique"
            )
        changed = text[:start] + new + text[start + len(old) :]
        return Edit(
            {"replace": pb.TextReplacement(old_text=old, new_text=new)},
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            + snippet(changed, start, len(new)),
        )

    missing = f"Error: The path {path.given} does not exist. Please provide a valid path."
    return (yield from _edit(files, path, plan, missing))


def _insert(files: MemoryFiles, arguments: Arguments) -> Steps[str]:
    path, line, inserted = arguments.path(), arguments.integer("insert_line"), arguments.text("insert_text")

    def plan(text: str) -> Edit:
        count = len(split_lines(text))
        if not 0 <= line <= count:
            raise ToolProblem(
                f"Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: "
                f"[0, {count}]"
            )
        lines = inserted if inserted.endswith("\n") else f"{inserted}\n"
        operation = {"insert": pb.LineInsertion(after_line=line, text=lines)}
        return Edit(operation, f"The file {path.given} has been edited.")

    return (yield from _edit(files, path, plan, f"Error: The path {path.given} does not exist"))


def _edit(files: MemoryFiles, path: MemoryPath, plan: Callable[[str], Edit], missing: str) -> Steps[str]:
    """Edit a file, and return the result text; `missing` if there is no file."""
    if path.is_directory:
        return missing
    try:
        return (yield from files.edit(path, plan))
    except MemorydError as error:
        if error.reason != MISSING:
            raise
        return missing


def _delete(files: MemoryFiles, arguments: Arguments) -> Steps[str]:
    path = arguments.path()
    if not path.parts:
        return f"Error: Cannot delete the {ROOT} directory itself"
    deleted = (not path.is_directory) and (yield from _deleted(files, path))
    if not deleted:
        found = yield from files.below(path)
        if not found:
            return f"Error: The path {path.given} does not exist"
        for file, _ in found:
            yield from _deleted(files, listed_path(file))
    return f"Successfully deleted {path.given}"


def _deleted(files: MemoryFiles, path: MemoryPath) -> Steps[bool]:
    """Delete a file, and return whether it existed."""
    try:
        yield from files.delete(path)
    except MemorydError as error:
        if error.reason != MISSING:
            raise
        return False
    return True


def _rename(files: MemoryFiles, arguments: Arguments) -> Steps[str]:
    source, target = arguments.path("old_path"), arguments.path("new_path")
    if not source.parts:
        return f"Error: Cannot rename the {ROOT} directory itself"
    if not target.parts or (yield from files.below(target)):
        return _occupied(target)
    if not source.is_directory and (yield from files.exists(source)):
        _require_file_name(target)
        moved = yield from _moved(files, source, target)
        if moved is None:
            return f"Error: The path {source.given} does not exist"
        return _renamed(source, target) if moved else _occupied(target)
    return (yield from _rename_directory(files, source, target))


def _moved(files: MemoryFiles, source: MemoryPath, target: MemoryPath) -> Steps[bool | None]:
    """Move a file, and return whether there was no file at `target`; None if the file does not exist any more."""
    try:
        return (yield from files.move(source, target))
    except MemorydError as error:
        if error.reason != MISSING:
            raise
        return None


def _rename_directory(files: MemoryFiles, source: MemoryPath, target: MemoryPath) -> Steps[str]:
    found = yield from files.below(source)
    if not found:
        return f"Error: The path {source.given} does not exist"
    if target.prefix.startswith(source.prefix):
        return f"Error: Cannot rename {source.given} to a path below itself"
    if (yield from files.exists(target)):
        return _occupied(target)
    for count, (file, _) in enumerate(found):
        renamed = listed_path(target.prefix + file.removeprefix(source.prefix))
        if (yield from _moved(files, listed_path(file), renamed)) is False:
            return f"{_occupied(renamed)}. {count} of {len(found)} files were renamed"
    return _renamed(source, target)


def _renamed(source: MemoryPath, target: MemoryPath) -> str:
    return f"Successfully renamed {source.given} to {target.given}"


def _occupied(target: MemoryPath) -> str:
    return f"Error: The destination {target.given} already exists"


def _require_file_name(path: MemoryPath) -> None:
    if path.is_directory:
        raise ToolProblem(f"Error: The path {path.given} names a directory, not a file")


_COMMANDS: Mapping[str, Callable[[MemoryFiles, Arguments], Steps[str]]] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
    "delete": _delete,
    "rename": _rename,
}
