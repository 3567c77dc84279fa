"""The definitions of memoryd as a user service: a systemd unit on Linux, a launchd agent on macOS."""

import plistlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memoryd_server.errors import MemorydError

UNIT = "memoryd.service"
LABEL = "io.memoryd.memoryd"
"""The name of the launchd agent."""

_TOP = "https://github.com/memoryd/memoryd"
_STOP_SECONDS = 120
_DESCRIPTORS = 65_536


class ServiceError(MemorydError):
    """The service cannot be installed or removed. The message has the reason and what to do."""

    reason = "INVALID_REQUEST"


@dataclass(frozen=True, slots=True)
class ServiceCommand:
    """The command that a service runs, and the variables of its environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def _check(self) -> None:
        """Raise ServiceError if a text cannot be written to a definition."""
        for text in (*self.arguments, *self.environment.values()):
            if not text.isprintable():
                raise ServiceError(
                    f"a service cannot have the argument {text!r}; choose a path of printable characters"
                )

    def systemd_unit(self) -> str:
        """Return the text of the unit for systemd's manager of the user.

        Raises:
            ServiceError: a path contains control characters, or is not UTF-8.
        """
        self._check()
        variables = "".join(f"Environment={_systemd_word(f'{name}={value}')}\n" for name, value in self._sorted())
        return f"""# Written by `memoryd service install`, which replaces this file.
# To add settings of your own: systemctl --user edit memoryd

[Unit]
Description=memoryd, memory for AI agents
Documentation={_TOP}
# After five failures within two minutes, the service stays stopped.
StartLimitIntervalSec=120
StartLimitBurst=5

[Service]
Type=notify
ExecStart={_systemd_word(self.arguments[0])} {" ".join(map(_systemd_argument, self.arguments[1:]))}
ExecReload=/bin/kill -HUP $MAINPID
{variables}UMask=0077
NoNewPrivileges=yes
LimitNOFILE={_DESCRIPTORS}
TimeoutStartSec=300
TimeoutStopSec={_STOP_SECONDS}
KillMode=mixed
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""

    def launchd_plist(self, log: Path) -> bytes:
        """Return the property list of the launchd agent, which writes its output to the file `log`.

        Raises:
            ServiceError: a path contains control characters, or is not UTF-8.
        """
        self._check()
        return plistlib.dumps(
            {
                "Label": LABEL,
                "ProgramArguments": list(self.arguments),
                "EnvironmentVariables": dict(self._sorted()),
                "RunAtLoad": True,
                # Restart after a failure, not after `launchctl kill` or a regular end.
                "KeepAlive": {"SuccessfulExit": False},
                "ThrottleInterval": 10,
                "ExitTimeOut": _STOP_SECONDS,
                "ProcessType": "Adaptive",
                "SoftResourceLimits": {"NumberOfFiles": _DESCRIPTORS},
                "Umask": 0o077,
                "StandardOutPath": str(log),
                "StandardErrorPath": str(log),
            }
        )

    def _sorted(self) -> list[tuple[str, str]]:
        return sorted(self.environment.items())


def _systemd_word(text: str) -> str:
    """Return a word of a unit file in quotes. Specifiers are not expanded. See systemd.syntax(7)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _systemd_argument(text: str) -> str:
    """Return an argument of a command line. Variables are not expanded; in the program they never are.

    See systemd.service(5).
    """
    return _systemd_word(text.replace("$", "$$"))


def service_program(started: str, home: Path) -> list[str]:
    """Return the command that starts memoryd. `started` is the path by which this process was started.

    Raises:
        ServiceError: memoryd is installed in a temporary environment, which may be removed.
    """
    program = Path(started).absolute()
    command = (
        [str(program)] if program.name == "memoryd" and program.exists() else [sys.executable, "-m", "memoryd_server"]
    )
    temporary = [home / ".cache", home / "Library" / "Caches", Path(tempfile.gettempdir())]
    for folder in temporary:
        if Path(command[0]).is_relative_to(folder):
            raise ServiceError(
                f"{command[0]} is in a folder of temporary files, {folder}; install memoryd first, for example with "
                "`uv tool install memoryd` or `pipx install memoryd`, then run the installed command"
            )
    return command
