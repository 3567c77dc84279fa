"""What the settings say of embeddings. Equal configurations can share a provider. Empty strings mean not set."""

from dataclasses import dataclass, field

from memoryd_server.embed.pacing import Pace


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """A provider that is reached over HTTP.

    `base_url` is unset where the provider's own is meant. Of several `keys` the next one is used when the server limits
    the one before. `headers` are pairs. `no_key` says why there is no key; `problem` why nothing may be sent at all.
    """

    provider: str
    model: str = ""
    base_url: str = ""
    keys: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    dimensions: int | None = None
    no_key: str = ""
    problem: str = ""
    pace: Pace = field(default_factory=Pace)

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"RemoteConfig(provider={self.provider!r}, model={self.model!r})"


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """A model on this machine.

    `model_path` is a path (made absolute, "~" expanded) or an `hf:` address; `cache_dir` is where fetched models are
    kept. `threads` None means half the processors.
    """

    model_path: str = ""
    cache_dir: str = ""
    idle_seconds: float = 300.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """Which provider an agent asks for, and how each can be had.

    `provider` is "auto", "none" or a provider's name. `remotes` has the providers that may be asked for, each once.
    `fallback` is what may stand in for it, None where nothing may. `blocked_by` names settings that are not understood
    and may restrict what is sent: with any, no provider that is reached over HTTP is used.
    """

    provider: str = "auto"
    remotes: tuple[RemoteConfig, ...] = ()
    local: LocalConfig = LocalConfig()
    fallback: "EmbeddingConfig | None" = None
    blocked_by: tuple[str, ...] = ()

    def remote(self, provider: str) -> RemoteConfig:
        """How a provider is reached; one without an address and a key where nothing is known of it."""
        return next((remote for remote in self.remotes if remote.provider == provider), RemoteConfig(provider))
