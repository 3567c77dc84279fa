"""The log and the Prometheus metrics."""

from memoryd_server.observe.database import DatabaseMeter, DatabaseMetrics
from memoryd_server.observe.log import FaultLog, Log, LogLevel, make_log
from memoryd_server.observe.metrics import (
    AgentMetrics,
    Meter,
    Metrics,
    MetricsListener,
    MetricsSnapshot,
    NoMeter,
    ProviderMetrics,
    RerankerMetrics,
    SearchFinished,
    SyncFinished,
)
from memoryd_server.observe.readers import ReaderMetrics

__all__ = [
    "AgentMetrics",
    "DatabaseMeter",
    "DatabaseMetrics",
    "FaultLog",
    "Log",
    "LogLevel",
    "Meter",
    "Metrics",
    "MetricsListener",
    "MetricsSnapshot",
    "NoMeter",
    "ProviderMetrics",
    "ReaderMetrics",
    "RerankerMetrics",
    "SearchFinished",
    "SyncFinished",
    "make_log",
]
