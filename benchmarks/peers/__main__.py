"""Compare memoryd with other tools that give agents a memory of Markdown files: `python benchmarks/peers`.

All tools index the same notes from nothing and answer the same questions, in turn, in blocks of ten: with keywords
only, and with an embedding model, which a server on loopback provides. Measured are processor time, memory, latency,
what the first six results find (`recall_at_6`) and show (`shown_at_6`), and a search with one command and no running
process. A tool that is not installed is reported with the reason. `make setup-peers` installs the tools; the dev sets
are in `--data`. A whole run takes about half an hour on two cores, and should be the only work of the machine.

Prints JSON and writes it to benchmarks/results/peers.json, or to `--out`, and the ranks and latencies of each question
to a file beside it. docs/compare.md describes the figures.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import report
from basic_memory_peer import BasicMemoryPeer
from comparison import Comparison, PeerRun, say
from embedding_server import embedding_server
from memoryd_peer import MemorydPeer
from memsearch_peer import MemsearchPeer
from notes import FILES, Corpus
from openclaw_peer import OpenClawPeer, OpenClawTrigramPeer
from peer import Mode, PeerFactory, Setup
from qmd_peer import QmdAnyWordPeer, QmdPeer

REPOSITORY = Path(__file__).parents[2]
MODEL = REPOSITORY.parent / "shared" / "models" / "all-minilm-l6-v2-q8_0.gguf"
PEERS: tuple[PeerFactory, ...] = (
    MemorydPeer, OpenClawPeer, OpenClawTrigramPeer, QmdPeer, QmdAnyWordPeer, MemsearchPeer, BasicMemoryPeer,
)  # fmt: skip
# OpenClaw lowers the scores of notes with such names; memoryd is measured without them for comparison.
UNDATED = ("memoryd", "openclaw", "openclaw-trigram")
# Embedding takes most of the time, so that this mode has only the 189 notes with answers, and some others.
VECTOR_FILES = 200


def compare(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[PeerRun]]]:
    """Run all tools in each mode. Yield the report and the runs until then after each mode."""
    began = time.monotonic()
    surroundings = report.machine()
    corpora, runs = {}, []
    for mode in options.modes:
        corpus = Corpus(
            options.data,
            files=options.vector_notes if mode == "vectors" else options.notes,
            questions=options.questions,
        )
        with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
            runs += in_mode(mode, corpus, options, Path(folder))
            notes = list((Path(folder) / "notes").rglob("*.md"))
            corpora[mode] = {
                "notes": len(notes),
                "mib": round(sum(file.stat().st_size for file in notes) / 2**20, 2),
                "questions": len(corpus.sample_questions()),
            }
        yield (
            {
                "machine": surroundings,
                "minutes": round((time.monotonic() - began) / 60, 1),
                "model": options.model.name,
                "modes": corpora,
                "results": [report.result(run) for run in runs],
            },
            runs,
        )


def in_mode(mode: Mode, corpus: Corpus, options: argparse.Namespace, folder: Path) -> list[PeerRun]:
    """Run the selected tools that have this mode."""
    peers = [factory() for factory in selected(options.only) if mode in factory.modes]
    with ExitStack() as stack:
        url, server = "", None
        if mode == "vectors":
            url, server = stack.enter_context(embedding_server(options.model))
        setup = Setup(folder, folder, mode, url, options.model.stem, options.model.resolve())
        return Comparison(folder, corpus, server).run(peers, setup, UNDATED)


def selected(names: Sequence[str]) -> list[PeerFactory]:
    return [factory for factory in PEERS if not names or factory.name in names]


def main() -> None:
    modes, names = get_args(Mode), [factory.name for factory in PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "eval" / "data")
    parser.add_argument("--model", type=Path, default=MODEL, help="embedding model, a GGUF file; default: %(default)s")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results" / "peers.json")
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="tools; default: all")
    parser.add_argument("--modes", nargs="+", choices=modes, default=modes)
    parser.add_argument("--questions", type=int, help="the first of the 349 questions; default: all")
    parser.add_argument("--notes", type=int, default=FILES, help="notes with keywords; default: %(default)s")
    parser.add_argument("--vector-notes", type=int, default=VECTOR_FILES, help="with vectors; default: %(default)s")
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(f"{options.data} does not exist: set --data to the folder of the dev sets")
    if "vectors" in options.modes and not options.model.is_file():
        parser.error(f"{options.model} does not exist: set --model to a GGUF file, or use --modes keywords")
    if "vectors" in options.modes and find_spec("llama_cpp") is None:
        parser.error("llama.cpp is not installed: run `make setup-peers`, or use --modes keywords")
    # The default would end this process without its children.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    questions = options.out.with_name(f"{options.out.stem}-questions.jsonl")
    text = ""
    for results, runs in compare(options):
        text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
        options.out.write_text(text, "utf-8")
        questions.write_text("".join(report.question_lines(runs)), "utf-8")
        say(f"written to {options.out} and {questions}")
    print(text, end="")


if __name__ == "__main__":
    main()
