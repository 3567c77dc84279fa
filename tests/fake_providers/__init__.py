"""Servers on loopback that speak the embedding providers' wire formats, with faults in the order a test asks for them.

They are strict where the providers are: a wrong field or key gets the provider's own kind of error. `make
fake-providers` runs them by hand.
"""

from contextlib import contextmanager

from fake_providers.bedrock import BedrockServer
from fake_providers.faults import KINDS, Fault
from fake_providers.gemini import GeminiServer
from fake_providers.mistral import MistralServer
from fake_providers.ollama import OllamaServer
from fake_providers.openai import CompatibleServer, DeepInfraServer, LMStudioServer, OpenAIServer
from fake_providers.rerank import HUGE, RERANKERS
from fake_providers.voyage import VoyageServer
from fake_providers.words import DIMENSIONS, vector

SERVERS = {
    server.provider: server
    for server in (
        *(OpenAIServer, CompatibleServer, GeminiServer, VoyageServer, MistralServer, OllamaServer),
        *(LMStudioServer, DeepInfraServer, BedrockServer),
    )
}

__all__ = [
    "DIMENSIONS",
    "HUGE",
    "KINDS",
    "RERANKERS",
    "SERVERS",
    "Fault",
    "embedding_server",
    "fake_provider",
    "fake_reranker",
    "vector",
]


@contextmanager
def fake_provider(provider, keys=()):
    """A server of this provider, until the block ends. It accepts these keys; without any, whatever looks like one."""
    server = SERVERS[provider](keys)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def fake_reranker(provider="llama-server", keys=()):
    """A server with this provider's rerank API, until the block ends. Keys are as in `fake_provider`."""
    server = RERANKERS[provider](keys)
    try:
        yield server
    finally:
        server.close()


def embedding_server():
    """A server that is compatible with OpenAI's and knows every model, with or without a key."""
    return fake_provider("openai-compatible")
