"""Brings an index in line with its files."""

from memoryd_server.sync.engine import DiskComparison, SyncEngine
from memoryd_server.sync.plan import HiddenFiles, LastComparison, make_plan
from memoryd_server.sync.planner import EVERY_SOURCE, FULL_SCOPE, WHAT_IS_DUE, PendingScope, SyncPlanner, SyncScope
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncEstimate, SyncMode, SyncObserver, SyncOutcome, SyncPhase, SyncProgress

__all__ = [
    "EVERY_SOURCE",
    "FULL_SCOPE",
    "WHAT_IS_DUE",
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
    "make_plan",
]
