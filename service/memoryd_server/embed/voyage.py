"""Voyage AI. It puts words of its own before questions and documents, by what `input_type` says."""

from collections.abc import Mapping

from memoryd_server.embed.config import RemoteConfig
from memoryd_server.embed.openai_compatible import openai_speaking
from memoryd_server.embed.remote import RemoteProvider, Role

BASE_URL = "https://api.voyageai.com/v1"
INPUT_TYPES: Mapping[Role, str] = {Role.QUERY: "query", Role.DOCUMENT: "document"}


def voyage(config: RemoteConfig) -> RemoteProvider:
    """Voyage AI, or what stands in for it at `config.base_url`.

    Raises:
        EmbeddingUnavailable: nothing can be sent with this address, key or headers.
    """
    return openai_speaking(config, config.base_url or BASE_URL, "output_dimension", INPUT_TYPES, "12h")
