"""Daemons whose wall clock a test moves, by a library that is preloaded into their process."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shifted_clock.c")


class Clock:
    """The wall clock of the daemons that `within` runs."""

    def __init__(self, folder):
        self._file = folder / "shift"
        self._library = folder / "shifted_clock.so"
        self.set(0)
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", self._library, SOURCE, "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"the clock cannot be moved here: {done.stderr[:200]}")
        self.within = ("env", f"LD_PRELOAD={self._library}", f"SHIFT_FILE={self._file}")

    def set(self, seconds):
        # In place: the daemon sees the file through its memory.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(int(seconds).to_bytes(8, "little", signed=True))

    def seen(self, connection):
        """How far the daemon's clock is ahead of ours, in seconds."""
        *_, last = connection.sync(timeout=60)
        return last.time.seconds - datetime.now(UTC).timestamp()

    def today(self, seconds):
        return (datetime.now(UTC) + timedelta(seconds=seconds)).date().isoformat()
