"""Threads of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread id>.jsonl`, also archived or compressed.

The first record describes the session (`session_meta`); in files of the first versions it has no envelope, and neither
have the messages. What the user and the assistant said are the messages among the items of the model's history
(`response_item`). The events of the interface repeat them and are left out, except that a rollback removes turns. A
summary of a compaction is left out: the messages before it are still in the file.

A message of the user can contain parts that Codex adds, such as the instructions of AGENTS.md. Newer versions name the
kind of each part; in files of older ones, the parts are recognized by their first words.

A thread can have several files. A newer file that names a position in another file of its thread (`history_base`)
continues it from there; what follows that position was reverted. Otherwise the newest file counts: the others are
copies. A fork begins with a copy of the messages of its source, which are left out if the source is imported as well.
Threads of subagents are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from memoryd_server.foreign_text import whole_number
from memoryd_server.imports.conversation import Conversation, Imported, ImportedMessage, Unreadable
from memoryd_server.imports.input_files import InputFile
from memoryd_server.imports.json_lines import (
    COMPRESSED_SUFFIX,
    MOST_PROJECT_CHARS,
    JsonLines,
    SessionTooLarge,
    TextBudget,
    id_of,
    text_of,
    texts_of,
    time_of,
    without_elements,
)

ORIGIN: Final = "codex"

MOST_MESSAGES: Final = 300_000
"""Maximum number of messages in one thread."""

_INDEX_FILE = "session_index.jsonl"
_ID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(rf"rollout-(.{{0,40}}?)-?({_ID})(?:_({_ID}))?\.jsonl(?:\.zst)?")
_MOST_HEAD_RECORDS = 10
_MOST_NAMES = 100_000
_MOST_TITLE_CHARS = 500
_MOST_ORDINAL = 1 << 53
_EARLIEST = datetime.min.replace(tzinfo=UTC)

_TEXT = frozenset({"input_text", "output_text", "text"})
_AGENT_SOURCES = frozenset({"subagent", "subAgent", "internal"})
_AGENT_THREADS = frozenset({"subagent", "memory_consolidation", "guardian_review"})

_GENERATED = re.compile(
    r"\s*<(environment_context|user_instructions|INSTRUCTIONS|skill|user_shell_command|turn_aborted|subagent_notification"
    r"|goal_context|codex_internal_context|recommended_plugins|external_\w{1,100}|application_context|hook_prompt"
    r"|collaboration_mode|personality_spec|realtime_conversation|(?:apps|skills|plugins)_instructions|user_action"
    r"|exec-command-completed|worker_question|image)(?:\s[^<>\n]{0,200})?>"
)
_IMAGE = re.compile(r"</?image(?:\s[^<>\n]{0,200})?>")
_AGENTS_FILE = "# AGENTS.md instructions"
_AGENTS_FILE_ENDS = "</INSTRUCTIONS>"
_REQUEST = re.compile(r"^## My request for Codex:[ \t]*$", re.MULTILINE)


def is_codex_file(path: str) -> bool:
    """Return whether a file in a folder has the name of a file of Codex."""
    name = PurePosixPath(path).name
    return name == _INDEX_FILE or (name.startswith("rollout-") and name.endswith((".jsonl", ".jsonl.zst")))


def read_codex(files: Iterable[InputFile]) -> Iterator[Imported]:
    """Yield the threads in files, one by one. Reads the first records of all files before the first thread."""
    names: dict[str, str] = {}
    threads: dict[str, _Thread] = {}
    for file in files:
        if PurePosixPath(file.path or file.name).name == _INDEX_FILE:
            names |= _names_in(file)
            continue
        meta = _first_record(file)
        if _is_of_agent(meta):
            continue
        rollout = _rollout(file, meta)
        if rollout.thread_id:
            threads.setdefault(rollout.thread_id, _Thread({}, rollout)).add(rollout)
        else:
            yield Unreadable(file.name, "the file has no usable id of a thread")
    # Forks of the same source follow each other, so that the source is read once for all of them.
    source, source_keys = "", list[bytes]()
    for thread in sorted(threads.values(), key=lambda each: each.source):
        if thread.source != source:
            source = thread.source
            source_keys = _keys_of(threads[source]) if source in threads else []
        yield from _read_thread(thread, names, source_keys)


@dataclass(frozen=True, slots=True)
class _Rollout:
    """A file and what its first record says.

    `rollout_id` is the id of the file: that of the thread for the first file of the thread. `base` is the id of the
    file that it continues, before the record `base_end`; empty if it is complete. `source` is the id of the thread that
    it is a fork of; empty if it is none or does not repeat its messages. `named_time` is the time in the file's name.
    """

    file: InputFile
    thread_id: str
    rollout_id: str
    base: str
    base_end: int
    source: str
    named_time: str
    time: datetime | None
    project: str

    @property
    def age(self) -> tuple[str, datetime, bool, int, int, str]:
        """The order of the files of a thread: the last one counts."""
        is_plain = not self.file.name.endswith(COMPRESSED_SUFFIX)
        size, modified = self.file.size_bytes, self.file.modified_ns
        return self.named_time, self.time or _EARLIEST, is_plain, size, modified, self.file.name


@dataclass(slots=True)
class _Thread:
    """The files of a thread by their ids, and the newest one."""

    rollouts: dict[str, _Rollout]
    newest: _Rollout

    @property
    def source(self) -> str:
        """The id of the thread whose messages this one repeats, if it is a fork; else empty."""
        return self.newest.source

    def add(self, rollout: _Rollout) -> None:
        """Add a file. Of two files with the same id, the newer one counts."""
        same = self.rollouts.get(rollout.rollout_id)
        if same is None or same.age < rollout.age:
            self.rollouts[rollout.rollout_id] = rollout
        self.newest = max(self.newest, rollout, key=lambda each: each.age)

    def parts(self) -> list[tuple[_Rollout, int]]:
        """Return the files of the thread in order, each with the number of the record before which it ends."""
        found = [(self.newest, _MOST_ORDINAL)]
        seen = {self.newest.rollout_id}
        while (base := self.rollouts.get(found[-1][0].base)) and base.rollout_id not in seen:
            seen.add(base.rollout_id)
            found.append((base, found[-1][0].base_end))
        return found[::-1]


class _Messages:
    """The messages of a thread, from its records in order."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self.found: list[ImportedMessage] = []
        self.name = ""
        self.is_known = False
        self._budget = TextBudget()

    def add(self, record: dict[str, Any]) -> None:
        """Add a record.

        Raises:
            SessionTooLarge: the thread has too many messages.
        """
        kind = text_of(record.get("type"))
        content = record.get("payload")
        payload: dict[str, Any] = content if isinstance(content, dict) else {}
        self.is_known = self.is_known or bool(payload)
        if kind == "message":
            self._add_message(record, None)
        elif kind == "response_item" and payload.get("type") == "message":
            self._add_message(payload, time_of(record.get("timestamp")))
        elif kind == "event_msg":
            self._add_event(payload)

    def _add_message(self, item: dict[str, Any], time: datetime | None) -> None:
        self.is_known = True
        role = item.get("role")
        spoken: Literal["user", "assistant"] | None = _ROLES.get(role) if isinstance(role, str) else None
        text = "" if spoken is None else _prompt(item) if spoken == "user" else _answer(item)
        if spoken is None or not text:
            return
        if len(self.found) >= MOST_MESSAGES:
            raise SessionTooLarge(f"the thread has more than {MOST_MESSAGES:,} messages")
        self._budget.take(text)
        self.found.append(ImportedMessage(spoken, text, time))

    def _add_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "thread_name_updated" and event.get("thread_id", self._thread_id) == self._thread_id:
            self.name = text_of(event.get("thread_name")).strip()[:_MOST_TITLE_CHARS]
        elif kind == "thread_rolled_back":
            # A turn starts with a message of the user.
            for _ in range(whole_number(event.get("num_turns"), MOST_MESSAGES) or 0):
                if not self._drop_turn():
                    break

    def _drop_turn(self) -> bool:
        while self.found:
            last = self.found.pop()
            self._budget.give_back(last.text)
            if last.role == "user":
                return True
        return False


