"""Brings an index in line with its files: planning, execution, preparation, rebuilds."""

from memoryd_server.sync.engine import DiskComparison, SyncEngine
from memoryd_server.sync.plan import (
    DUE_SCOPE,
    EVERY_SOURCE,
    FULL_SCOPE,
    HiddenFiles,
    LastComparison,
    PendingScope,
    SyncPlanner,
    SyncScope,
    hidden_rows,
    make_plan,
)
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncEstimate, SyncMode, SyncObserver, SyncOutcome, SyncPhase, SyncProgress

__all__ = [
    "DUE_SCOPE",
    "EVERY_SOURCE",
    "FULL_SCOPE",
    "DiskComparison",
    "FilePreparer",
    "HiddenFiles",
    "LastComparison",
    "PendingScope",
    "SyncEngine",
    "SyncEstimate",
    "SyncMode",
    "SyncObserver",
    "SyncOutcome",
    "SyncPhase",
    "SyncPlanner",
    "SyncProgress",
    "SyncScope",
    "hidden_rows",
    "make_plan",
]
