"""Memory left after a thousand writes, measured in separate processes, because a heap cannot be reset."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from entry_fixture import needs_lancedb

TESTS = Path(__file__).parents[2]
MOST_GROWTH_BYTES = 20 * 2**20

pytestmark = [
    needs_lancedb,
    pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc's heaps are what this is about"),
]

WRITE = """
import ctypes, json, re, sys, tempfile
import numpy as np
from entry_fixture import store_at
from memoryd_server.entries.model import EntryCategory, IdentifiedVector
from memoryd_server.entries.store import NewEntry
from memoryd_server.system import limit_free_memory

# As the daemon does at its start.
limit_free_memory()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p

def heaps():
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        return len(re.findall("<heap nr=", file.read().decode()))

def anonymous():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

chance = np.random.default_rng(1)
store = store_at(sys.argv[1])
store.open()
memory = []
for number in range(int(sys.argv[2])):
    values = chance.standard_normal(384).astype(np.float32)
    vector = IdentifiedVector(values / np.linalg.norm(values), "x")
    store.remember(NewEntry(f"entry {number}", 0.5, EntryCategory.OTHER), vector)
    if store.needs_optimize:
        store.optimize()
        memory.append(anonymous())
print(json.dumps({"heaps": heaps(), "memory": memory, "count": store.count()}))
store.close()
"""


def written(folder, count):
    command = [sys.executable, "-c", WRITE, str(folder), str(count)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_lancedbs_threads_share_few_heaps(tmp_path):
    assert written(tmp_path / "e", 40)["heaps"] <= 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_does_not_grow_with_what_was_written(tmp_path):
    found = written(tmp_path / "e", 1_000)
    assert found["count"] == 1_000
    settled = found["memory"][len(found["memory"]) // 3]
    assert max(found["memory"][-5:]) - settled < MOST_GROWTH_BYTES, found["memory"]