_ROLES: Mapping[str, Literal["user", "assistant"]] = {"user": "user", "assistant": "assistant"}


def _parts_of(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a message, each with its kind; "" if the kind is not known."""
    content = item.get("content")
    if not isinstance(content, list):
        yield from ((text, "") for text in texts_of(content, _TEXT))
        return
    metadata = item.get("internal_chat_message_metadata_passthrough")
    kinds = metadata.get("content_item_kinds") if isinstance(metadata, dict) else None
    if not isinstance(kinds, list) or len(kinds) != len(content):
        kinds = [""] * len(content)
    for block, kind in zip(content, kinds, strict=True):
        for text in texts_of([block], _TEXT):
            yield text, text_of(kind)


def _prompt(item: dict[str, Any]) -> str:
    texts = (_own_text(text) for text, kind in _parts_of(item) if not kind or kind.startswith("user."))
    return "\n\n".join(filter(None, texts))


def _own_text(text: str) -> str:
    """Return what the user wrote in a text of a user's message; empty for a text that Codex added."""
    text = text.strip()
    if text.startswith(_AGENTS_FILE):
        # Instructions can quote their own end. Without an end, all of the text belongs to them.
        text = "" if text.endswith(_AGENTS_FILE_ENDS) else text.partition(_AGENTS_FILE_ENDS)[2]
    text = without_elements(text, _GENERATED)
    # An editor puts what is open in it before the request.
    if text.startswith("# ") and (request := _REQUEST.search(text)):
        text = text[request.end() :].strip()
    return "" if _IMAGE.fullmatch(text) else text


def _answer(item: dict[str, Any]) -> str:
    # The messages of other agents have their own kinds.
    texts = (text.strip() for text, kind in _parts_of(item) if not kind.startswith("multi_agent."))
    return "\n\n".join(filter(None, texts))


def _first_record(file: InputFile) -> dict[str, Any]:
    """Return the description of the session at the start of a file; empty if there is none."""
    for number, (_, record) in enumerate(JsonLines(file)):
        payload = record.get("payload")
        if record.get("type") == "session_meta" and isinstance(payload, dict):
            return payload
        if "type" not in record and id_of(record.get("id")):
            return record
        if number >= _MOST_HEAD_RECORDS:
            break
    return {}


def _rollout(file: InputFile, meta: dict[str, Any]) -> _Rollout:
    name = PurePosixPath(file.path or file.name).name
    match = _NAME.fullmatch(name)
    named, rollout_id = (match[2].lower(), (match[3] or match[2]).lower()) if match else ("", "")
    thread_id = id_of(meta.get("id")) or named or id_of(name.removesuffix(COMPRESSED_SUFFIX).removesuffix(".jsonl"))
    position = meta.get("history_base")
    base: dict[str, Any] = position if isinstance(position, dict) else {}
    base_id = id_of(base.get("thread_id"))
    return _Rollout(
        file,
        thread_id,
        rollout_id or thread_id,
        base_id,
        whole_number(base.get("end_ordinal_exclusive"), _MOST_ORDINAL) or 0,
        "" if base_id else id_of(meta.get("forked_from_id")),
        match[1] if match else "",
        time_of(meta.get("timestamp")),
        text_of(meta.get("cwd"))[:MOST_PROJECT_CHARS],
    )


def _is_of_agent(meta: dict[str, Any]) -> bool:
    source, thread_source = meta.get("source"), meta.get("thread_source")
    return (isinstance(source, dict) and not _AGENT_SOURCES.isdisjoint(source)) or (
        isinstance(thread_source, str) and thread_source in _AGENT_THREADS
    )


def _names_in(file: InputFile) -> dict[str, str]:
    """Return the names of threads, by their ids. The file is appended to: the last name of a thread counts."""
    names: dict[str, str] = {}
    for _, record in JsonLines(file):
        thread_id, name = id_of(record.get("id")), text_of(record.get("thread_name")).strip()
        if thread_id and name and (thread_id in names or len(names) < _MOST_NAMES):
            names[thread_id] = name[:_MOST_TITLE_CHARS]
    return names


def _load(thread: _Thread) -> tuple[_Messages | None, list[Unreadable]]:
    messages = _Messages(thread.newest.thread_id)
    unreadable: list[Unreadable] = []
    count = 0
    for rollout, end in thread.parts():
        lines = JsonLines(rollout.file)
        try:
            for number, (_, record) in enumerate(lines):
                ordinal = whole_number(record.get("ordinal"), _MOST_ORDINAL)
                if (number if ordinal is None else ordinal) < end:
                    messages.add(record)
        except SessionTooLarge as error:
            return None, [*unreadable, Unreadable(rollout.file.name, str(error))]
        unreadable += lines.unreadable
        count += lines.count
    if not messages.is_known and count:
        return None, [Unreadable(thread.newest.file.name, "the file contains no record of a session of Codex")]
    return messages, unreadable


def _keys(messages: list[ImportedMessage]) -> list[bytes]:
    return [
        blake2b(f"{each.role} {each.text}".encode("utf-8", "replace"), digest_size=16).digest() for each in messages
    ]


def _keys_of(thread: _Thread) -> list[bytes]:
    messages, _ = _load(thread)
    return [] if messages is None else _keys(messages.found)


def _read_thread(thread: _Thread, names: dict[str, str], source_keys: list[bytes]) -> Iterator[Imported]:
    messages, unreadable = _load(thread)
    if messages is not None:
        copied = 0
        if source_keys:
            pairs = zip(_keys(messages.found), source_keys, strict=False)
            copied = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        spoken = tuple(messages.found[copied:])
        if spoken:
            times = [message.time for message in spoken if message.time] or [
                time for time in [thread.newest.time] if time
            ]
            yield Conversation(
                ORIGIN,
                thread.newest.thread_id,
                names.get(thread.newest.thread_id) or messages.name,
                min(times, default=None),
                max(times, default=None),
                thread.newest.project,
                spoken,
            )
    yield from unreadable
