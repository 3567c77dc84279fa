"""Measure how fast secrets are masked: this project's documentation and source code, in messages of ordinary length.

Prints megabytes per second of processor time, the best of seven runs: `python benchmarks/masking.py`.
"""

import time
from pathlib import Path

from memoryd_server.sources.secrets import mask_secrets

ROOT = Path(__file__).parents[1]
MESSAGE_CHARS = 540
RUNS = 7


def main() -> None:
    """Print the size of the texts and the speed."""
    files = [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "service").rglob("*.py"))]
    texts = [" ".join(file.read_text("utf-8").split()) for file in files]
    messages = [text[at : at + MESSAGE_CHARS] for text in texts for at in range(0, len(text), MESSAGE_CHARS)]
    size = sum(map(len, messages))
    best = min(_seconds(messages) for _ in range(RUNS))
    print(f"{size / 1e6:.1f} MB in {len(messages)} messages: {size / best / 1e6:.1f} MB/s")


def _seconds(messages: list[str]) -> float:
    began = time.process_time()
    for message in messages:
        mask_secrets(message)
    return time.process_time() - began


if __name__ == "__main__":
    main()
