"""Real embeddings for `vector_leg.py`: a golden set's paragraphs and their sentences, as many as the time allows, and
its questions.

    python benchmarks/real_embeddings.py OUT.npz --data ../shared/eval/data --model MODEL.gguf --seconds 300

Needs the extra `memoryd[local]`.
"""

import argparse
import json
import random
import re
import time
from pathlib import Path

import llama_cpp
import numpy as np

LEAST_CHARS, MOST_CHARS = 30, 1_600
SENTENCE_END = re.compile(r"(?<=[.!?。！？।])\s*")  # noqa: RUF001 -- the full stops of several scripts
WINDOW_TOKENS = 512


def texts(data: Path, seed: int) -> list[str]:
    """The distinct lines of prose in a golden set's notes, shuffled, then their sentences."""
    lines = {line.strip()[:MOST_CHARS] for file in data.rglob("*.md") for line in file.read_text("utf-8").splitlines()}
    sentences = {part.strip() for line in lines for part in SENTENCE_END.split(line)} - lines
    shuffled = []
    for group in (lines, sentences):
        long_enough = sorted(text for text in group if len(text) >= LEAST_CHARS)
        shuffled += random.Random(seed).sample(long_enough, len(long_enough))
    return shuffled


def questions(data: Path, count: int, seed: int) -> list[str]:
    """`count` of a golden set's questions."""
    lines = [line for file in sorted(data.rglob("queries.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return random.Random(seed).sample([json.loads(line)["query"] for line in lines], count)


class Embedder:
    """A GGUF model that turns texts into unit vectors."""

    def __init__(self, model: Path) -> None:
        # A batch beyond the window, or a micro-batch below the batch, ends the process: all three are equal.
        self._llama = llama_cpp.Llama(
            str(model), embedding=True, n_ctx=WINDOW_TOKENS, n_batch=WINDOW_TOKENS, n_ubatch=WINDOW_TOKENS,
            flash_attn=True, verbose=False,
        )  # fmt: skip

    def __call__(self, text: str) -> np.ndarray:
        vector = np.asarray(self._llama.embed(text, truncate=True), np.float32)
        return vector / np.linalg.norm(vector)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--questions", type=int, default=400)
    options = parser.parse_args()
    embed = Embedder(options.model)
    queries = [embed(text) for text in questions(options.data, options.questions, seed=1)]
    documents: list[np.ndarray] = []
    until = time.monotonic() + options.seconds
    for text in texts(options.data, seed=1):
        if time.monotonic() > until:
            break
        documents.append(embed(text))
    np.savez(options.out, documents=np.stack(documents), queries=np.stack(queries))
    print(f"{len(documents)} documents and {len(queries)} queries in {options.out}")


if __name__ == "__main__":
    main()
