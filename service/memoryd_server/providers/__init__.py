"""Embedding providers: remote APIs over HTTP and a local model, behind one protocol."""

from memoryd_server.providers.http_client import OutcomeUnknown
from memoryd_server.providers.http_errors import RequestRefused, ResourceMissing
from memoryd_server.providers.pacing import CallerStopped, ThrottleConfig, WaitLimit
from memoryd_server.providers.pool import ProviderPool, ProviderSelection
from memoryd_server.providers.provider import (
    PLAIN_TEXT,
    EmbeddingConfig,
    EmbeddingFailure,
    EmbeddingProvider,
    EmbeddingSpec,
    LocalConfig,
    ProviderState,
    RemoteConfig,
    UnavailableProvider,
)
from memoryd_server.providers.remote import MOST_JOB_BYTES, MOST_TEXTS, BatchApi, BatchPolicy, JobState, batches_of

__all__ = [
    "MOST_JOB_BYTES",
    "MOST_TEXTS",
    "PLAIN_TEXT",
    "BatchApi",
    "BatchPolicy",
    "CallerStopped",
    "EmbeddingConfig",
    "EmbeddingFailure",
    "EmbeddingProvider",
    "EmbeddingSpec",
    "JobState",
    "LocalConfig",
    "OutcomeUnknown",
    "ProviderPool",
    "ProviderSelection",
    "ProviderState",
    "RemoteConfig",
    "RequestRefused",
    "ResourceMissing",
    "ThrottleConfig",
    "UnavailableProvider",
    "WaitLimit",
    "batches_of",
]
