"""The addresses that belong to a provider: its keys and headers are sent to no other address."""

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

OWN_HOSTS: Mapping[str, tuple[str, ...]] = {
    "openai": ("api.openai.com",),
    "gemini": ("generativelanguage.googleapis.com",),
    "voyage": ("api.voyageai.com",),
    "mistral": ("api.mistral.ai",),
    "deepinfra": ("api.deepinfra.com",),
    "ollama": ("ollama.com",),
}
"""The hosts of each provider; their subdomains, such as those of a region, are the provider's, too."""

_OWN_PORTS: Mapping[str, int] = {"ollama": 11434, "lmstudio": 1234}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_BEDROCK_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.[a-z0-9-]{1,40}\.amazonaws\.com(?:\.cn)?")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]{1,12}){1,3}-\d{1,2}")
_DEFAULT_REGION = "us-east-1"
_PORTS: Mapping[str, int] = {"http": 80, "https": 443}


def is_own_address(provider: str, address: str, configured: str) -> bool:
    """Return whether `address` is the provider's: the `configured` one if there is one, else its default.

    A provider without any address of its own has no other to send a key to, so every address is its own.
    """
    try:
        given, own = urlsplit(address), urlsplit(configured)
        if configured:
            return _place(given) == _place(own)
        return _is_default(provider, given)
    except ValueError:
        return False


def _place(url: SplitResult) -> tuple[str, str, int | None, str]:
    return url.scheme, url.hostname or "", url.port or _PORTS.get(url.scheme), url.path.rstrip("/")


def _is_default(provider: str, url: SplitResult) -> bool:
    host = url.hostname or ""
    if provider == "openai-compatible":
        return True
    if provider in _OWN_PORTS and host in _LOOPBACK and url.port == _OWN_PORTS[provider]:
        return True
    if url.scheme != "https" or url.port not in {None, _PORTS["https"]}:
        return False
    if provider == "bedrock":
        return _BEDROCK_HOST.fullmatch(host) is not None
    return any(host == own or host.endswith(f".{own}") for own in OWN_HOSTS.get(provider, ()))


def bedrock_address(environ: Mapping[str, str]) -> str:
    """Return the address of Bedrock in the region that the environment names, by default us-east-1.

    Raises:
        ValueError: the variable does not hold the name of a region.
    """
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        region = environ.get(name, "").strip()
        if region and not _REGION.fullmatch(region):
            raise ValueError(f"{name} is not the name of a region: {region[:40]!r}")
        if region:
            break
    return f"https://bedrock-runtime.{region or _DEFAULT_REGION}.amazonaws.com"
