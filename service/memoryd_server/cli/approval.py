"""The command that approves the cost of embeddings.

The daemon's messages contain it as `memoryd index --force`, because the daemon does not know the user's options. The
verbs print it with the agent and the options that the user gave.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from memoryd_server.cli.options import CommonOptions, program_name

if TYPE_CHECKING:
    from memoryd import messages

_IN_MESSAGES = "memoryd index --force"
_LIMIT = "memoryd.confirmAboveTokens"


def approval_command(common: CommonOptions, agent: str) -> str:
    """Return the command that approves the cost of an agent, to be typed in a shell; of all agents if it is empty."""
    words = ["index", *(["--agent", agent] if agent else []), "--force", *_options(common)]
    return f"{program_name()} {shlex.join(words)}"


def _options(common: CommonOptions) -> Iterator[str]:
    tls = common.tls
    given = {
        "--config": common.config,
        "--state-dir": common.state_dir,
        "--workspace": common.workspace,
        "--address": common.address,
        "--token-file": common.token_file,
        "--tls-ca": tls and tls.ca_file,
        "--tls-cert": tls and tls.cert_file,
        "--tls-key": tls and tls.key_file,
    }
    for option, value in given.items():
        if value is not None:
            yield from (option, str(value))
    if tls is not None and tls.ca_file is None and tls.cert_file is None:
        yield "--tls"


def needs_approval(degradations: Iterable[messages.Degradation]) -> bool:
    """Return whether embeddings wait for the approval of their cost."""
    return any(_LIMIT in degradation.reason for degradation in degradations)


def with_command(degradations: Iterable[messages.Degradation], command: str) -> None:
    """Write this command into the reasons, in place of the one without options."""
    for degradation in degradations:
        degradation.reason = degradation.reason.replace(_IN_MESSAGES, command)
