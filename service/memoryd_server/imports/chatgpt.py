"""Conversations of ChatGPT's data export: `conversations.json`, or in newer exports `conversations-000.json` and so on.

Each file is a JSON array of conversations. The messages of a conversation are the nodes of a tree (`mapping`): editing
a question or asking for another answer starts a branch. `current_node` is the last message of the branch that ChatGPT
shows, which is the one that is read. Newer exports only state the parent of a node, older ones also its children.

A branch also contains what the user did not see as a part of the conversation: instructions, calls of tools and their
results, reasoning and hidden messages. They are left out, and so are comments on the progress of an answer, unless
there is no answer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

from memoryd_server.foreign_text import parse_json
from memoryd_server.imports.conversation import Conversation, Imported, ImportedMessage, Unreadable
from memoryd_server.imports.input_files import InputFile
from memoryd_server.imports.json_lines import id_of, text_of, time_of
from memoryd_server.imports.json_stream import limit_unreadable, read_objects

ORIGIN: Final = "chatgpt"

_FILE_NAME = re.compile(r"conversations(?:[-_]\d{1,6})?\.json", re.IGNORECASE)
# The folder in which macOS keeps the attributes of files in an archive.
_JUNK_FOLDER = "__MACOSX/"
_PROJECT_PREFIX = "g-p-"
_MOST_NAME_CHARS = 200
# The last second of the year 9999.
_LATEST_SECONDS = 253_402_300_799

_PARTS_TYPES = ("text", "multimodal_text")
# Types of content that are no part of the conversation, also in messages of the user.
_CONTEXT_TYPES = ("user_editable_context", "model_editable_context", "tether_quote", "execution_output", "code")
_SPOKEN_PARTS = frozenset({"text", "audio_transcription"})
_REASONING_CHANNEL = "analysis"
_PROGRESS_CHANNEL = "commentary"

# A marker is delimited by characters for private use: U+E200, its kind and arguments with U+E202 between them, U+E201.
_MARKER = re.compile(" ?\ue200([^\ue200\ue201]*)\ue201")
_STRAY_MARKER = re.compile("[\ue200-\ue20f]")
_OLD_CITATION = re.compile(r" ?【[^【】†\n]{0,100}†[^【】\n]{0,300}】")
_REFERENCE = re.compile(r' ?:chatgpt-content-reference\{index="\d{1,9}"\}')
_BACKTICKS = re.compile("`+")


def is_chatgpt_file(path: str) -> bool:
    """Return whether a file in a folder or archive has the name of a file with conversations."""
    return _FILE_NAME.fullmatch(PurePosixPath(path).name) is not None and _JUNK_FOLDER not in path


def read_chatgpt(files: Iterable[InputFile]) -> Iterator[Imported]:
    """Yield the conversations in files, one by one. Conversations in which nothing was said are passed over."""
    for file in files:
        yield from limit_unreadable(_read_file(file), file.name)


def _read_file(file: InputFile) -> Iterator[Imported]:
    for each in read_objects(file, "conversation"):
        if isinstance(each, Unreadable):
            yield each
        else:
            yield from _read_conversation(*each)


def _read_conversation(place: str, value: Mapping[str, Any]) -> Iterator[Imported]:
    mapping = value.get("mapping")
    if not isinstance(mapping, dict):
        is_claude = "chat_messages" in value
        hint = "it is one of Claude: use `memoryd import claude`" if is_claude else "it has no mapping of messages"
        yield Unreadable(place, f"it is not a conversation of ChatGPT; {hint}")
        return
    conversation_id = id_of(value.get("conversation_id")) or id_of(value.get("id"))
    if not conversation_id:
        yield Unreadable(place, "it has no usable id")
        return
    branch = _branch(mapping, value.get("current_node"))
    messages = tuple(_spoken(branch.nodes))
    if branch.fault:
        yield Unreadable(place, branch.fault)
    if not messages:
        if any(_is_unknown(_dict(node.get("message"))) for node in branch.nodes):
            yield Unreadable(place, "none of its messages has a known type of content")
        return
    gizmo = id_of(value.get("gizmo_id"))
    times = [message.time for message in messages if message.time is not None]
    yield Conversation(
        origin=ORIGIN,
        conversation_id=conversation_id,
        title=text_of(value.get("title")),
        created=_time(value.get("create_time")) or min(times, default=None),
        updated=_time(value.get("update_time")) or max(times, default=None),
        project=gizmo if gizmo.startswith(_PROJECT_PREFIX) else "",
        messages=messages,
    )


@dataclass(frozen=True, slots=True)
class _Branch:
    """The nodes of a branch, from the first one; `fault` is a clause if some are missing."""

    nodes: list[Mapping[str, Any]]
    fault: str = ""


def _branch(mapping: Mapping[str, Any], current: Any) -> _Branch:
    """Return the branch that ends at `current`, or if there is no such node, at the newest leaf.

    Follows each node once, so that a cycle ends it.
    """
    nodes = {name: node for name, node in mapping.items() if isinstance(node, dict)}
    parents = _parents(nodes)
    if not parents:
        # No node says which one it follows.
        return _Branch(sorted(nodes.values(), key=_node_seconds))
    name = current if isinstance(current, str) and current in nodes else _newest_leaf(nodes, parents)
    path: dict[str, Mapping[str, Any]] = {}
    while name in nodes and name not in path:
        path[name] = nodes[name]
        name = parents.get(name, "")
    fault = ""
    if name in path:
        fault = "its messages form a cycle; some may be missing"
    elif name and sum(parents.get(each) not in nodes for each in nodes) > 1:
        fault = "a message is missing in the export, and those before it are not connected to the others"
    return _Branch(list(reversed(path.values())), fault)


def _parents(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    found = {name: parent for name, node in nodes.items() if (parent := text_of(node.get("parent")))}
    if found:
        return found
    children = ((name, node.get("children")) for name, node in nodes.items())
    return {child: name for name, listed in children if isinstance(listed, list) for child in listed if text_of(child)}


def _newest_leaf(nodes: Mapping[str, Mapping[str, Any]], parents: Mapping[str, str]) -> str:
    inner = set(parents.values())
    leaves = [name for name in nodes if name not in inner] or list(nodes)
    # Of equal times, the last one in the file.
    return max(reversed(leaves), key=lambda name: _node_seconds(nodes[name]), default="")


def _node_seconds(node: Mapping[str, Any]) -> float:
    return _seconds(_dict(node.get("message")).get("create_time")) or 0.0


def _spoken(nodes: Iterable[Mapping[str, Any]]) -> Iterator[ImportedMessage]:
    """Yield what was said in a branch; comments on the progress of an answer only if no answer follows them."""
    progress: list[ImportedMessage] = []
    for node in nodes:
        message = _dict(node.get("message"))
        spoken = _spoken_message(message)
        if spoken is None:
            continue
        if spoken.role == "assistant" and _channel(message) == _PROGRESS_CHANNEL:
            progress.append(spoken)
            continue
        if spoken.role == "user":
            yield from progress
        progress.clear()
        yield spoken
    yield from progress


def _spoken_message(message: Mapping[str, Any]) -> ImportedMessage | None:
    if not _is_shown(message):
        return None
    role = _role(message)
    content = _dict(message.get("content"))
    time = _time(message.get("create_time"))
    if role == "user":
        text = "\n\n".join(filter(None, (_text(content), _attachments(content, _dict(message.get("metadata"))))))
        return ImportedMessage("user", text, time) if text else None
    if role == "assistant":
        text = _without_citations(_text(content)).strip()
        return ImportedMessage("assistant", text, time) if text else None
    return None


def _is_shown(message: Mapping[str, Any]) -> bool:
    metadata = _dict(message.get("metadata"))
    is_hidden = metadata.get("is_visually_hidden_from_conversation") is True or message.get("weight") == 0
    is_for_tool = message.get("recipient") not in (None, "", "all")
    return not (is_hidden or is_for_tool or _channel(message) == _REASONING_CHANNEL)


def _is_unknown(message: Mapping[str, Any]) -> bool:
    """Return whether a message of the user has a content that this version does not know."""
    content = _dict(message.get("content"))
    kind = text_of(content.get("content_type"))
    is_known = "parts" in content if kind in _PARTS_TYPES or not kind else kind in _CONTEXT_TYPES
    return _role(message) == "user" and _is_shown(message) and bool(content) and not is_known


def _role(message: Mapping[str, Any]) -> Any:
    return _dict(message.get("author")).get("role")


def _text(content: Mapping[str, Any]) -> str:
    kind = content.get("content_type")
    if kind == "code":
        return _code_block(text_of(content.get("text")), text_of(content.get("language")))
    if kind is not None and kind not in _PARTS_TYPES:
        return ""
    parts = (part if isinstance(part, str) else _spoken_part(part) for part in _list(content.get("parts")))
    return "\n\n".join(text for part in parts if (text := part.strip()))


def _spoken_part(part: Any) -> str:
    part = _dict(part)
    return text_of(part.get("text")) if text_of(part.get("content_type")) in _SPOKEN_PARTS else ""


def _code_block(code: str, language: str) -> str:
    if not code.strip():
        return ""
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    name = language if language.isalnum() and language != "unknown" else ""
    return f"{fence}{name}\n{code.rstrip()}\n{fence}"


def _attachments(content: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return a line for each file that was attached to a message; for images without a name, one line."""
    files = (text_of(_dict(each).get("name")) for each in _list(metadata.get("attachments")))
    names = [line for name in files if (line := " ".join(name.split())[:_MOST_NAME_CHARS])]
    if names:
        return "\n".join(f"[attachment: {name}]" for name in names)
    parts = (_dict(part).get("content_type") for part in _list(content.get("parts")))
    return "[image]" if "image_asset_pointer" in parts else ""


