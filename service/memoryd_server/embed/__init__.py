"""Text into vectors: one provider a file, behind one Protocol. The only folder whose modules start processes."""

from memoryd_server.embed.absent import AbsentProvider
from memoryd_server.embed.batch_api import MOST_JOB_BYTES, MOST_TEXTS, BatchApi, BatchPolicy, JobState
from memoryd_server.embed.config import EmbeddingConfig, LocalConfig, RemoteConfig
from memoryd_server.embed.http_calls import Unsure
from memoryd_server.embed.http_errors import NotThere, RequestRefused
from memoryd_server.embed.lanes import on_thread
from memoryd_server.embed.pacing import Pace, Patience, Stopped
from memoryd_server.embed.provider import (
    PLAIN_TEXT,
    EmbeddingFailure,
    EmbeddingProvider,
    ProviderState,
    ProviderStatus,
)
from memoryd_server.embed.remote import batches_of
from memoryd_server.embed.selection import NOT_CONFIGURED, ProviderPool, Selection, select
from memoryd_server.embed.spec import EmbeddingSpec, spec_for

__all__ = [
    "MOST_JOB_BYTES",
    "MOST_TEXTS",
    "NOT_CONFIGURED",
    "PLAIN_TEXT",
    "AbsentProvider",
    "BatchApi",
    "BatchPolicy",
    "EmbeddingConfig",
    "EmbeddingFailure",
    "EmbeddingProvider",
    "EmbeddingSpec",
    "JobState",
    "LocalConfig",
    "NotThere",
    "Pace",
    "Patience",
    "ProviderPool",
    "ProviderState",
    "ProviderStatus",
    "RemoteConfig",
    "RequestRefused",
    "Selection",
    "Stopped",
    "Unsure",
    "batches_of",
    "on_thread",
    "select",
    "spec_for",
]
