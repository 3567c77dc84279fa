"""The process that holds a llama.cpp model. Run as a script by `worker_process`.

Frames go over standard input and output: two little-endian 32-bit lengths, then JSON, then bytes. The first output
frame says that the model is loaded, or why not. Each request is then answered by a result or an error: a text by its
vector, and a query with a passage by a score. The end of the input ends the process, so it never outlives its parent.
Imports nothing of memoryd, so that a crash here can only come from llama.cpp.
"""

import json
import math
import os
import re
import signal
import struct
import sys
from array import array
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

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


def _load(path: str, window: int, threads: int, **options: object) -> Any:
    from llama_cpp import Llama  # noqa: PLC0415 -- an extra, and slow to import

    # llama.cpp aborts if the batch is smaller than the context, or the micro-batch smaller than the batch.
    return Llama(
        model_path=path,
        embedding=True,
        n_ctx=window,
        n_batch=window,
        n_ubatch=window,
        flash_attn=True,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
        **options,
    )


class Model(Protocol):
    """A loaded model that answers one request at a time."""

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the header and the body of the answer to a request."""
        ...


class LlamaModel:
    """A loaded model. Embeds one text at a time: a batch of several is slower, and can abort the process."""

    def __init__(self, path: str, window: int, threads: int) -> None:
        llama = _load(path, window, threads)
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

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the vector of the request's text."""
        vector, tokens = self.embed(request["text"])
        return {"tokens": tokens}, vector


# A placeholder with the white space around it, which many tokenizers join with the words of the text.
_PLACEHOLDER = re.compile(r"(\s{0,8}\{(?:query|document)\}\s{0,8})")
# llama.cpp applies the softmax to the outputs of these architectures: the first one is a probability.
_PROBABILITIES = "qwen3"


class RankModel:
    """A loaded model with rank pooling. Scores one passage at a time.

    The tokens of a pair are those of llama.cpp's server: the model's chat template `rerank` if it has one, else the
    query and the passage with the tokens that mark their beginnings and ends. Neither text can contain such tokens.
    """

    def __init__(self, path: str, window: int, threads: int) -> None:
        import llama_cpp  # noqa: PLC0415 -- an extra, and slow to import

        self._llama = _load(path, window, threads, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_RANK)
        self._api: Any = llama_cpp
        self._window = min(window, self._llama.n_batch)
        self._batch = self._api.llama_batch_init(self._window, 0, 1)
        self._is_probability = self._llama.metadata.get("general.architecture", "").startswith(_PROBABILITIES)
        template = self._api.llama_model_chat_template(self._llama.model, b"rerank")
        self.marks, self._texts = self._own_marks() if template is None else self._template(template.decode())
        """The tokens before, between and after the two texts; and the two texts with their placeholders."""

    def _own_marks(self) -> tuple[list[list[int]], tuple[str, str]]:
        api, vocab = self._api, self._api.llama_model_get_vocab(self._llama.model)
        end = api.llama_vocab_eos(vocab)
        end = api.llama_vocab_sep(vocab) if end < 0 else end
        first = [api.llama_vocab_bos(vocab)] if api.llama_vocab_get_add_bos(vocab) else []
        ends = [end] if api.llama_vocab_get_add_eos(vocab) else []
        separator = [api.llama_vocab_sep(vocab)] if api.llama_vocab_get_add_sep(vocab) else []
        return [first, ends + separator, ends], ("{query}", "{document}")

    def _template(self, template: str) -> tuple[list[list[int]], tuple[str, str]]:
        parts = _PLACEHOLDER.split(template)
        if sorted(part.strip() for part in parts[1::2]) != ["{document}", "{query}"]:
            raise ValueError("the model's template for reranking does not have one query and one document")
        return [self.tokens(part, special=True) for part in parts[::2]], (parts[1], parts[3])

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Return the tokens of a text; those with a special meaning only if `special` is set."""
        # Some tokenizers return a space for an empty text.
        data = text.encode("utf-8", "replace")
        return list(self._llama.tokenize(data, add_bos=False, special=special)) if data else []

    def pair(self, query: str, passage: str) -> list[int]:
        """Return the tokens of a pair that fit the window: at most half of it for the query."""
        room = self._window - sum(map(len, self.marks))
        asked, read = (
            self.tokens(next(text for text in self._texts if name in text).replace(name, value))
            for name, value in (("{query}", query), ("{document}", passage))
        )
        asked = asked[: max(0, room // 2)]
        texts = [asked, read[: max(0, room - len(asked))]]
        if "{document}" in self._texts[0]:
            texts.reverse()
        before, between, after = self.marks
        return [*before, *texts[0], *between, *texts[1], *after][: self._window]

    def score(self, query: str, passage: str) -> tuple[float, int]:
        """Return the score of a passage, 0..1, and the number of tokens read."""
        tokens, batch = self.pair(query, passage), self._batch
        if not tokens:
            raise ValueError("the texts have no tokens")
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = 1
        self._api.llama_memory_clear(self._api.llama_get_memory(self._llama.ctx), True)
        if self._api.llama_decode(self._llama.ctx, batch):
            raise ValueError("llama.cpp cannot process the texts")
        score = float(self._api.llama_get_embeddings_seq(self._llama.ctx, 0)[0])
        return score if self._is_probability else _logistic(score), len(tokens)

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the score of the request's passage for its query."""
        score, tokens = self.score(request["query"], request["passage"])
        return {"score": score, "tokens": tokens}, b""


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -700.0), 700.0)))


MODELS: Mapping[str, Callable[[str, int, int], Model]] = {"embed": LlamaModel, "rank": RankModel}
"""The models by task; each is made of the model's file, its window in tokens and the number of threads."""


def serve(source: IO[bytes], sink: IO[bytes], load: Callable[[], Model]) -> None:
    """Load the model and answer requests until the input ends."""
    try:
        model = load()
    except Exception as error:  # noqa: BLE001 -- every error must be reported to the parent
        write_frame(sink, {"error": _error_line(error)})
        return
    write_frame(sink, {"ready": True})
    while frame := read_frame(source):
        try:
            header, body = model.answer(frame[0])
        except Exception as error:  # noqa: BLE001 -- a bad text must not end the process
            write_frame(sink, {"error": _error_line(error)})
        else:
            write_frame(sink, header, body)


def _error_line(error: Exception) -> str:
    """Return the first line of the error; never the text to be embedded."""
    return "the text cannot be tokenized" if "tokenize" in str(error) else (str(error) or repr(error)).split("\n")[0]


def main() -> None:
    """Serve the model. Arguments: the task, the model's file, its window in tokens, the number of threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task, path, window, threads = sys.argv[1:]
    # Only frames may reach the parent, so the output of libraries goes to standard error.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, sink, lambda: MODELS[task](path, int(window), int(threads)))
    except BrokenPipeError:
        os._exit(0)
    # llama.cpp's cleanup takes time and may crash; the operating system frees everything anyway.
    os._exit(0)


if __name__ == "__main__":
    main()
