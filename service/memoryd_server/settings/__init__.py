"""The settings: files, variables and flags, read into frozen values."""

from memoryd_server.settings.environment import PROVIDER_KEYS, process_environment, use_one_grpc_thread
from memoryd_server.settings.layers import RefusedSettings
from memoryd_server.settings.loading import find_locations, load
from memoryd_server.settings.memory import QmdSettings
from memoryd_server.settings.memory_search import ExtraPathSettings, default_model
from memoryd_server.settings.provider_access import ProviderAccess
from memoryd_server.settings.provider_address import OWN_HOSTS
from memoryd_server.settings.resolved import AgentSettings, ResolvedSettings, changed_keys, keep_until_restart
from memoryd_server.settings.rules import fill
from memoryd_server.settings.service import DatabaseSettings, LimitsSettings, RecallSettings, ServiceSettings

__all__ = [
    "OWN_HOSTS",
    "PROVIDER_KEYS",
    "AgentSettings",
    "DatabaseSettings",
    "ExtraPathSettings",
    "LimitsSettings",
    "ProviderAccess",
    "QmdSettings",
    "RecallSettings",
    "RefusedSettings",
    "ResolvedSettings",
    "ServiceSettings",
    "changed_keys",
    "default_model",
    "fill",
    "find_locations",
    "keep_until_restart",
    "load",
    "process_environment",
    "use_one_grpc_thread",
]
