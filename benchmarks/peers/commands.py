"""Commands of the tools: run in a private home, without the network and without the user's settings and keys."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND_SECONDS = 1_800
# Nothing listens on port 9, so that a download, a telemetry message or a question for updates fails immediately.
OFFLINE = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1,localhost",
    "HF_HUB_OFFLINE": "1",
}
# What could point a tool at the user's settings, data or keys, or change how it prints.
PRIVATE = ("MEMORYD_", "OPENCLAW_", "QMD_", "MEMSEARCH_", "BASIC_MEMORY_", "XDG_", "npm_", "PYTHON", "VIRTUAL_ENV")
KEYS = ("_API_KEY", "_API_KEYS", "_TOKEN", "_PROXY", "_proxy")
ERROR_CHARS = 2_000


class CommandError(Exception):
    """A command failed. The text has the command, the exit code and the end of its output."""


def private_environment(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a user who has nothing but `home`; `variables` are added."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PRIVATE) and not name.endswith(KEYS) and name != "CI"
    }
    return {**kept, **OFFLINE, "HOME": str(home), "PWD": str(home), "NO_COLOR": "1", **variables}


def run(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: Path, seconds: float = COMMAND_SECONDS
) -> str:
    """Run a command in `folder` to its end, and return what it prints.

    Raises:
        CommandError: if it fails or takes longer than `seconds`; all its processes are ended then.
    """
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    name = " ".join(Path(str(part)).name for part in command[:3])
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"`{name}` did not end within {seconds:.0f} s") from error
    finally:
        end_group(process)
    if process.returncode:
        raise CommandError(f"`{name}` ended with {process.returncode}: {(errors or output)[-ERROR_CHARS:].strip()}")
    return output


def end_group(process: subprocess.Popen, grace_seconds: float = 20) -> None:
    """End a process that leads a process group, and then the rest of the group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(grace_seconds)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
