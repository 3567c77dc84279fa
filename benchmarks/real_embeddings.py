"""Compute real embeddings for `vector_leg.py`: paragraphs, sentences and questions of golden sets.

    python benchmarks/real_embeddings.py OUT.npz --data ../shared/eval/data --model MODEL.gguf [--all | --seconds 300]

`--data` is one set or a folder of several sets. Embeds as many texts as the time allows, paragraphs first, or all of
them; each takes about 15 ms of one core. Needs the extra `memoryd[local]`.
"""

import argparse
import json
import math
import random
import re
import time
from pathlib import Path

import llama_cpp
import numpy as np

LEAST_CHARS, MOST_CHARS = 30, 1_600
SENTENCE_END = re.compile(r"(?<=[.!?。！？।])\s*")  # noqa: RUF001 -- the full stops of several scripts
WINDOW_TOKENS = 512
REPORT_EVERY = 2_000


def texts(data: Path, seed: int) -> list[str]:
    """Return the distinct lines of prose in the notes of golden sets, shuffled, then their sentences."""
    lines = {line.strip()[:MOST_CHARS] for file in data.rglob("*.md") for line in file.read_text("utf-8").splitlines()}
    sentences = {part.strip() for line in lines for part in SENTENCE_END.split(line)} - lines
    shuffled = []
    for group in (lines, sentences):
        long_enough = sorted(text for text in group if len(text) >= LEAST_CHARS)
        shuffled += random.Random(seed).sample(long_enough, len(long_enough))
    return shuffled


def questions(data: Path, count: int, seed: int) -> list[str]:
    """Return `count` of the golden sets' questions."""
    lines = [line for file in sorted(data.rglob("queries.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return random.Random(seed).sample([json.loads(line)["query"] for line in lines], count)


class Embedder:
    """A GGUF model that converts texts into unit vectors."""

    def __init__(self, model: Path) -> None:
        # A batch larger than the window, or a micro-batch smaller than the batch, ends the process, so all are equal.
        # Threads wait for each other at every step; on a busy machine one thread is the fastest.
        self._llama = llama_cpp.Llama(
            str(model), embedding=True, n_ctx=WINDOW_TOKENS, n_batch=WINDOW_TOKENS, n_ubatch=WINDOW_TOKENS,
            n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False,
        )  # fmt: skip

    def __call__(self, text: str) -> np.ndarray:
        vector = np.asarray(self._llama.embed(text, truncate=True), np.float32)
        return vector / np.linalg.norm(vector)


def embedded(embed: Embedder, texts: list[str], seconds: float) -> np.ndarray:
    """Return the vectors of the first texts, one per row, as many as the time allows."""
    began = time.monotonic()
    vectors: list[np.ndarray] = []
    for text in texts:
        if time.monotonic() - began > seconds:
            break
        vectors.append(embed(text))
        if len(vectors) % REPORT_EVERY == 0:
            print(f"{len(vectors)} of {len(texts)} in {time.monotonic() - began:.0f} s", flush=True)
    return np.stack(vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    bound = parser.add_mutually_exclusive_group()
    bound.add_argument("--seconds", type=float, default=300)
    bound.add_argument("--all", action="store_const", const=math.inf, dest="seconds", help="embed all texts")
    parser.add_argument("--questions", type=int, default=400)
    options = parser.parse_args()
    embed = Embedder(options.model)
    queries = embedded(embed, questions(options.data, options.questions, seed=1), math.inf)
    documents = embedded(embed, texts(options.data, seed=1), options.seconds)
    np.savez(options.out, documents=documents, queries=queries)
    distinct = len(np.unique(documents.round(6), axis=0))
    print(f"{len(documents)} documents, {distinct} of them distinct, and {len(queries)} queries in {options.out}")


if __name__ == "__main__":
    main()
