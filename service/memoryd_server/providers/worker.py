"""The process that holds a llama.cpp model. Run as a script by `worker_process`.

Frames go over standard input and output: two little-endian 32-bit lengths, then JSON, then bytes. The first output
frame says that the model is loaded, or why not. Each text frame is then answered by a vector or an error. The end of
the input ends the process, so it never outlives its parent. Imports nothing of memoryd, so that a crash here can only
come from llama.cpp.
"""

import json
import os
import signal
import struct
import sys
from array import array
from typing import IO, Any

_LENGTHS = struct.Struct("<II")


def write_frame(file: IO[bytes], header: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame and flush."""
    encoded = json.dumps(header).encode()
    file.write(_LENGTHS.pack(len(encoded), len(body)) + encoded + body)
    file.flush()


def read_frame(file: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Return the next frame; None if the other side has closed the pipe."""
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    header_length, body_length = _LENGTHS.unpack(lengths)
    header, body = file.read(header_length), file.read(body_length)
    if len(header) < header_length or len(body) < body_length:
        return None
    return json.loads(header), body


class LlamaModel:
    """A loaded model. Embeds one text at a time: a batch of several is slower, and can abort the process."""

    def __init__(self, path: str, window: int, threads: int) -> None:
        from llama_cpp import Llama  # noqa: PLC0415 -- an extra, and slow to import

        # llama.cpp aborts if the batch is smaller than the context, or the micro-batch smaller than the batch.
        llama: Any = Llama(
            model_path=path,
            embedding=True,
            n_ctx=window,
            n_batch=window,
            n_ubatch=window,
            flash_attn=True,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self._llama = llama
        self._window = min(window, llama.n_batch)
        self._tokenize = llama.tokenize
        self._closing = self._tokenize(b"")[-1:]
        llama.tokenize = self._tokens

    def _tokens(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Return the tokens that fit the window. Keep the closing token: models that pool over the last need it."""
        tokens: list[int] = self._tokenize(text, add_bos, special)
        if len(tokens) <= self._window:
            return tokens
        kept = self._window - len(self._closing) if tokens[-1:] == self._closing else self._window
        return tokens[:kept] + tokens[len(tokens) - (self._window - kept) :]

    def embed(self, text: str) -> tuple[bytes, int]:
        """Return the vector of `text` as float32 in native byte order, and the number of tokens read."""
        vector, tokens = self._llama.embed(text.encode("utf-8", "replace").decode(), return_count=True)
        if tokens == 0:
            raise ValueError("the text has no tokens")
        if vector and isinstance(vector[0], list):
            raise ValueError("the model returns a vector for each token: it is not an embedding model")
        return array("f", vector).tobytes(), tokens


def serve(source: IO[bytes], sink: IO[bytes], path: str, window: int, threads: int) -> None:
    """Load the model and answer requests until the input ends."""
    try:
        model = LlamaModel(path, window, threads)
    except Exception as error:  # noqa: BLE001 -- every error must be reported to the parent
        write_frame(sink, {"error": _error_line(error)})
        return
    write_frame(sink, {"ready": True})
    while frame := read_frame(source):
        try:
            vector, tokens = model.embed(frame[0]["text"])
        except Exception as error:  # noqa: BLE001 -- a bad text must not end the process
            write_frame(sink, {"error": _error_line(error)})
        else:
            write_frame(sink, {"tokens": tokens}, vector)


def _error_line(error: Exception) -> str:
    """Return the first line of the error; never the text to be embedded."""
    return "the text cannot be tokenized" if "tokenize" in str(error) else (str(error) or repr(error)).split("\n")[0]


def main() -> None:
    """Serve the model. Arguments: the model's file, its window in tokens, the number of threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path, window, threads = sys.argv[1:]
    # Only frames may reach the parent, so the output of libraries goes to standard error.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, sink, path, int(window), int(threads))
    except BrokenPipeError:
        os._exit(0)
    # llama.cpp's cleanup takes time and may crash; the operating system frees everything anyway.
    os._exit(0)


if __name__ == "__main__":
    main()
