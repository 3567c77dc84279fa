"""The composition root: it builds a running daemon from the settings."""

from memoryd_server.app.config import agent_config
from memoryd_server.app.daemon import Daemon, run_daemon
from memoryd_server.app.metrics import metrics_address

__all__ = [
    "Daemon",
    "agent_config",
    "metrics_address",
    "run_daemon",
]
