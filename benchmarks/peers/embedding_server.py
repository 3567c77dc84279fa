"""Serve a GGUF model with OpenAI's embeddings API on loopback: `python embedding_server.py MODEL`.

Prints its base URL when it is ready. All tools of the comparison get their vectors from it, except those that embed by
themselves. Texts that are longer than the window of 512 tokens are truncated.
"""

import argparse
import base64
import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psutil

Embed = Callable[[str], np.ndarray]


class EmbeddingServer(ThreadingHTTPServer):
    """Answers `POST /v1/embeddings`. Each of the embedders computes one text at a time, in a thread."""

    daemon_threads = True

    def __init__(self, embedders: Sequence[Embed]) -> None:
        super().__init__(("127.0.0.1", 0), EmbeddingHandler)
        self._idle_embedders: queue.SimpleQueue[Embed] = queue.SimpleQueue()
        for embed in embedders:
            self._idle_embedders.put(embed)
        self._embedding_threads = ThreadPoolExecutor(len(embedders))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, request: dict) -> dict:
        """Return the body of the response. Arrays of token ids are refused, because each model has its own."""
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("`input` must be a text or a list of texts")
        vectors = self._embedding_threads.map(self._embed, texts)
        encode = as_base64 if request.get("encoding_format") == "base64" else np.ndarray.tolist
        data = [
            {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": data, "model": request.get("model", ""), "usage": usage}

    def _embed(self, text: str) -> np.ndarray:
        embed = self._idle_embedders.get()
        try:
            return embed(text)
        finally:
            self._idle_embedders.put(embed)


class EmbeddingHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise the body waits for the acknowledgement of the headers, 40 ms on Linux.
    disable_nagle_algorithm = True
    server: EmbeddingServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            status, answer = 200, self.server.answer(json.loads(body))
        except (ValueError, KeyError) as error:
            status, answer = 400, {"error": {"message": str(error), "type": "invalid_request_error"}}
        reply = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


def as_base64(vector: np.ndarray) -> str:
    """Return the vector as OpenAI's clients ask for it by default: little-endian 32-bit floats."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


@contextmanager
def embedding_server(model: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run this file in a process until the block ends. Yield its base URL and the process.

    Raises:
        RuntimeError: if the model cannot be loaded.
    """
    command = [sys.executable, __file__, str(model)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the embedding server did not start with {model}: is `make setup-local` done?")
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from real_embeddings import Embedder  # noqa: PLC0415 -- needs llama.cpp, which the harness does not

    model = parser.parse_args().model
    # One thread for each text: the threads of one text wait for each other, for long on a busy machine.
    server = EmbeddingServer([Embedder(model) for _ in range(os.cpu_count() or 1)])
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
