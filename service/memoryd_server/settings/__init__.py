"""Settings: the reference's file and ours, the environment and the flags, made into frozen values per agent.

`load` is the way in. Nothing else in memoryd reads the environment.
"""

from .compaction import CompactionSettings, MemoryFlushSettings
from .environment import client_address, client_token_file, process_environment
from .loading import load, state_directory
from .memory_block import MemoryBlock, QmdSettings
from .memory_search import MemorySearchSettings, default_model
from .provider_access import ProviderAccess
from .reloading import brought_into_force, changed_keys
from .report import RefusedSettings
from .resolved import AgentSettings, ResolvedSettings
from .service import LimitsSettings, LogSettings, ServiceSettings, TlsSettings, WatcherSettings

__all__ = [
    "AgentSettings",
    "CompactionSettings",
    "LimitsSettings",
    "LogSettings",
    "MemoryBlock",
    "MemoryFlushSettings",
    "MemorySearchSettings",
    "ProviderAccess",
    "QmdSettings",
    "RefusedSettings",
    "ResolvedSettings",
    "ServiceSettings",
    "TlsSettings",
    "WatcherSettings",
    "brought_into_force",
    "changed_keys",
    "client_address",
    "client_token_file",
    "default_model",
    "load",
    "process_environment",
    "state_directory",
]
