"""The service managers of a user: systemd's user manager, and launchd."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memoryd_server.cli.service_definition import LABEL, UNIT, ServiceCommand, ServiceError

# A daemon with many agents takes minutes to open their indexes.
_START_SECONDS = 330.0
_CALL_SECONDS = 30.0
# The exit status of a shell for a command that is missing.
_MISSING = 127


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of the service. `manager` is systemd or launchd, and `detail` is the manager's own word.

    If the manager is not `reachable`, `detail` is the reason, and nothing is known of a running service.
    """

    manager: str
    definition: str
    installed: bool
    starts_at_login: bool
    active: bool
    reachable: bool
    detail: str


class ServiceManager(Protocol):
    """A service manager. All methods block and raise ServiceError if the manager refuses."""

    @property
    def definition(self) -> Path:
        """The file that defines the service."""

    def install(self, command: ServiceCommand, *, start: bool) -> None:
        """Write the definition. With `start`, also start the service, now and at each login."""

    def uninstall(self) -> bool:
        """Stop the service and remove its definition; return whether there was one."""

    def state(self) -> ServiceState:
        """Return the state of the service."""

    def advice(self) -> list[str]:
        """Return how to read the log, and what else to know about the installed service."""


class Systemd:
    """The user manager of systemd."""

    def __init__(self, config_home: Path) -> None:
        self._file = config_home / "systemd" / "user" / UNIT

    @property
    def definition(self) -> Path:
        """See `ServiceManager`."""
        return self._file

    def install(self, command: ServiceCommand, *, start: bool) -> None:
        """See `ServiceManager`."""
        unit = command.systemd_unit().encode()
        if not start:
            _write(self._file, unit)
            return
        self._check_manager()
        _write(self._file, unit)
        try:
            _checked(["systemctl", "--user", "daemon-reload"])
            _checked(["systemctl", "--user", "enable", UNIT])
            _checked(["systemctl", "--user", "restart", UNIT], seconds=_START_SECONDS, advice=self._log_command())
        except ServiceError:
            # Else it would be started again and again.
            _run(["systemctl", "--user", "disable", "--now", UNIT], seconds=_START_SECONDS)
            raise

    def uninstall(self) -> bool:
        """See `ServiceManager`."""
        existed = self._file.exists()
        wants = self._file.parent / "default.target.wants" / UNIT
        stopped = _run(["systemctl", "--user", "disable", "--now", UNIT], seconds=_START_SECONDS)
        if existed and stopped.returncode and wants.is_symlink():
            reason = stopped.stderr.strip() or f"exit status {stopped.returncode}"
            raise ServiceError(f"the service cannot be stopped: {reason}. Log in directly, then run this command again")
        _remove(self._file)
        _run(["systemctl", "--user", "daemon-reload"])
        return existed

    def state(self) -> ServiceState:
        """See `ServiceManager`."""
        enabled = _run(["systemctl", "--user", "is-enabled", UNIT]).stdout.strip()
        active = _run(["systemctl", "--user", "is-active", UNIT])
        word = active.stdout.strip()
        detail = word or active.stderr.strip() or "unknown"
        installed = self._file.exists()
        return ServiceState(
            "systemd", str(self._file), installed, enabled == "enabled", word == "active", bool(word), detail
        )

    def advice(self) -> list[str]:
        """See `ServiceManager`."""
        lines = [f"Log: {self._log_command()}"]
        if _run(["loginctl", "show-user", str(os.getuid()), "--property=Linger"]).stdout.strip() == "Linger=no":
            lines.append("The daemon stops when you log out. To keep it running: loginctl enable-linger")
        return lines

    @staticmethod
    def _log_command() -> str:
        return f"journalctl --user --unit {UNIT}"

    @staticmethod
    def _check_manager() -> None:
        if shutil.which("systemctl") is None:
            raise ServiceError(
                "this system has no systemd; start `memoryd serve` with the service manager that it has, or use "
                "--no-start to only write the unit"
            )
        answer = _run(["systemctl", "--user", "show-environment"])
        if answer.returncode:
            reason = answer.stderr.strip() or f"exit status {answer.returncode}"
            raise ServiceError(
                f"systemd's manager of this user cannot be reached: {reason}. Log in directly, not with su or sudo; or "
                "run `memoryd serve` instead"
            )


class Launchd:
    """The agents of launchd for the user who is logged in."""

    def __init__(self, home: Path) -> None:
        self._file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._log = home / "Library" / "Logs" / "memoryd.log"
        self._domain = f"gui/{os.getuid()}"

    @property
    def definition(self) -> Path:
        """See `ServiceManager`."""
        return self._file

    def install(self, command: ServiceCommand, *, start: bool) -> None:
        """See `ServiceManager`."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        _write(self._file, command.launchd_plist(self._log))
        if start:
            _run(["launchctl", "bootout", f"{self._domain}/{LABEL}"])
            _checked(["launchctl", "bootstrap", self._domain, str(self._file)], advice=f"the log is {self._log}")

    def uninstall(self) -> bool:
        """See `ServiceManager`."""
        existed = self._file.exists()
        _run(["launchctl", "bootout", f"{self._domain}/{LABEL}"], seconds=_START_SECONDS)
        _remove(self._file)
        return existed

    def state(self) -> ServiceState:
        """See `ServiceManager`."""
        answer = _run(["launchctl", "print", f"{self._domain}/{LABEL}"])
        loaded = answer.returncode == 0
        states = [
            line.partition("=")[2].strip() for line in answer.stdout.splitlines() if line.strip().startswith("state =")
        ]
        detail = states[0] if states else "not loaded"
        reachable = answer.returncode != _MISSING
        detail = detail if reachable else answer.stderr.strip()
        return ServiceState(
            "launchd", str(self._file), self._file.exists(), loaded, detail == "running", reachable, detail
        )

    def advice(self) -> list[str]:
        """See `ServiceManager`."""
        return [f"Log: {self._log}"]


def service_manager(home: Path, config_home: Path) -> ServiceManager:
    """Return the service manager of this system."""
    return Launchd(home) if sys.platform == "darwin" else Systemd(config_home)


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise ServiceError(f"cannot write {file}: {error.strerror}") from error


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise ServiceError(f"cannot remove {file}: {error.strerror}") from error


def _run(command: Sequence[str], *, seconds: float = _CALL_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a command of the service manager; a missing or a hanging one has the exit status `_MISSING`."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)  # noqa: S603 -- fixed commands
    except FileNotFoundError:
        return subprocess.CompletedProcess(list(command), _MISSING, "", f"the command {command[0]} is missing")
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(list(command), _MISSING, "", str(error))


def _checked(command: Sequence[str], *, seconds: float = _CALL_SECONDS, advice: str = "") -> None:
    answer = _run(command, seconds=seconds)
    if answer.returncode:
        reason = (answer.stderr or answer.stdout).strip() or f"exit status {answer.returncode}"
        raise ServiceError(f"`{' '.join(command)}` failed: {reason}" + (f"; see {advice}" if advice else ""))
