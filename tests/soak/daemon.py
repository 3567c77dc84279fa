"""The daemon's lives: starts, kills, stops and reloads on one state directory, and what a life uses."""

import asyncio
import contextlib
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import apsw
import psutil

from daemon_process import end, start
from soak.settings import BLOCKING, GRACE_SECONDS, INVALID

# A stop lasts the grace period and two seconds; the rest is for a busy machine.
STOP_SECONDS = GRACE_SECONDS + 2 + 5
# A client connects again within a quarter of a second.
RECONNECT_SECONDS = 2.0
RELOAD_SECONDS = 60.0
MIB = 1 << 20


@dataclass(frozen=True)
class Usage:
    """What a daemon uses at a moment."""

    rss_mib: float
    descriptors: int
    threads: int
    processes: int
    state_mib: float


class DaemonLives:
    """Start and end daemons on one state directory."""

    def __init__(self, folder, settings, evidence):
        self.folder, self.settings, self.evidence = folder, settings, evidence
        self.workspace, self.state = settings.workspace("main"), folder / "state"
        self.log = folder / "daemon.log"
        self.address = f"unix:{self.state}/m.sock"
        self.kills = self.stops = self.reloads = self.starts = 0
        self.slowest_stop = 0.0
        self._served = None

    async def start(self):
        """Start a daemon with the usual settings and return when it listens."""
        self.settings.write(self.settings.usual())
        arguments = ("--config", self.settings.path)
        self._served = await asyncio.to_thread(start, self.workspace, self.state, *arguments, home=self.folder)
        self.starts += 1
        self.evidence.down_until = time.monotonic() + RECONNECT_SECONDS
        self.evidence.down = False

    async def kill(self):
        """Kill the daemon without warning."""
        self.evidence.down = True
        self.kills += 1
        await asyncio.to_thread(end, self._served.process, signal.SIGKILL)

    async def stop(self):
        """Stop the daemon with SIGTERM, and check that it ends in time and well."""
        self.evidence.down = True
        self.stops += 1
        began = time.monotonic()
        code = await asyncio.to_thread(end, self._served.process)
        seconds = time.monotonic() - began
        self.slowest_stop = max(self.slowest_stop, seconds)
        self.evidence.check(
            "stop",
            code == 0 and seconds < STOP_SECONDS,
            "late, or with an error",
            code=code,
            seconds=round(seconds, 2),
            log=self.log.read_text("utf-8", "replace")[-1_500:],
        )

    def close(self):
        """End the daemon if it still runs."""
        if self._served is not None and self._served.process.poll() is None:
            end(self._served.process, signal.SIGKILL)

    def check_alive(self):
        """Check that the daemon did not end by itself."""
        if not self.evidence.down:
            code = self._served.process.poll()
            self.evidence.check("daemon", code is None, "it ended by itself", code=code)

    async def reload(self, *, by_command=False):
        """Make the daemon read its settings."""
        self.reloads += 1
        self.evidence.reloaded_at = time.monotonic()
        if by_command:
            done = await asyncio.to_thread(self._served.memoryd, "reload")
            known = {0, 1} if not self.evidence.down else {0, 1, 5}
            self.evidence.check(
                "reload command",
                done.returncode in known,
                "unexpected exit status",
                code=done.returncode,
                error=done.stderr,
            )
        elif self._served.process.poll() is None:
            self._served.process.send_signal(signal.SIGHUP)

    async def restore_settings(self, world):
        """Bring the usual settings into effect, with an embedding provider that has no cooldown."""
        async with world.connect() as client:
            # Refused settings close the provider; the next ones open it again.
            for write in (
                lambda: self.settings.write_invalid(BLOCKING),
                lambda: self.settings.write(self.settings.usual()),
            ):
                before = (await client.status(timeout=20.0)).service.settings_loads
                write()
                await self.reload()
                until = time.monotonic() + RELOAD_SECONDS
                while (await client.status(timeout=20.0)).service.settings_loads <= before:
                    if time.monotonic() > until:
                        self.evidence.fail("a reload did not happen", seconds=RELOAD_SECONDS)
                        return
                    await asyncio.sleep(0.05)
            service = (await client.status(timeout=20.0)).service
            right = not service.settings_error and not service.settings_awaiting_restart
            self.evidence.check("reload", right, "valid settings are not in effect", service=str(service))

    async def change_settings(self, world):
        """Reload valid and invalid settings, by the signal and by the command, until the clients must stop."""
        while not world.stop.is_set():
            await world.pause(0.5, 4.0)
            if world.stop.is_set() or self.evidence.down:
                continue
            if world.chance.random() < 0.4:
                self.settings.write_invalid(world.chance.choice(list(INVALID)))
            else:
                self.settings.write(self.settings.changed())
            await self.reload(by_command=world.chance.random() < 0.15)
            if world.chance.random() < 0.3:
                # Several signals while a reload runs.
                await self.reload()
                self.settings.write(self.settings.usual())
                await self.reload()

    def rss_mib(self):
        """Return the daemon's memory, or 0 while none runs."""
        if self._served is None:
            return 0.0
        try:
            return sum(each.memory_info().rss for each in self._processes()) / MIB
        except psutil.NoSuchProcess:
            return 0.0

    def _processes(self):
        process = psutil.Process(self._served.process.pid)
        return [process, *process.children(recursive=True)]

    def usage(self):
        """Return what the daemon uses now."""
        process, *children = self._processes()
        return Usage(
            round(self.rss_mib(), 1),
            process.num_fds(),
            self._threads(process.pid),
            1 + len(children),
            round(self._state_bytes() / MIB, 2),
        )

    @staticmethod
    def _threads(process_id):
        """Return the number of threads, without those of LanceDB, whose pools shrink when they are idle."""
        count = 0
        for name in Path(f"/proc/{process_id}/task").glob("*/comm"):
            with contextlib.suppress(OSError):
                count += not name.read_text().startswith("lance")
        return count

    def _state_bytes(self):
        """Return the size of the state directory without the transcripts, which the gateway writes."""
        total = 0
        for file in self.state.rglob("*"):
            if file.relative_to(self.state).parts[0] != "agents":
                with contextlib.suppress(FileNotFoundError):
                    total += file.stat().st_size if file.is_file() else 0
        return total

    def check_indexes(self):
        """Check the SQLite files that the last daemon left."""
        for file in sorted((self.state / "memory").glob("*.sqlite")):
            with apsw.Connection(str(file)) as connection:
                verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
            self.evidence.check("integrity", verdict == "ok", "a database is damaged", file=file.name, verdict=verdict)

    def check_log(self):
        """Check that the log has no unhandled exception; return the number of warnings and errors by event."""
        counts = {}
        for line in self.log.read_text("utf-8", "replace").splitlines():
            event = (
                json.loads(line) if line.startswith("{") and line.endswith("}") else {"event": line, "level": "text"}
            )
            level = event.get("level")
            if level in {"info", "debug"}:
                continue
            name = f"{level}: {event['event'][:100]}"
            counts[name] = counts.get(name, 0) + 1
            if "exception" in event or line.startswith("Traceback"):
                self.evidence.check("log", False, "an unhandled exception", line=line[-3_000:])
        return counts
