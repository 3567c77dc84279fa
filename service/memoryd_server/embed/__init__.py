"""Text into vectors: one provider a file, behind one Protocol. The only folder whose modules start processes."""

from memoryd_server.embed.absent import AbsentProvider
from memoryd_server.embed.config import EmbeddingConfig, LocalConfig, RemoteConfig
from memoryd_server.embed.documents import TEXTS_A_CALL, DirectCalls, DocumentEmbedder
from memoryd_server.embed.pacing import Pace
from memoryd_server.embed.provider import (
    PLAIN_TEXT,
    EmbeddingFailure,
    EmbeddingProvider,
    ProviderState,
    ProviderStatus,
)
from memoryd_server.embed.selection import NOT_CONFIGURED, ProviderPool, Selection, select
from memoryd_server.embed.spec import EmbeddingSpec, spec_for
from memoryd_server.embed.vectors import BadVector, Vector, from_blob, to_blob, unit

__all__ = [
    "NOT_CONFIGURED",
    "PLAIN_TEXT",
    "TEXTS_A_CALL",
    "AbsentProvider",
    "BadVector",
    "DirectCalls",
    "DocumentEmbedder",
    "EmbeddingConfig",
    "EmbeddingFailure",
    "EmbeddingProvider",
    "EmbeddingSpec",
    "LocalConfig",
    "Pace",
    "ProviderPool",
    "ProviderState",
    "ProviderStatus",
    "RemoteConfig",
    "Selection",
    "Vector",
    "from_blob",
    "select",
    "spec_for",
    "to_blob",
    "unit",
]
