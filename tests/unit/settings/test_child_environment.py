"""Commands that memoryd runs get what they need of its environment, and nothing by accident."""

import pytest

from memoryd_server.settings.environment import child_environment


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "HTTPS_PROXY",
        "https_proxy",
        "SSL_CERT_FILE",
        "QMD_FORCE_CPU",
        "QMD_EMBED_MODEL",
        "XDG_CACHE_HOME",
    ],
)
def test_variables_that_a_command_needs_are_passed_on(name):
    assert child_environment({name: "x"}) == {name: "x"}


SECRETS = ["OPENAI_API_KEY", "HF_TOKEN", "MEMORYD_TOKEN_FILE", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK"]
MEDDLING = ["CI", "NODE_OPTIONS", "LD_PRELOAD", "QMD_CONFIG_DIR", "INDEX_PATH", "XDG_CONFIG_HOME", "PWD"]


@pytest.mark.parametrize("name", [*SECRETS, *MEDDLING])
def test_whatever_else_is_not(name):
    assert child_environment({name: "x"}) == {}
