"""The address, the key and the headers of the reranker: `memoryd.rerank`."""

from pydantic import ValidationError

from memoryd_server.settings.checking import Checker
from memoryd_server.settings.provider_access import AccessSources, ProviderAccess
from memoryd_server.settings.rules import KeyPath
from memoryd_server.settings.service import RerankSettings

RERANK: KeyPath = ("memoryd", "rerank")


def rerank_settings(checker: Checker) -> RerankSettings:
    """Return the block before the rest of the `memoryd` block is checked; the defaults if it has a problem.

    The problem is reported with the rest, and the settings are then refused.
    """
    raw = checker.tree.at(*RERANK)
    try:
        return RerankSettings.model_validate(raw if isinstance(raw, dict) else {})
    except ValidationError:
        return RerankSettings()


def rerank_access(settings: RerankSettings, sources: AccessSources) -> ProviderAccess:
    """Return the access to the server that reranks; empty unless the provider is `http`."""
    if settings.provider != "http":
        return ProviderAccess()
    return sources.server(settings.base_url, settings.api_key, settings.headers, RERANK)


def warn_of_missing_secret(checker: Checker, access: ProviderAccess) -> None:
    """Warn of a secret without a value, because of which the reranker is not called."""
    missing = access.missing
    if missing is not None:
        effect = "searches are not reranked until it does, and no other key is used"
        message = f"a SecretRef that does not resolve: {missing.reason}; {effect}"
        checker.report.warn(missing.place.origin, missing.place.key, message)
