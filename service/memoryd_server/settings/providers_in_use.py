"""The providers that agents may use, and what is said about them that memoryd does not understand."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .block import keys
from .checking import Checker
from .misplaced import check_include, check_plugin, check_switches
from .misspelt import ignored, misspelt
from .model_providers import PROVIDERS, ModelProviders, ModelProviderSettings, names_of
from .provider_access import ProviderAccess
from .report import UnreadKey
from .resolved import AgentSettings

_SECRET = "a reference to a secret kept elsewhere; memoryd does not read it"  # noqa: S105 -- a message
_BROKEN = "the file cannot be read, and a key of another place would be used"
# Other programs read the address of a provider from these.
_ADDRESSES: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "gemini": ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
    "voyage": ("VOYAGE_BASE_URL",),
    "mistral": ("MISTRAL_BASE_URL",),
}
_ENTRIES_PROVIDER = "openai"
_KEYLESS = ("ollama",)


class _Use(NamedTuple):
    """A provider that an agent may use; `provider` is memoryd's name of it."""

    agent_id: str
    provider: str
    access: ProviderAccess

    @property
    def may_send(self) -> bool:
        """Whether something could be sent: there is a key or an address, or neither is needed."""
        access = self.access
        return bool(access.keys or access.base_url or access.headers) or self.provider in _KEYLESS


def check_providers(
    checker: Checker, agents: Mapping[str, AgentSettings], providers: ModelProviders, environ: Mapping[str, str]
) -> None:
    """Block remote embeddings for each setting of a provider in use that is not understood."""
    uses = [use for agent in agents.values() if agent.enabled for use in _uses(agent)]
    shared = set(providers.unread.values())
    blocked: set[UnreadKey] = set()
    for use in uses:
        passed_over = use.access.passed_over
        if passed_over is not None:
            blocked.add(passed_over)
            owner = "" if passed_over in shared else use.agent_id
            message = _SECRET if passed_over.key else _BROKEN
            checker.report.block_remote(passed_over.origin, passed_over.key, message, owner)
        if use.access.keys and not use.access.base_url:
            _check_address(checker, use.provider, environ)
    for unread in sorted(shared - blocked, key=lambda each: each.key):
        checker.report.warn(unread.origin, unread.key, f"{_SECRET} and ignores it")
    for name in sorted({name for use in uses if use.may_send for name in names_of(use.provider)}):
        _check_block(checker, name)
        check_plugin(checker, name)


def _uses(agent: AgentSettings) -> Iterator[_Use]:
    for name, access in agent.provider_access.items():
        yield _Use(agent.agent_id, name, access)
    yield _Use(agent.agent_id, agent.memory_search.fallback, agent.fallback_access)
    if agent.entries_enabled and agent.entry_access is not None:
        yield _Use(agent.agent_id, _ENTRIES_PROVIDER, agent.entry_access)


def _check_address(checker: Checker, provider: str, environ: Mapping[str, str]) -> None:
    for variable in _ADDRESSES.get(provider, ()):
        if environ.get(variable, "").strip():
            checker.report.block_remote(
                f"env {variable}", (), f"memoryd does not read it; models.providers.{provider}.baseUrl sets the address"
            )


def _check_block(checker: Checker, name: str) -> None:
    """Check the keys of the provider's block, and what looks like a misspelt block where there is none."""
    blocks = checker.keys(PROVIDERS)
    if name not in blocks:
        for key, meant in misspelt(blocks, (name,)):
            checker.block_remote((*PROVIDERS, key), ignored(meant))
    path = (*PROVIDERS, name)
    check_include(checker, path)
    check_switches(checker, path)
    for key, meant in misspelt(checker.keys(path), [key for _, key, _ in keys(ModelProviderSettings)]):
        checker.block_remote((*path, key), ignored(meant))
