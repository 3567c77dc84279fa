"""The memory that reading a session takes does not depend on the size of its file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc"),
]

SESSION = "5f0c6a1e-3b5d-4c27-9a52-6d1f0b7c9e01"
FILE_BYTES = 300_000_000
OUTPUT = "a line of output\n" * 20_000
MOST_TEXT_MIB = 64

# The high-water mark of the process alone, before and after the import.
CODE = """
import re, sys
from pathlib import Path
from memoryd_server.imports import CONVERSATION_FORMATS
from memoryd_server.imports.input_files import InputFiles

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

before = peak()
with InputFiles([Path(sys.argv[2])], lambda _: True) as files:
    for item in CONVERSATION_FORMATS[sys.argv[1]].read(files):
        print(len(item.messages))
        del item
print(peak() - before)
"""


def claude_code_records(number, text):
    def record(kind, own, parent, content):
        message = {"role": kind, "content": content}
        return {"type": kind, "uuid": own, "parentUuid": parent, "sessionId": SESSION, "message": message}

    before = f"{number - 1}-c" if number else None
    yield record("user", f"{number}-a", before, text)
    yield record("assistant", f"{number}-b", f"{number}-a", [{"type": "text", "text": text}])
    yield record("user", f"{number}-c", f"{number}-b", [{"type": "tool_result", "content": OUTPUT}])


def codex_records(number, text):
    def record(**payload):
        return {"timestamp": "2026-05-05T10:00:00Z", "type": "response_item", "payload": payload}

    if not number:
        yield {"type": "session_meta", "payload": {"id": SESSION}}
    yield record(type="message", role="user", content=[{"type": "input_text", "text": text}])
    yield record(type="message", role="assistant", content=[{"type": "output_text", "text": text}])
    yield record(type="function_call_output", call_id="x", output=OUTPUT)


RECORDS = {"claude-code": claude_code_records, "codex": codex_records}


def peak_mib(origin, path):
    """Return the number of messages of a session, and the memory that reading it takes."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, origin, path], check=True, capture_output=True, text=True, timeout=200
    )
    messages, kib = done.stdout.split()
    return int(messages), int(kib) / 1024


@pytest.mark.parametrize("origin", RECORDS)
def test_output_of_tools_takes_no_memory(tmp_path, origin):
    path = tmp_path / f"{SESSION}.jsonl"
    count = 0
    with path.open("w") as file:
        while file.tell() < FILE_BYTES:
            file.writelines(f"{json.dumps(each)}\n" for each in RECORDS[origin](count, f"text {count}"))
            count += 1
    messages, mib = peak_mib(origin, path)
    assert messages == 2 * count
    assert mib < 20


@pytest.mark.parametrize("origin", RECORDS)
def test_messages_take_not_much_more_memory_than_their_limit(tmp_path, origin):
    path = tmp_path / f"{SESSION}.jsonl"
    # A text takes four bytes for each character, so these 15 pairs take 60 MiB.
    text = "x" * (MOST_TEXT_MIB << 13) + "\N{GRINNING FACE}"
    with path.open("w") as file:
        file.writelines(f"{json.dumps(each)}\n" for number in range(15) for each in RECORDS[origin](number, text))
    messages, mib = peak_mib(origin, path)
    assert messages == 30
    assert mib < 2 * MOST_TEXT_MIB