def _without_citations(text: str) -> str:
    """Return the text of an answer without references to sources, which the export does not contain.

    Of a marker that stands for a word, the word remains; of a link, its text and address.
    """
    text = _MARKER.sub(_shown, text)
    return _STRAY_MARKER.sub("", _REFERENCE.sub("", _OLD_CITATION.sub("", text)))


def _shown(marker: re.Match[str]) -> str:
    kind, *arguments = marker[1].split("\ue202")
    space = " " if marker[0].startswith(" ") else ""
    match kind, arguments:
        case "entity", [entity, *_]:
            return f"{space}{_entity_name(entity)}"
        case "url", [label, address, *_] if address.startswith(("https://", "http://")):
            return f"{space}{label} ({address})"
        case _:
            return ""


def _entity_name(entity: str) -> str:
    """Return the name in `["people", "Ada Lovelace", "mathematician"]`; any other text as it is."""
    try:
        value = parse_json(entity)
    except ValueError:
        return entity
    return text_of(value[1]) if isinstance(value, list) and len(value) > 1 else ""


def _channel(message: Mapping[str, Any]) -> str:
    return text_of(message.get("channel")) or text_of(_dict(message.get("metadata")).get("channel"))


def _time(value: Any) -> datetime | None:
    seconds = _seconds(value)
    return time_of(value) if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _seconds(value: Any) -> float | None:
    """Return a time in seconds since 1970; None for everything else, such as NaN and times after the year 9999."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < _LATEST_SECONDS else None


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
