"""The course of a soak test: a first half with kills, a second half with one daemon and measured quiet points."""

import asyncio
import os
import random
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from soak import editing, edits, quiet, readers, report, streams, writers
from soak.daemon import DaemonLives
from soak.provider import failing_provider
from soak.settings import SettingsFile
from soak.world import new_world

PROGRESS_SECONDS = 10.0
LIFE_SECONDS = (2.0, 8.0)
ROUND_SECONDS = (4.0, 20.0)
STORM_SHARE = 0.45
CLIENTS: dict[Callable[..., Awaitable[None]], int] = {
    writers.keyed_appends: 4,
    writers.appends_without_keys: 2,
    writers.forgotten_notes: 1,
    writers.sessions: 1,
    edits.edits: 2,
    readers.searches: 3,
    readers.reads: 2,
    readers.lists: 1,
    readers.cancelled_calls: 2,
    streams.watches: 2,
    streams.syncs: 2,
    streams.unread_streams: 1,
    streams.stuck_connections: 1,
    editing.editors: 2,
    editing.moves: 1,
    editing.locking_editors: 1,
}
ENTRY_CLIENTS = {writers.entries: 2}
# How long the clients may take to end their last calls.
END_SECONDS = 150.0


class Soak:
    """One run. `seconds` is its approximate duration; with `entries`, LanceDB is included."""

    def __init__(self, folder, seed, seconds, *, entries):
        self.folder, self.seed, self.seconds, self.entries = folder, seed, seconds, entries
        self.began = time.monotonic()
        self.phase = "start"
        self.usages = []
        self.chance = random.Random(seed)

    async def run(self, json_path):
        """Run, print the report, and return whether there was no violation."""
        print(f"soak: seed {self.seed}, {self.seconds:.0f} s, entries {'on' if self.entries else 'off'}", flush=True)
        with failing_provider(random.Random(self.seed + 1)) as self.provider:
            settings = SettingsFile(
                self.folder / "memoryd.json5",
                self.folder,
                self.provider.url,
                entries=self.entries,
                chance=random.Random(self.seed + 2),
            )
            for place in (self.folder / "state", *(settings.workspace(agent) for agent in ("main", "heron", "guest"))):
                place.mkdir(parents=True)
            settings.write(settings.usual())
            address = f"unix:{self.folder / 'state' / 'm.sock'}"
            self.world = new_world(self.seed, address, settings, self.folder / "state")
            self.evidence = self.world.evidence
            self.daemon = DaemonLives(self.folder, settings, self.evidence)
            progress = asyncio.create_task(self._progress())
            try:
                await self._course()
            except Exception:  # noqa: BLE001 -- the summary shows it with what was observed until then
                self.evidence.fail(
                    "the test could not continue", phase=self.phase, error=traceback.format_exc()[-4_000:]
                )
            finally:
                progress.cancel()
                self.daemon.close()
            report.judge_growth(self.usages, self.evidence)
            summary = report.summary(self, self.daemon.check_log())
        report.write(summary, json_path)
        return not self.evidence.failures

    async def _course(self):
        await self.daemon.start()
        until = self.began + STORM_SHARE * self.seconds
        while time.monotonic() < until:
            await self._storm(min(until, time.monotonic() + self.seconds / 4))
        await self.daemon.stop()
        self.daemon.check_indexes()
        await self.daemon.start()
        await self._quiet("quiet 0")
        await quiet.clear(self.world, with_entries=self.entries)
        low, high = ROUND_SECONDS
        length = min(high, max(low, self.seconds / 15))
        number = 0
        while number < 2 or time.monotonic() < self.began + self.seconds - length:
            number += 1
            await self._round(number, length)
        await self.daemon.stop()
        self.daemon.check_indexes()

    async def _storm(self, until):
        """Kill and stop daemons under load, then compare."""
        self.phase = "kills"
        async with self._load():
            while (left := until - time.monotonic()) > 0:
                await asyncio.sleep(min(left, self.chance.uniform(*LIFE_SECONDS)))
                self.daemon.check_alive()
                is_third = self.daemon.starts % 3 == 0
                await (self.daemon.stop() if is_third else self.daemon.kill())
                # Some clients shall meet an address at which nothing listens.
                await asyncio.sleep(self.chance.uniform(0.0, 0.5))
                await self.daemon.start()
        await self._quiet("quiet")

    async def _round(self, number, length):
        """Load one daemon for a while, compare, remove what was written, and measure."""
        self.phase = f"round {number}"
        async with self._load():
            await asyncio.sleep(length)
            self.daemon.check_alive()
        await self._quiet(f"quiet {number}")
        await quiet.clear(self.world, with_entries=self.entries)
        self.usages.append(self.daemon.usage())

    async def _quiet(self, phase):
        self.phase = phase
        await quiet.quiet_point(self.world, self.daemon, with_entries=self.entries)

    @asynccontextmanager
    async def _load(self):
        """Run the clients, the editors, the failing provider and the reloads until the block ends."""
        world = self.world
        world.stop.clear()
        self.provider.failing.set()
        makers = {**CLIENTS, **(ENTRY_CLIENTS if self.entries else {})}
        tasks = [
            asyncio.create_task(maker(world), name=maker.__name__) for maker, n in makers.items() for _ in range(n)
        ]
        reloads = asyncio.create_task(self.daemon.change_settings(world), name="change_settings")
        try:
            yield
        finally:
            self.provider.failing.clear()
            world.stop.set()
            await asyncio.wait([reloads], timeout=END_SECONDS)
            # The agents that the settings left out are needed for the last calls.
            await self.daemon.restore_settings(world)
            done, late = await asyncio.wait([reloads, *tasks], timeout=END_SECONDS)
            for task in late:
                self.evidence.fail("a client did not come to an end", client=task.get_name(), at=str(task.get_stack()))
                task.cancel()
            for task in done:
                task.result()

    async def _progress(self):
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            print(report.progress(self), flush=True)

    @property
    def processor_seconds(self):
        """The processor time of this process, in seconds."""
        times = os.times()
        return times.user + times.system
