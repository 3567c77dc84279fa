"""Which of this process's variables the commands that memoryd runs get: what they need, and nothing by accident."""

from collections.abc import Mapping

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
        *("XDG_CACHE_HOME", "XDG_DATA_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HF_ENDPOINT", "CUDA_VISIBLE_DEVICES", "CUDA_PATH", "VK_ICD_FILENAMES"),
    }
)
_PREFIXES = ("QMD_",)
# These would move what memoryd keeps in a place of its own.
_OURS = frozenset({"QMD_CONFIG_DIR"})


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to hand on. Never among them: keys and tokens, `CI`, and what points at another configuration."""
    return {
        name: value
        for name, value in environ.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in _OURS
    }
