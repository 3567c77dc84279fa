"""The memory of `memoryd import` does not depend on the size of an export."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daemon_process import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MB = 1_000_000
EXPORT_BYTES = 300 * MB
TOOL_BYTES = 400_000
TEXT_BYTES = 3_000
MOST_MIB = 200

# The high-water mark of a process alone: `ru_maxrss` can be that of its parent.
CODE = """
import sys
from pathlib import Path
from memoryd_server.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(Path("/proc/self/status").read_text())
"""


def message(number, role, text, parent, child):
    own = f"node-{number}"
    time = 1_741_944_413.5 + number
    content = {"content_type": "text", "parts": [text]}
    node = {"id": own, "author": {"role": role}, "create_time": time, "content": content, "recipient": "all"}
    return own, {
        "id": own,
        "message": {**node, "status": "finished_successfully", "weight": 1.0, "metadata": {}},
        "parent": parent,
        "children": [child] if child else [],
    }


def conversation(number):
    """A conversation with a small question and answer, and a large output of a tool between them."""
    texts = [("user", f"question {number} " + "word " * (TEXT_BYTES // 10)), ("tool", "t" * TOOL_BYTES)]
    texts.append(("assistant", f"answer {number} " + "word " * (TEXT_BYTES // 10)))
    nodes = [
        message(each, *text, f"node-{each - 1}" if each else None, f"node-{each + 1}" if each < 2 else None)
        for each, text in enumerate(texts)
    ]
    own = f"67d3f1a2-0000-8000-9000-{number:012}"
    return {
        "title": f"Conversation {number}",
        "create_time": 1_741_944_413.5,
        "update_time": 1_741_944_513.5,
        "mapping": dict(nodes),
        "current_node": "node-2",
        "conversation_id": own,
        "id": own,
    }


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_an_export_of_300_mb_is_imported_in_200_mib(places, tmp_path):
    home, workspace, state = places
    export = tmp_path / "conversations.json"
    count = 0
    with export.open("w") as file:
        file.write("[")
        while file.tell() < EXPORT_BYTES:
            file.write(",\n" if count else "")
            json.dump(conversation(count), file)
            count += 1
        file.write("]")
    command = [sys.executable, "-c", CODE, "import", "chatgpt", export, "--state-dir", state, "--workspace", workspace]
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, env=environment(home))
    assert done.returncode == 0, done.stderr
    assert f"Imported {count} conversations: {count} new" in done.stdout
    peak_kib = int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1])
    assert peak_kib < MOST_MIB * 1024, f"{peak_kib} KiB"
