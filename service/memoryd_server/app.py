"""The composition root: settings into objects into a server, and the order in which they start and stop."""

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from memoryd_server.access import AccessFiles
from memoryd_server.backend import AgentConfig, AgentDirectory, AgentMemory, EmbedThreads, SyncRun, Threads
from memoryd_server.embed import ProviderPool
from memoryd_server.index.sync import Clock
from memoryd_server.observe.log import Log
from memoryd_server.rpc.gate import Gate
from memoryd_server.rpc.health import Readiness
from memoryd_server.rpc.listeners import parse
from memoryd_server.rpc.server import RpcServer
from memoryd_server.rpc.service import MemoryService, utc_now
from memoryd_server.rpc.status_conversion import ServiceInfo
from memoryd_server.settings import ResolvedSettings
from memoryd_server.wiring import agent_config, keyring_and_certificates

QUICK_THREADS = 4
SLOW_THREADS = 2


class Daemon:
    """memoryd from `start` to `stop`.

    `background` switches what nobody asked for: watching and the first sync. A command that runs without a daemon has
    no use for it.
    """

    def __init__(self, settings: ResolvedSettings, log: Log, *, background: bool = True) -> None:
        self._log = log
        self._background = background
        self._grace_seconds = settings.service.limits.shutdown_grace_seconds
        self._providers = ProviderPool()
        self._threads = Threads(
            quick=ThreadPoolExecutor(QUICK_THREADS, thread_name_prefix="quick"),
            slow=ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="slow"),
            embed=EmbedThreads(),
        )
        configs = [agent_config(agent, settings) for agent in settings.agents.values()]
        self.agents = AgentDirectory(configs, self._make_memory)
        limits = settings.service.limits
        addresses = [parse(address) for address in settings.service.listen]
        access = AccessFiles(*keyring_and_certificates(settings, addresses, log))
        gate = Gate(access, limits.max_concurrent_calls)
        service = MemoryService(
            self.agents,
            ServiceInfo(time.time_ns(), lambda: (*settings.warnings, *access.problems())),
            gate.grant_of,
            ceiling_seconds=limits.default_deadline_seconds,
            now=utc_now,
        )
        self._server = RpcServer(service, Readiness(self.agents), gate, addresses, access=access, log=log)

    def _make_memory(self, config: AgentConfig) -> AgentMemory:
        selection = self._providers.select(config.embedding)
        return AgentMemory(config, selection, self._threads, Clock(), self._log_run)

    def _log_run(self, agent_id: str, run: SyncRun) -> None:
        fields = {"agent": agent_id, "sync_id": run.sync_id, "trigger": run.trigger, "mode": run.mode}
        elapsed = round(run.elapsed_seconds, 3)
        if run.outcome is None:
            cause = run.failure.__cause__ if run.failure is not None else None
            self._log.warning("end-sync", **fields, elapsed_s=elapsed, error=str(run.failure), exc_info=cause)
            return
        done = run.outcome
        self._log.info(
            "complete-sync",
            **fields,
            elapsed_s=elapsed,
            revision=done.revision,
            indexed=done.indexed_files,
            removed=done.removed_files,
            failed=done.failed_files,
        )

    async def start(self) -> list[str]:
        """Opens the indexes and listens; answers with the addresses that clients dial.

        Raises:
            MemorydError: an index is held by another process, or an address cannot be used.
        """
        await self.agents.start(background=self._background)
        try:
            await self._server.start()
        except BaseException:
            await self.agents.stop()
            raise
        self._log.info("start-daemon", listen=self._server.addresses, agents=list(self.agents.configs()))
        return self._server.addresses

    async def stop(self) -> None:
        """Health NOT_SERVING, syncs to a file boundary, running calls within the grace, then everything closed."""
        self._log.info("stop-daemon", grace_s=self._grace_seconds)
        await self._server.close_gate()
        await self.agents.interrupt_syncs()
        await self._server.stop(self._grace_seconds)
        await self.agents.stop()
        self._providers.close()
        self._threads.embed.shutdown()
        self._threads.quick.shutdown(wait=False, cancel_futures=True)
        self._threads.slow.shutdown(wait=False, cancel_futures=True)


async def run(settings: ResolvedSettings, log: Log, on_ready: Callable[[list[str]], None]) -> None:
    """Runs the daemon until SIGTERM or SIGINT; a second one ends it at once."""
    daemon = Daemon(settings, log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_die, stop, number)
    on_ready(await daemon.start())
    await stop.wait()
    await daemon.stop()


def _stop_or_die(stop: asyncio.Event, number: signal.Signals) -> None:
    if stop.is_set():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stop.set()
