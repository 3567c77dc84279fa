"""Claude's data export: conversations, and as documents memories and the instructions and files of projects.

The export is one zip archive, or several, one per kind of content. In it are

- `conversations.json`, an array of conversations. If messages state what they answer (`parent_message_uuid`), a
  conversation can have branches, of which the newest is read.
- `projects.json`, an array of projects, or `projects/<id>.json` with one each. The examples that Claude adds to an
  account are left out.
- `memories.json`, an array with one object, or `memories/<id>.json`: a summary of all conversations, one for each
  project, and files that Claude wrote.
- `design_chats/<id>.json`, conversations about designs, whose messages have another form.

What an object is, is recognized by its keys, so that a file can have any name. Reasoning, calls of tools, their results
and the content of attachments are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

from memoryd_server.imports.conversation import Conversation, Document, Imported, ImportedMessage, Unreadable
from memoryd_server.imports.input_files import InputFile
from memoryd_server.imports.json_lines import id_of, text_of, texts_of, time_of
from memoryd_server.imports.json_stream import limit_unreadable, read_objects

ORIGIN: Final = "claude"

_FILE_NAME = re.compile(r"(?:conversations|projects|memories)(?:[-_]\d{1,6})?\.json", re.IGNORECASE)
_FOLDERS = frozenset({"projects", "memories", "design_chats"})
_JUNK_FOLDER = "__MACOSX/"
_TEXT = frozenset({"text"})
# What some versions of the export have as text in place of the use of a tool.
_TOOL_PLACEHOLDER = "```\nThis block is not supported on your current device yet.\n```"
_PASTED_TEXT = "pasted text"
_MEMORIES = "Memories of Claude"
_MOST_NAME_CHARS = 200
_MOST_PROJECTS = 100_000
_NO_TIME = datetime.min.replace(tzinfo=UTC)


def is_claude_file(path: str) -> bool:
    """Return whether a file in a folder or archive has the name of a file with conversations, projects or memories."""
    file = PurePosixPath(path)
    is_in_folder = file.parent.name in _FOLDERS and file.suffix.lower() == ".json"
    return (is_in_folder or _FILE_NAME.fullmatch(file.name) is not None) and _JUNK_FOLDER not in path


def read_claude(files: Iterable[InputFile]) -> Iterator[Imported]:
    """Yield conversations and documents in files, one by one. Conversations in which nothing was said are passed over.

    Reads files of projects first, because other files only have the ids of projects.
    """
    projects: dict[str, str] = {}
    for file in sorted(files, key=lambda each: "project" not in each.path):
        yield from limit_unreadable(_read_file(file, projects), file.name)


def _read_file(file: InputFile, projects: dict[str, str]) -> Iterator[Imported]:
    for each in read_objects(file, _noun(file.path)):
        if isinstance(each, Unreadable):
            yield each
            continue
        place, value = each
        if isinstance(value.get("chat_messages"), list):
            yield from _read_conversation(place, value, projects)
        elif isinstance(value.get("messages"), list):
            yield from _read_design_chat(place, value)
        elif "prompt_template" in value or "docs" in value:
            yield from _read_project(place, value, projects)
        elif "conversations_memory" in value or "project_memories" in value or "memory_files" in value:
            yield from _read_memories(place, value, projects, _exported(file))
        else:
            yield Unreadable(place, f"it is no conversation, project or memory of Claude; {_hint(value)}")


def _hint(value: Mapping[str, Any]) -> str:
    if "mapping" in value:
        return "it is one of ChatGPT: use `memoryd import chatgpt`"
    if "data_files" in value:
        return "it is the manifest of an export: download the archives that it names, and import them"
    return "it has none of their keys"


def _noun(path: str) -> str:
    if "memor" in path:
        return "memory"
    return "project" if "project" in path else "conversation"


def _read_conversation(place: str, value: Mapping[str, Any], projects: Mapping[str, str]) -> Iterator[Imported]:
    project = _dict(value.get("project"))
    name = projects.get(text_of(value.get("project_uuid")) or text_of(project.get("uuid")), "")
    branch = _branch(value["chat_messages"], text_of(value.get("current_leaf_message_uuid")))
    messages = [_message(message.get("sender"), _text(message), message) for message in branch]
    yield from _conversation(place, value, text_of(value.get("name")), text_of(project.get("name")) or name, messages)


def _read_design_chat(place: str, value: Mapping[str, Any]) -> Iterator[Imported]:
    messages = []
    for message in _dicts(value["messages"]):
        content = _dict(message.get("content"))
        texts = texts_of(content.get("contentBlocks"), _TEXT) or [text_of(content.get("content"))]
        times = {"created_at": message.get("created_at") or content.get("timestamp")}
        messages.append(_message(message.get("role"), "\n\n".join(texts), {**content, **times}))
    project = text_of(_dict(value.get("project")).get("name"))
    yield from _conversation(place, value, text_of(value.get("title")), project, messages)


def _conversation(
    place: str, value: Mapping[str, Any], title: str, project: str, found: Iterable[ImportedMessage | None]
) -> Iterator[Imported]:
    messages = tuple(message for message in found if message is not None)
    conversation_id = id_of(value.get("uuid"))
    if not conversation_id:
        yield Unreadable(place, "it has no usable id")
    elif messages:
        times = [message.time for message in messages if message.time is not None]
        yield Conversation(
            origin=ORIGIN,
            conversation_id=conversation_id,
            title=title,
            created=time_of(value.get("created_at")) or min(times, default=None),
            updated=time_of(value.get("updated_at")) or max(times, default=None),
            project=project,
            messages=messages,
        )


def _branch(listed: list[Any], leaf: str) -> list[Mapping[str, Any]]:
    """Return the messages of the branch that ends at `leaf`, or if there is no such message, at the newest one.

    All messages in the order of the file if they do not state what they answer, or do not form one tree.
    """
    messages = list(_dicts(listed))
    by_id = {text_of(message.get("uuid")): message for message in messages}
    parents = {name: text_of(message.get("parent_message_uuid")) for name, message in by_id.items()}
    roots = {parent for parent in parents.values() if parent not in by_id}
    is_tree = len(by_id) == len(messages) and len(roots) == 1 and any(parent in by_id for parent in parents.values())
    if not is_tree:
        return messages
    if leaf not in by_id:
        inner = set(parents.values())
        leaves = [name for name in by_id if name not in inner]
        # Of equal times, the last one in the file.
        leaf = max(reversed(leaves), key=lambda name: time_of(by_id[name].get("created_at")) or _NO_TIME, default="")
    path: dict[str, Mapping[str, Any]] = {}
    while leaf in by_id and leaf not in path:
        path[leaf] = by_id[leaf]
        leaf = parents[leaf]
    return messages if leaf in path else list(reversed(path.values()))


def _message(sender: Any, text: str, message: Mapping[str, Any]) -> ImportedMessage | None:
    time = time_of(message.get("created_at"))
    match sender:
        case "human" | "user":
            text = "\n\n".join(filter(None, (text.strip(), _attachments(message))))
            return ImportedMessage("user", text, time) if text else None
        case "assistant":
            text = text.strip()
            return ImportedMessage("assistant", text, time) if text else None
    return None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = texts_of(blocks, _TEXT)
    if not texts and all(_dict(block).get("type") == "text" for block in blocks):
        # Older exports have no blocks.
        texts = [text_of(message.get("text"))]
    return "\n\n".join(texts).replace(f"{_TOOL_PLACEHOLDER}\n\n", "").replace(_TOOL_PLACEHOLDER, "")


def _attachments(message: Mapping[str, Any]) -> str:
    """Return a line for each file that was attached to a message. Long text that was pasted has no name."""
    names = dict.fromkeys(
        _line(text_of(file.get("file_name")) or text_of(file.get("name"))) or _PASTED_TEXT
        for key in ("attachments", "files", "files_v2")
        for file in _dicts(message.get(key))
    )
    return "\n".join(f"[attachment: {name}]" for name in names)


def _read_project(place: str, value: Mapping[str, Any], projects: dict[str, str]) -> Iterator[Imported]:
    project_id = id_of(value.get("uuid"))
    name = _line(text_of(value.get("name")))
    if not project_id:
        yield Unreadable(place, "it has no usable id")
        return
    if len(projects) < _MOST_PROJECTS:
        projects[project_id] = name
    if value.get("is_starter_project") is True:
        return
    texts = (text_of(value.get(key)).strip() for key in ("description", "prompt_template"))
    instructions = Document(
        origin=ORIGIN,
        document_id=project_id,
        title=name,
        created=time_of(value.get("created_at")),
        updated=time_of(value.get("updated_at")),
        project=name,
        text="\n\n".join(filter(None, texts)),
    )
    ids: dict[str, int] = {}
    yield from _document(place, instructions, ids)
    # In the order of their creation, so that files of the same name have the same ids in a later export.
    for file in sorted(_dicts(value.get("docs")), key=lambda each: time_of(each.get("created_at")) or _NO_TIME):
        title = _line(text_of(file.get("filename")))
        created = time_of(file.get("created_at"))
        document = Document(
            origin=ORIGIN,
            document_id=text_of(file.get("uuid")) or f"{project_id}/{title}",
            title=title,
            created=created,
            updated=time_of(file.get("updated_at")) or created,
            project=name,
            text=text_of(file.get("content")),
        )
        yield from _document(place, document, ids)


def _read_memories(
    place: str, value: Mapping[str, Any], projects: Mapping[str, str], exported: datetime | None
) -> Iterator[Imported]:
    """Yield the memories. Most have no time; the newer of two exports has that of its file."""
    prefix = "/".join(filter(None, ("memories", text_of(value.get("account_uuid")))))
    ids: dict[str, int] = {}

    def document(name: str, title: str, project: str, entry: Mapping[str, Any]) -> Iterator[Imported]:
        found = Document(
            origin=ORIGIN,
            document_id="/".join(filter(None, (prefix, name.strip("/")))),
            title=title,
            created=time_of(entry.get("created_at")),
            updated=time_of(entry.get("updated_at")) or exported,
            project=project,
            text=text_of(entry.get("content")),
        )
        return _document(place, found, ids)

    yield from document("", _MEMORIES, "", {"content": value.get("conversations_memory")})
    for project_id, text in _dict(value.get("project_memories")).items():
        name = projects.get(project_id, "")
        yield from document(project_id, f"{_MEMORIES}: {name}" if name else _MEMORIES, name, {"content": text})
    for file in _dicts(value.get("memory_files")):
        path = text_of(file.get("path"))
        yield from document(path, _line(path), "", file)


def _document(place: str, document: Document, ids: dict[str, int]) -> Iterator[Imported]:
    """Yield a document unless it is blank. `ids` are those of the object that it is in."""
    if not document.text.strip():
        return
    document_id = _distinct(document.document_id, ids)
    if id_of(document_id):
        yield replace(document, document_id=document_id)
    else:
        yield Unreadable(place, "the id of a document in it is not printable, or is too long")


def _distinct(name: str, numbers: dict[str, int]) -> str:
    """Return `name`, from the second time on with a number. `numbers` has the last number of each name returned."""
    found, number = name, numbers.get(name, 1)
    while found in numbers:
        number += 1
        found = f"{name} ({number})"
    numbers[name] = number
    numbers.setdefault(found, 1)
    return found


def _exported(file: InputFile) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.modified_ns // 10**9, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _line(text: str) -> str:
    return " ".join(text.split())[:_MOST_NAME_CHARS]


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
