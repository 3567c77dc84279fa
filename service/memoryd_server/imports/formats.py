"""CONVERSATION_FORMATS: the formats of conversations that can be imported, by origin."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from memoryd_server.imports.chatgpt import is_chatgpt_file, read_chatgpt
from memoryd_server.imports.claude import is_claude_file, read_claude
from memoryd_server.imports.claude_code import is_claude_code_file, read_claude_code
from memoryd_server.imports.codex import is_codex_file, read_codex
from memoryd_server.imports.conversation import Imported
from memoryd_server.imports.input_files import InputFile


@dataclass(frozen=True, slots=True)
class ConversationFormat:
    """A format: its reader, which relative paths can be those of its files, and what these are called."""

    read: Callable[[Iterable[InputFile]], Iterator[Imported]]
    is_file: Callable[[str], bool]
    looked_for: str


CONVERSATION_FORMATS: Final[Mapping[str, ConversationFormat]] = MappingProxyType(
    {
        "chatgpt": ConversationFormat(read_chatgpt, is_chatgpt_file, "conversations.json or conversations-000.json"),
        "claude": ConversationFormat(read_claude, is_claude_file, "conversations.json, projects.json or memories.json"),
        "claude-code": ConversationFormat(
            read_claude_code, is_claude_code_file, "transcript of Claude Code (<session>.jsonl)"
        ),
        "codex": ConversationFormat(read_codex, is_codex_file, "session of Codex (rollout-*.jsonl)"),
    }
)
