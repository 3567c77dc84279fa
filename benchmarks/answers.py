"""Write the answers of many searches to a file, and compare two such files.

    python benchmarks/answers.py record --data ../shared/eval/data --state DIR --out FILE [--mode hybrid] [--model GGUF]
    python benchmarks/answers.py compare OLD NEW

Use it to check that a change, such as an optimization, changes no answer. `record` indexes the memories of the
golden sets (docs/search-quality.md describes them) and two larger ones below DIR, and searches them over gRPC with
different settings and requests, at a fixed time. Concurrent calls (`--callers 16`) must get the same answers. A second
run with the same DIR reuses the indexes, unless `--rebuild` is given, and embeds only queries.

Without `--mode hybrid`, only keyword search runs. In hybrid search, the memories that `--model-for` names are embedded
by the GGUF model of `--model`, and the others by a provider in this program, which returns the mean of a random vector
per word: texts with the same words have similar vectors.

To record another version of memoryd with this program, set PYTHONPATH to that version's `service` and
`clients/python/src`, and give each version its own DIR.

A line of the file is one call: `{"call": NAME, "answer": RESPONSE}`, or with `error` instead of `answer`. The response
is complete, except for elapsed times and the revision of the index, which depends on how a sync was divided. Scores
have all their digits. `compare` prints the first differences, and exits with 1 if there are any.
"""

import argparse
import json
import re
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
from answer_memories import PROSE, Memory, prepare, write_settings
from answer_requests import PROFILES, Call, calls
from google.protobuf.json_format import MessageToDict
from loopback_provider import LoopbackProvider
from numpy.typing import NDArray

import memoryd_server
from memoryd import messages
from memoryd.client import MemorydClient, MemorydError, connect
from memoryd_server.cli.local_daemon import local_daemon
from memoryd_server.settings import load

