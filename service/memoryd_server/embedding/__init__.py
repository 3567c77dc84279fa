"""Embeds the chunks of an index: cache, provider, batch jobs, failover, cost."""

from memoryd_server.embedding.batch_jobs import BatchJobsState
from memoryd_server.embedding.cost import BYTES_A_TOKEN, CostLimit, EmbeddingCost, ProviderUsage, UsageRecorder
from memoryd_server.embedding.embedder import Embedder, VectorSetState
from memoryd_server.embedding.failover import ProviderChange, ProviderFailover, provider_and_model
from memoryd_server.embedding.run import EmbeddingProgress

__all__ = [
    "BYTES_A_TOKEN",
    "BatchJobsState",
    "CostLimit",
    "Embedder",
    "EmbeddingCost",
    "EmbeddingProgress",
    "ProviderChange",
    "ProviderFailover",
    "ProviderUsage",
    "UsageRecorder",
    "VectorSetState",
    "provider_and_model",
]
