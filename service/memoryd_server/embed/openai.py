"""OpenAI."""

from memoryd_server.embed.config import RemoteConfig
from memoryd_server.embed.openai_compatible import openai_speaking
from memoryd_server.embed.remote import RemoteProvider

BASE_URL = "https://api.openai.com/v1"


def openai(config: RemoteConfig) -> RemoteProvider:
    """OpenAI, or what stands in for it at `config.base_url`.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """
    return openai_speaking(config, config.base_url or BASE_URL, batch_window="24h")
