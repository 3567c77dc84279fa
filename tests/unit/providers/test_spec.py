import pytest

from memoryd_server.providers.provider import spec_for

SENTENCE = "Represent this sentence for searching relevant passages: "
GEMMA = ("task: search result | query: ", "title: none | text: ")
TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        (
            "hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf",
            "task: search result | query: ",
            "title: none | text: ",
        ),
        ("text-embedding-embeddinggemma-300m", *GEMMA),
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("intfloat/e5-base-v2", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large-instruct", TASK + "Query: ", ""),
        ("BAAI/bge-small-en-v1.5", SENTENCE, ""),
        ("bge-large", SENTENCE, ""),
        ("BAAI/bge-m3", "", ""),
        ("Qwen/Qwen3-Embedding-0.6B", TASK + "Query:", ""),
        ("qwen3-embedding:0.6b", TASK + "Query:", ""),
        ("mxbai-embed-large", SENTENCE, ""),
        ("text-embedding-3-small", "", ""),
        ("all-minilm-l6-v2-q8_0.gguf", "", ""),
    ],
)
def test_a_family_gets_its_prefixes(model, query, document):
    spec = spec_for("openai-compatible", model)
    assert (spec.query_prefix, spec.document_prefix) == (query, document)


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
    [
        ("openai", "text-embedding-3-small", 8192),
        ("openai", "text-embedding-ada-002", 8191),
        ("gemini", "gemini-embedding-001", 2048),
        ("gemini", "gemini-embedding-2-preview", 8192),
        ("voyage", "voyage-3-lite", 16000),
        ("voyage", "voyage-code-3", 32000),
        ("local", "anything.gguf", 2048),
        ("local", "all-MiniLM-L6-v2.gguf", 512),
        ("openai-compatible", "anything", 8192),
    ],
)
def test_the_most_tokens_of_an_input_are_known(provider, model, tokens):
    assert spec_for(provider, model).max_input_tokens == tokens
