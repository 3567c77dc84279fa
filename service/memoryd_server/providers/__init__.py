"""Embedding providers and rerankers: remote APIs over HTTP and local models, each kind behind one protocol."""

from memoryd_server.model import EmbeddingSpec
from memoryd_server.providers.http_client import OutcomeUnknown
from memoryd_server.providers.http_errors import RequestRefused, ResourceMissing
from memoryd_server.providers.model_download import HubModelFile
from memoryd_server.providers.pacing import CallerStopped, ThrottleConfig, WaitLimit
from memoryd_server.providers.pool import ProviderPool, ProviderSelection, make_reranker, missing_model
from memoryd_server.providers.provider import (
    PLAIN_TEXT,
    EmbeddingConfig,
    EmbeddingFailure,
    EmbeddingProvider,
    LocalConfig,
    ProviderProbe,
    ProviderState,
    RemoteConfig,
    UnavailableProvider,
    probe,
)
from memoryd_server.providers.remote import (
    MOST_JOB_BYTES,
    MOST_TEXTS,
    BatchApi,
    BatchPolicy,
    JobState,
    batches_of,
    is_remote_model,
    leaves_machine,
)
from memoryd_server.providers.reranker import RerankConfig, Reranker, RerankFailure, RerankReply

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
    "HubModelFile",
    "JobState",
    "LocalConfig",
    "OutcomeUnknown",
    "ProviderPool",
    "ProviderProbe",
    "ProviderSelection",
    "ProviderState",
    "RemoteConfig",
    "RequestRefused",
    "RerankConfig",
    "RerankFailure",
    "RerankReply",
    "Reranker",
    "ResourceMissing",
    "ThrottleConfig",
    "UnavailableProvider",
    "WaitLimit",
    "batches_of",
    "is_remote_model",
    "leaves_machine",
    "make_reranker",
    "missing_model",
    "probe",
]
