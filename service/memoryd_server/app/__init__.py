"""The composition root: it builds a running daemon from the settings."""

from memoryd_server.app.config import agent_config, check_backends, http_address, require_http_extra
from memoryd_server.app.conversation_import import (
    ConversationImport,
    ConversationImportOptions,
    open_conversation_import,
)
from memoryd_server.app.daemon import Daemon, run_daemon
from memoryd_server.app.document_copies import DocumentCopies, open_copies
from memoryd_server.app.home_migration import AgentMigration, HomeMigration, MigratedPart
from memoryd_server.app.metrics import metrics_address
from memoryd_server.app.shared_store import database_of

__all__ = [
    "AgentMigration",
    "ConversationImport",
    "ConversationImportOptions",
    "Daemon",
    "DocumentCopies",
    "HomeMigration",
    "MigratedPart",
    "agent_config",
    "check_backends",
    "database_of",
    "http_address",
    "metrics_address",
    "open_conversation_import",
    "open_copies",
    "require_http_extra",
    "run_daemon",
]
