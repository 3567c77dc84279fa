"""Sessions of Claude Code, as files of records, and what an import reads from them."""

import json
from datetime import UTC, datetime, timedelta

from memoryd_server.imports.claude_code import is_claude_code_file, read_claude_code
from memoryd_server.imports.input_files import InputFiles

SESSION = "5f0c6a1e-3b5d-4c27-9a52-6d1f0b7c9e01"
START = datetime(2026, 3, 14, 9, tzinfo=UTC)


def read(*paths, wanted=is_claude_code_file):
    with InputFiles(paths, wanted) as files:
        return list(read_claude_code(files))


def spoken(conversation):
    return [(message.role, message.text) for message in conversation.messages]


def record(kind, text, uuid, parent, minute=0, **fields):
    content = text if kind == "user" else [{"type": "text", "text": text}]
    time = (START + timedelta(minutes=minute)).isoformat()
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "timestamp": time,
        "sessionId": SESSION,
        "message": {"content": content},
        **fields,
    }


def write(folder, records, name=SESSION):
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return path


def read_records(folder, records):
    (conversation,) = read(write(folder, records))
    return spoken(conversation)
