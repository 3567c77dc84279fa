"""The qmd command as a `SearchBackend`."""

from memoryd_server.qmd.client import INSTALL_QMD, QmdSearchMode
from memoryd_server.qmd.config import (
    QMD_PLUGIN,
    QmdConfig,
    QmdLimitsConfig,
    QmdSessionsConfig,
    QmdUpdateConfig,
    SessionMatch,
    SessionRule,
    SessionScope,
)
from memoryd_server.qmd.fallback import FallbackBackend, make_qmd
from memoryd_server.qmd.home import ConfiguredPath, collections_of
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.inspection import MIN_NODE_VERSION, QmdInspection, inspect_qmd

__all__ = [
    "INSTALL_QMD",
    "MIN_NODE_VERSION",
    "QMD_PLUGIN",
    "ConfiguredPath",
    "FallbackBackend",
    "QmdConfig",
    "QmdHost",
    "QmdInspection",
    "QmdLimitsConfig",
    "QmdSearchMode",
    "QmdSessionsConfig",
    "QmdUpdateConfig",
    "SessionMatch",
    "SessionRule",
    "SessionScope",
    "collections_of",
    "inspect_qmd",
    "make_qmd",
]
