"""The qmd command as a SearchBackend."""

from memoryd_server.qmd.client import INSTALL_QMD, QmdSearchMode
from memoryd_server.qmd.config import (
    QMD_PLUGIN,
    LimitsConfig,
    QmdConfig,
    QmdSessionsConfig,
    QmdUpdateConfig,
    SessionMatch,
    SessionRule,
    SessionScope,
)
from memoryd_server.qmd.fallback import FallbackBackend, make_qmd
from memoryd_server.qmd.home import ConfiguredPath, collections_of
from memoryd_server.qmd.host import QmdHost
from memoryd_server.qmd.inspection import LEAST_NODE, QmdInspection, inspect_qmd

__all__ = [
    "INSTALL_QMD",
    "LEAST_NODE",
    "QMD_PLUGIN",
    "ConfiguredPath",
    "FallbackBackend",
    "LimitsConfig",
    "QmdConfig",
    "QmdHost",
    "QmdInspection",
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