# Fields that may differ between equal answers.
_IGNORED = frozenset({"elapsed", "index_revision"})
_DIMENSIONS = 384
# Small sets in English, for which a small model has useful vectors.
_MODEL_FOR = ("locomo-conv", "locomo-notes", "locomo-jsonl", "qmd-eval", "xquad-en")
_WORD = re.compile(r"[a-z0-9]+|[^\W_]")
_PORT_FILE = "provider-port"
_SHOWN = 160
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs: the call, the path of the value in the line, and both values; None for a missing one."""

    call: str
    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.call}: {self.path}\n  old {_shown(self.old)}\n  new {_shown(self.new)}"


def differences(old: Path, new: Path) -> Iterator[Difference]:
    """Yield the first difference of each call whose answers differ in two files, in the order of the old file.

    Calls that only the new file has follow at the end.
    """
    answers = {}
    with new.open(encoding="utf-8") as lines:
        for line in lines:
            answers[_call_of(line)] = line
    with old.open(encoding="utf-8") as lines:
        for line in lines:
            name = _call_of(line)
            other = answers.pop(name, None)
            if other is None:
                yield Difference(name, "the call", "recorded", None)
            elif other != line:
                found = first_difference(json.loads(line), json.loads(other))
                if found is not None:
                    yield Difference(name, *found)
    for name in answers:
        yield Difference(name, "the call", None, "recorded")


def first_difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return the path and the two values of the first difference of two JSON values; None if they are equal.

    Numbers are compared exactly. A key or an item that only one of the values has is a difference; its other value is
    None.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys, prefix = list({**old, **new}), f"{path}." if path else ""
        return _first_of([(f"{prefix}{key}", old.get(key, _MISSING), new.get(key, _MISSING)) for key in keys])
    if isinstance(old, list) and isinstance(new, list):
        pairs = zip_longest(old, new, fillvalue=_MISSING)
        return _first_of([(f"{path}[{number}]", *pair) for number, pair in enumerate(pairs)])
    if type(old) is type(new) and old == new:
        return None
    return path, *(None if each is _MISSING else each for each in (old, new))


def _first_of(pairs: Iterable[tuple[str, Any, Any]]) -> tuple[str, Any, Any] | None:
    found = (first_difference(old, new, path) for path, old, new in pairs)
    return next((each for each in found if each is not None), None)


def compare(old: Path, new: Path, most: int) -> int:
    """Print at most `most` differences and the number of all of them; return the exit status."""
    with old.open("rb") as lines:
        recorded = sum(1 for _ in lines)
    found = list(differences(old, new))
    for difference in found[:most]:
        print(difference)
    if found:
        print(f"DIFFERENT: {len(found)} of {recorded} calls have other answers")
    elif not recorded:
        print(f"{old} and {new} have no calls")
    else:
        print("SAME")
    return 1 if found or not recorded else 0


def answer_values(value: Any) -> Any:
    """Return the JSON values of an answer without the fields that may differ between equal answers."""
    if isinstance(value, dict):
        return {key: answer_values(each) for key, each in value.items() if key not in _IGNORED}
    return [answer_values(each) for each in value] if isinstance(value, list) else value


def record(options: argparse.Namespace) -> None:
    """Index the memories, run all calls, and write their answers."""
    state: Path = options.state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    memories = prepare(options.data, state, options.queries)
    if options.only:
        memories = tuple(memory for memory in memories if memory.agent.startswith(tuple(options.only)))
    draft = options.out.with_name(f"{options.out.name}.draft")
    count = 0
    with draft.open("w", encoding="utf-8") as out, _embedding(options, state, memories) as embedding:
        for number, (profile, search) in enumerate(PROFILES.items()):
            if profile == "vectors" and options.mode != "hybrid":
                continue
            with _daemon(state, memories, search, embedding) as client:
                for memory in memories:
                    # The first daemon builds the indexes; the others find them up to date.
                    _index(client, memory, rebuild=options.rebuild and not number)
                for line in _lines(client, memories, profile, options):
                    out.write(line)
                    count += 1
            print(f"{time.process_time():.1f} CPU s: {profile}, {count} calls", file=sys.stderr, flush=True)
    draft.replace(options.out)
    print(f"{count} answers of {Path(memoryd_server.__file__).parent} in {options.out}", file=sys.stderr)


def _lines(
    client: MemorydClient, memories: Sequence[Memory], profile: str, options: argparse.Namespace
) -> Iterator[str]:
    """Yield the lines of all calls with the current settings, in the order of the calls."""
    hybrid, exhaustive = options.mode == "hybrid", options.exhaustive
    wanted = [call for memory in memories for call in calls(memory, profile, hybrid=hybrid, exhaustive=exhaustive)]
    if options.callers == 1:
        yield from (_line(client, profile, call) for call in wanted)
        return
    # In an order in which concurrent calls search different memories.
    order = sorted(range(len(wanted)), key=lambda place: _turn(place, options.callers, len(wanted)))
    with ThreadPoolExecutor(options.callers) as pool:
        running = {place: pool.submit(_line, client, profile, wanted[place]) for place in order}
        yield from (running[place].result() for place in range(len(wanted)))


def _turn(place: int, callers: int, count: int) -> int:
    """Return the turn of a call if the calls are divided into one consecutive part per caller."""
    return place % (-(-count // callers))


@contextmanager
def _provider(state: Path) -> Iterator[dict[str, Any]]:
    """Run a provider of `word_vector_json`, and yield the settings of `memorySearch` that select it.

    Its port is always the same for one `state`, because it is part of the identity of the stored vectors.
    """
    file = state / _PORT_FILE
    port = int(file.read_text("ascii")) if file.exists() else 0
    provider = LoopbackProvider(_DIMENSIONS, make=word_vector_json, port=port)
    file.write_text(str(provider.port), "ascii")
    provider.start()
    try:
        yield {"provider": "openai-compatible", "model": "words", "remote": {"baseUrl": provider.url}}
    finally:
        provider.stop()


def word_vector_json(text: str) -> str:
    """Return the mean of random vectors of the words as JSON; every letter other than a-z is a word of its own."""
    total = np.zeros(_DIMENSIONS)
    for word in _WORD.findall(text.lower()) or [""]:
        total += _random_vector(word)
    return json.dumps((total / (np.linalg.norm(total) or 1.0)).round(6).tolist())


@lru_cache(maxsize=50_000)
def _random_vector(word: str) -> NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(_DIMENSIONS)


@contextmanager
def _embedding(options: argparse.Namespace, state: Path, memories: Sequence[Memory]) -> Iterator[dict[str, Any]]:
    """Run the embedding providers, and yield the embedding settings of each agent."""
    if options.mode != "hybrid":
        yield {memory.agent: {"provider": "none", "fallback": "none"} for memory in memories}
        return
    with _provider(state) as by_words:
        local = (
            {"provider": "local", "local": {"modelPath": str(options.model.resolve())}} if options.model else by_words
        )
        with_model = tuple(options.model_for)
        yield {each.agent: local if each.agent.startswith(with_model) else by_words for each in memories}


@contextmanager
def _daemon(
    state: Path, memories: Sequence[Memory], search: Mapping[str, Any], embedding: Mapping[str, Any]
) -> Iterator[MemorydClient]:
    """Yield a client of a daemon in this process with these settings of `memorySearch`, some of them by agent."""
    config = write_settings(state, memories, search, embedding)
    # Environment variables are ignored.
    settings = load(environ={}, home=state, flags={"state_dir": state, "config": config})
    with local_daemon(settings, background=False) as (_, address), connect(address, token="") as client:
        yield client


def _index(client: MemorydClient, memory: Memory, *, rebuild: bool) -> None:
    mode = messages.SYNC_MODE_FULL if rebuild else messages.SYNC_MODE_INCREMENTAL
    with client.sync(agent_id=memory.agent, mode=mode) as events:
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "file_failed":
                raise SystemExit(f"{memory.agent}: {event.file_failed.path}: {event.file_failed.error}")
            if kind == "completed" and event.completed.pending_embeddings:
                raise SystemExit(f"{memory.agent}: {event.completed.pending_embeddings} chunks have no vectors")


def _line(client: MemorydClient, profile: str, call: Call) -> str:
    name = f"{profile}, {call.name}"
    try:
        response = MessageToDict(call.run(client), preserving_proto_field_name=True)
    except MemorydError as error:
        found = {"error": f"{error.code.name} {error}"}
    else:
        found = {"answer": answer_values(response)}
    return json.dumps({"call": name, **found}, ensure_ascii=False) + "\n"


def _call_of(line: str) -> str:
    """Return the name of the call of a line."""
    name: str = json.loads(line)["call"]
    return name


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="write the answers of this version to a file")
    recorder.add_argument("--data", type=Path, required=True, help="folder of the golden sets")
    recorder.add_argument("--state", type=Path, required=True, help="folder for the memories and their indexes")
    recorder.add_argument("--out", type=Path, required=True)
    recorder.add_argument("--mode", choices=("keyword", "hybrid"), default="keyword")
    recorder.add_argument("--model", type=Path, help="a GGUF file, for hybrid search")
    recorder.add_argument(
        "--model-for",
        nargs="+",
        default=_MODEL_FOR,
        metavar="NAME",
        help=f"first letters of the names of the memories that the model embeds (default: {' '.join(_MODEL_FOR)})",
    )
    recorder.add_argument("--queries", type=int, default=300, help="maximum number of queries per set (default: 300)")
    recorder.add_argument("--callers", type=int, default=1, help="concurrent calls (default: 1)")
    recorder.add_argument("--only", nargs="+", help=f"first letters of names of memories, such as locomo or {PROSE}")
    recorder.add_argument("--exhaustive", action="store_true", help="all kinds of requests for each query and setting")
    recorder.add_argument("--rebuild", action="store_true", help="build the indexes again")
    comparer = commands.add_parser("compare", help="print the first differences of two files")
    comparer.add_argument("old", type=Path)
    comparer.add_argument("new", type=Path)
    comparer.add_argument("--most", type=int, default=10, help="most differences to print (default: 10)")
    options = parser.parse_args()
    if options.command == "compare":
        return compare(options.old, options.new, options.most)
    record(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
