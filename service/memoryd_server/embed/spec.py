"""What vectors are made with: the model, how much it reads, and the words it wants before a text. Pure.

Models trained with a task prefix rank worse than keywords without it (demand 35). The prefixes are those of the models'
own cards.
"""

import re
from dataclasses import dataclass

_SEARCH_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SENTENCE = "Represent this sentence for searching relevant passages: "

LOCAL_WINDOW = 2048
"""Tokens that a local model reads at most, whatever its own window: a larger one is slower and takes more memory."""


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """Who makes the vectors, of what. With the chunking this is the identity of an index's vectors.

    `endpoint` holds no credentials. `dimensions` is None while they are not known. The prefixes stand before each
    question and each document.
    """

    provider: str
    model: str
    endpoint: str
    dimensions: int | None
    max_input_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Family:
    """Models that want the same prefixes; `pattern` is searched in the model's name in lower case."""

    pattern: re.Pattern[str]
    max_input_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


# The first that matches counts. A pattern of two parts tries only the first place of the first part, so that its time
# is linear.
_FAMILIES = (
    _Family(re.compile(r"embedding-?gemma"), 2048, "task: search result | query: ", "title: none | text: "),
    _Family(re.compile(r"(?m)^(?>.*?nomic-embed-text).*moe"), 512, "search_query: ", "search_document: "),
    _Family(re.compile(r"nomic-embed-text"), 2048, "search_query: ", "search_document: "),
    _Family(re.compile(r"\be5-mistral"), 4096, f"Instruct: {_SEARCH_TASK}\nQuery: "),
    _Family(re.compile(r"(?m)^(?>.*?\be5-).*instruct"), 512, f"Instruct: {_SEARCH_TASK}\nQuery: "),
    _Family(re.compile(r"\be5-"), 512, "query: ", "passage: "),
    _Family(re.compile(r"\bbge-(?:m3|multilingual)"), 8192),
    _Family(re.compile(r"(?m)^(?>.*?\bbge-).*zh"), 512, "为这个句子生成表示以用于检索相关文章："),  # noqa: RUF001 -- the model's own words
    _Family(re.compile(r"\bbge-(?:small|base|large)"), 512, _SENTENCE),
    _Family(re.compile(r"qwen3-embedding"), 8192, f"Instruct: {_SEARCH_TASK}\nQuery:"),
    _Family(re.compile(r"mxbai-embed"), 512, _SENTENCE),
    _Family(re.compile(r"(?m)^(?>.*?arctic-embed).*2\.0|arctic-embed2"), 8192, "query: "),
    _Family(re.compile(r"arctic-embed"), 512, _SENTENCE),
    _Family(re.compile(r"minilm"), 512),
    # Told by words what its older siblings are told by a field.
    _Family(re.compile(r"gemini-embedding-2"), 8192, "task: search result | query: ", "title: none | text: "),
    _Family(re.compile(r"text-embedding-ada-002"), 8191),
    _Family(re.compile(r"voyage-3-lite"), 16000),
    _Family(re.compile(r"voyage-"), 32000),
)
_MOST_TOKENS_OF = (("gemini", 2048), ("local", LOCAL_WINDOW))
_MOST_TOKENS = 8192


def spec_for(provider: str, model: str, endpoint: str = "", dimensions: int | None = None) -> EmbeddingSpec:
    """The spec of a model, with the prefixes and the input limit of its family, found by its name."""
    family = _family(model)
    return EmbeddingSpec(
        provider,
        model,
        endpoint,
        dimensions,
        family.max_input_tokens if family else dict(_MOST_TOKENS_OF).get(provider, _MOST_TOKENS),
        family.query_prefix if family else "",
        family.document_prefix if family else "",
    )


def _family(model: str) -> _Family | None:
    name = model.lower().replace("_", "-")
    return next((family for family in _FAMILIES if family.pattern.search(name)), None)
