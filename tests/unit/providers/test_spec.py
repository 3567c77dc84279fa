import pytest

from memoryd_server.providers import leaves_machine
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


def spec_at(endpoint, model="words", provider="openai-compatible"):
    return spec_for(provider, model, endpoint)


@pytest.mark.parametrize(
    "spec",
    [
        spec_for("local", "words.gguf"),
        spec_for("local", "hf:someone/words-cloud"),
        spec_at("http://127.0.0.1:11434", provider="ollama"),
        spec_at("http://[::1]:11434", provider="ollama"),
        spec_at("http://0.0.0.0:11434", provider="ollama"),
        spec_at("http://localhost:1234/v1", provider="lmstudio"),
        spec_at("http://localhost:8080/v1"),
        spec_at("http://localhost (x-tenant 1a2b, input_type passage)"),
        spec_at("http://localhost:11434", "cloudy", "ollama"),
        spec_at("http://localhost:11434", "cloud/nomic-embed-text:latest", "ollama"),
    ],
)
def test_texts_of_a_local_model_or_a_server_on_loopback_stay_on_the_machine(spec):
    assert not leaves_machine(spec)


@pytest.mark.parametrize(
    "spec",
    [
        spec_at("https://api.openai.com/v1", provider="openai"),
        spec_at("http://192.168.1.7:11434", provider="ollama"),
        spec_at("http://gpu-box:11434", provider="ollama"),
        spec_at("https://ollama.com", provider="ollama"),
        spec_at("http://localhost.example.org/v1"),
        spec_at("http://gpu-box (x-tenant 1a2b)"),
        spec_at("http://127.0.0.1:11434", "embedder:30b-cloud", "ollama"),
        spec_at("http://127.0.0.1:11434", "embedder:Cloud", "ollama"),
        spec_at("http://localhost:11434/v1", "embedder:cloud"),
    ],
)
def test_texts_of_a_server_elsewhere_or_of_a_cloud_model_leave_the_machine(spec):
    assert leaves_machine(spec)
