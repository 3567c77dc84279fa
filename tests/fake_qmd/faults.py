"""What the fake can do wrong. A file `faults.json` beside the executable says what, by verb, and is read at each start.

{"search": "hang"}          by verb; "*" is any
{"version": "1.9.0"}        the version that is told
{"slow_seconds": 2}         before anything else
"""

import contextlib
import io
import json
import os
import signal
import sys
import time
from pathlib import Path

NOISE = b"ggml: loading tensor 0123456789 [node-llama-cpp] " * 200 + b"\n"


def folder():
    return Path(os.path.realpath(sys.argv[0])).parent


def wanted():
    file = folder() / "faults.json"
    return json.loads(file.read_text()) if file.exists() else {}


def version():
    return wanted().get("version", "")


def slowness():
    return wanted().get("slow_seconds", 0)


def fault_of(verb):
    found = wanted()
    return found.get(verb) or found.get("*", "")


def before(verb):
    """Faults that keep the verb from doing anything."""
    with (folder() / "calls").open("a") as calls:
        calls.write(f"{verb} {os.getpid()}\n")
    fault = fault_of(verb)
    if fault in BEFORE:
        BEFORE[fault](verb)


def around(verb, work):
    """Runs a search with its output kept, and lets the fault have its way with it."""
    fault = fault_of(verb)
    if fault not in AFTER:
        return work()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        work()
    return AFTER[fault](printed.getvalue())


def out(text):
    os.write(1, text if isinstance(text, bytes) else text.encode())


def end(code=0, words=""):
    os.write(2, words.encode())
    os._exit(code)


def hang(_):
    """Ignores SIGTERM, and so does a child that holds both pipes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child:
        with (folder() / "hanging").open("a") as hanging:
            hanging.write(f"{os.getpid()} {child}\n")
    time.sleep(3600)


def segfault(_):
    os.kill(os.getpid(), signal.SIGSEGV)


def busy_once(verb):
    """The second process meets the first one's lock; the next finds it gone."""
    mark = folder() / f"busy-{verb}"
    if not mark.exists():
        mark.touch()
        end(1, "SqliteError: database is locked\n    code: 'SQLITE_BUSY'\n")


def counted(verb):
    """Notes how many of these ever ran at the same time."""
    place, most = folder() / f"now-{verb}", folder() / f"most-{verb}s"
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    time.sleep(0.2)
    seen = len(list(place.iterdir()))
    most.write_text(str(max(seen, int(most.read_text()) if most.exists() else 0)))
    (place / str(os.getpid())).unlink()


def noise(_):
    for _ in range(50 * 2**20 // len(NOISE)):
        out(NOISE)
    end()


def foreign_words(_):
    """Bytes that are no UTF-8, and an escape that no UTF-8 can hold."""
    os.write(2, b'Error: \xff\xed\xa0\x80 cannot read "\\ud800.md"\n')
    end(1)


def with_foreign_text(text):
    """The rows with lone surrogates wherever a row has text, and one of a file whose name has one."""
    rows = json.loads(text)
    strange = [{**row, "title": "\ud800", "docid": "#\udfff", "context": "a\ud83d"} for row in rows]
    lost = [
        {**row, "file": row["file"].replace(".md", "\ud800.md"), "snippet": "\udfff", "score": 10**400} for row in rows
    ]
    out(json.dumps(lost + strange))


BEFORE = {
    "foreign-words": foreign_words,
    "hang": hang,
    "segfault": segfault,
    "fail": lambda _: end(1, "Error: something broke\n    at qmd.js:1:1\n"),
    "busy": lambda _: end(1, "SqliteError: database is locked\n    code: 'SQLITE_BUSY'\n"),
    "busy-once": busy_once,
    "constraint-once": lambda verb: (
        (folder() / f"busy-{verb}").exists()
        or (
            (folder() / f"busy-{verb}").touch(),
            end(1, "SqliteError: constraint failed\n  SQLITE_CONSTRAINT_PRIMARYKEY\n"),
        )
    ),
    "noise": noise,
    "counted": counted,
    "nothing": lambda _: end(),
    "no-results-in-words": lambda _: (out("No results found.\n"), end()),
    "not-json": lambda _: (out("Segmentation is fun\n"), end()),
    "ci": lambda _: end(1, "Error: LLM operations are disabled in CI (set CI=true)\n"),
    # What is costly to read with a pattern that begins again at each place.
    "costly-words": lambda _: (out("] no results found " * 20_000 + ":\n"), end()),
    "costly-collections": lambda _: end(1, "collection " * 5_900),
    "costly-digits": lambda _: end(1, "1" * 65_000),
    "costly-lines": lambda _: (out("\n" * 65_000), end()),
    "unknown-collection": lambda _: end(1, "Collection not found: memory-root\n"),
    "embedding-elsewhere": lambda _: (out("Another embed process is already running. Skipping.\n"), end()),
}

AFTER = {
    "truncated": lambda text: (out(text[: len(text) // 2]), end()),
    "crash-after": lambda text: (out(text), os.kill(os.getpid(), signal.SIGSEGV)),
    "fail-after": lambda text: (out(text), end(134)),
    "hang-after": lambda text: (out(text), hang("")),
    "log-before": lambda text: out(f"[node-llama-cpp] [INFO] 3 devices [cpu, cpu]\n├─ lex: memory\n{text}"),
    "bytes-before": lambda text: out(b"\xff\xfe\xc3(\n" + text.encode()),
    "no-line": lambda text: out(
        json.dumps([{k: v for k, v in row.items() if k != "line"} for row in json.loads(text)])
    ),
    "costly-snippet": lambda text: out(
        json.dumps([{**row, "snippet": "\ufffd" * 30_000 + "x"} for row in json.loads(text)])
    ),
    "many-rows": lambda text: out(json.dumps([row for row in json.loads(text) for _ in range(4_000)])),
    "foreign-rows": with_foreign_text,
    "deep-rows": lambda text: out(f'[{{"file": "qmd://x", "more": {"[" * 900}{"]" * 900}}}, {text.strip()[1:]}'),
    "object": lambda text: out(json.dumps({"results": json.loads(text)})),
}
