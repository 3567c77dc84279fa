"""Processes of the tests of `embed`.

`parent MODEL` holds a worker and waits; `worker` is one that dies of "die", `refusing` one that refuses every text.
"""

import os
import struct
import sys
import time
from pathlib import Path

import psutil

from memoryd_server.providers import worker
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.model_files import LocalModelFile


def parent(path):
    provider = LocalProvider(LocalModelFile(Path(path)))
    provider.embed_query("a", time.monotonic() + 60)
    (child,) = psutil.Process().children()
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    time.sleep(120)


def dying_worker():
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    worker.write_frame(sink, {"ready": True})
    while frame := worker.read_frame(source):
        if frame[0]["text"] == "die":
            os._exit(3)
        worker.write_frame(sink, {"tokens": 1}, struct.pack("384f", *[1.0] * 384))


def refusing_worker():
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    worker.write_frame(sink, {"ready": True})
    while worker.read_frame(source):
        worker.write_frame(sink, {"error": "it is not an embedding model"})


if sys.argv[1] == "parent":
    parent(sys.argv[2])
elif sys.argv[1] == "refusing":
    refusing_worker()
else:
    dying_worker()
