"""A provider in memory: texts that share words are near each other. It can fail, slow down, or stop at a gate."""

import threading

import numpy as np

from fake_providers import vector
from memoryd_server.errors import EmbeddingOutage, EmbeddingUnavailable
from memoryd_server.model import EmbeddingSpec
from memoryd_server.providers.provider import EmbeddingFailure, ProviderState, ProviderStatus


def word_vector(text, dimensions=16):
    values = np.asarray(vector(text, dimensions), np.float32)
    return values / np.linalg.norm(values)


class WordProvider:
    """`bad` words fail their text; after `lives` batches of documents it is down; `down` says so of questions too.

    `before` is called with the texts of each batch, `before_query` with each question. Without `told`, nobody asked for
    `dimensions`: they show by the vectors alone, and may change. `odd` words give vectors one longer. Texts are
    embedded in pieces of up to `piece_chars`.
    """

    def __init__(self, model="words", provider="remote", dimensions=16, *, told=True, piece_chars=0):
        asked = dimensions if told else None
        endpoint = "" if provider == "local" else "http://there"
        self.spec = EmbeddingSpec(provider, model, endpoint, asked, 512, piece_chars=piece_chars)
        self.dimensions = dimensions
        self.odd = "misshapen"
        self.batches = []
        self.questions = []
        self.bad = "unspeakable"
        self.lives = None
        self.down = ""
        self.before = lambda _texts: None
        self.before_query = lambda _text: None
        self._lock = threading.Lock()

    @property
    def texts(self):
        return [text for batch in self.batches for text in batch]

    def vector(self, text):
        return word_vector(text, self.dimensions + (self.odd in text))

    def embed_query(self, text, _deadline):
        with self._lock:
            self.questions.append(text)
        self.before_query(text)
        if self.down:
            raise EmbeddingOutage(self.down)
        return self.vector(text)

    def embed_documents(self, texts, should_stop):
        if self.lives is not None and len(self.batches) >= self.lives:
            raise EmbeddingUnavailable("the provider is down")
        self.batches.append(list(texts))
        self.before(texts)
        answers = []
        for text in texts:
            if should_stop():
                answers.append(EmbeddingFailure("stopped", transient=True))
            elif self.bad in text:
                answers.append(EmbeddingFailure("the text is refused"))
            else:
                answers.append(self.vector(text))
        return answers

    def refresh(self):
        pass

    @property
    def problem(self):
        return self.down

    def status(self):
        return ProviderStatus(ProviderState.UNAVAILABLE if self.down else ProviderState.READY, self.down)

    def close(self):
        pass
