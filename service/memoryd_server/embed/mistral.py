"""Mistral. Of its models `codestral-embed` alone makes vectors of a chosen length."""

from memoryd_server.embed.config import RemoteConfig
from memoryd_server.embed.openai_compatible import openai_speaking
from memoryd_server.embed.remote import RemoteProvider

BASE_URL = "https://api.mistral.ai/v1"


def mistral(config: RemoteConfig) -> RemoteProvider:
    """Mistral, or what stands in for it at `config.base_url`.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """
    return openai_speaking(config, config.base_url or BASE_URL, dimensions_field="output_dimension")
