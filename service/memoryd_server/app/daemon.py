"""Daemon: start, reload, stop; signals.

The composition root: settings into objects into a server, and the order in which they start and stop.

Keeps the linear algebra under numpy on the thread that calls it.
"""

import asyncio
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import threadpoolctl

from memoryd_server.access import Credentials, parse_address
from memoryd_server.agent import (
    Agent,
    AgentConfig,
    Agents,
    ProviderExecutors,
    ServiceInfo,
    SettingsReport,
    SharedResources,
    SyncRun,
)
from memoryd_server.app.config import agent_config, call_limits, check_listeners, keyring_and_certificates
from memoryd_server.app.metrics import figures, metrics_address
from memoryd_server.app.plugins import EXTENSIONS, Backends, ExtensionParts
from memoryd_server.background_tasks import ReportedErrors, repeat
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.model import Clock
from memoryd_server.observe import FaultLog, Log, LogLevel, Meter, Metrics, MetricsListener, NoMeter, SyncFinished
from memoryd_server.providers import EmbeddingConfig, ProviderPool, ProviderSelection
from memoryd_server.rpc import Authorizer, HealthReporter, MemoryService, RpcServer, utc_now
from memoryd_server.settings import RefusedSettings, ResolvedSettings, brought_into_force, changed_keys
from memoryd_server.sources import SharedInotify, open_inotify
from memoryd_server.sqlite import bound_page_caches
from memoryd_server.sync import SyncMode, SyncOutcome
from memoryd_server.threads import SharedPool

# One agent has one less than there are of the quick ones, and half of the slow ones, at most. Each quick one more makes
# all of them wait longer for the interpreter: 64 callers got 7 % less with four.
QUICK_THREADS = 3
SLOW_THREADS = 4

WANTED_DESCRIPTORS = 65_536

BEYOND_GRACE_SECONDS = 1.5
"""How long a stop has after the grace to close everything. Then the process ends, even if something still hangs."""

_LOG_SECONDS = 0.2


class Daemon:
    """memoryd from `start` to `stop`.

    `background` switches what nobody asked for: watching and the first sync. A command that runs without a daemon has
    no use for it. `log_level` is that of `log`, for reloads to set.
    """

    def __init__(
        self, settings: ResolvedSettings, log: Log, *, background: bool = True, log_level: LogLevel | None = None
    ) -> None:
        use_calling_thread_only()
        self._log = log
        self._log_level = log_level
        self._background = background
        self._settings = settings
        self._settings_report = SettingsReport(time.time_ns())
        self._fault_log = FaultLog(log)
        self._reloading = asyncio.Lock()
        self._stopping = False
        self._grace_seconds = settings.service.limits.shutdown_grace_seconds
        self._providers = ProviderPool()
        self._threads = SharedResources(
            quick=SharedPool(QUICK_THREADS, QUICK_THREADS - 1, "quick"),
            slow=SharedPool(SLOW_THREADS, SLOW_THREADS - 2, "slow"),
            embed=ProviderExecutors(),
            native=SharedInotify(open_inotify),
        )
        configs = _agent_configs(settings)
        bound_page_caches(len(configs))
        self._backends = Backends(self._threads, log)
        self.agents = Agents(configs, self._make_memory, self._backends.make)
        limits = settings.service.limits
        addresses = [parse_address(address) for address in settings.service.listen]
        access = Credentials(*keyring_and_certificates(settings, addresses, log))
        self._metrics = self._made_metrics(settings)
        meter = NoMeter() if self._metrics is None else self._metrics.metrics
        self._meter: Meter = meter
        self._gate = gate = Authorizer(access, call_limits(limits))
        self._service = service = MemoryService(
            self.agents,
            ServiceInfo(
                time.time_ns(),
                warnings=lambda: (*self._settings.warnings, *access.problems()),
                settings=lambda: self._settings_report,
            ),
            gate.grant_of,
            ceiling_seconds=limits.default_deadline_seconds,
            now=utc_now,
            meter=meter,
        )
        # A command that runs without a daemon opens nothing of an extension that it does not need.
        parts = ExtensionParts(self.agents, self._select, self._threads.embed, log, service, background)
        self.extensions = tuple(make(parts) for make in EXTENSIONS)
        services = [extension.service for extension in self.extensions]
        readiness = HealthReporter(self.agents, services, log=log)
        self._server = RpcServer(
            service,
            services,
            readiness,
            gate,
            addresses,
            access=access,
            max_connections=limits.max_connections,
            log=log,
            meter=meter,
        )

    def _made_metrics(self, settings: ResolvedSettings) -> MetricsListener | None:
        address = metrics_address(settings)
        if address is None:
            return None
        return MetricsListener(
            Metrics(lambda: figures(self.agents, self._providers, self._gate.admission)), address.host, address.port
        )

    @property
    def grace_seconds(self) -> float:
        """How long running calls have to finish when the daemon stops."""
        return self._grace_seconds

    @property
    def metrics_url(self) -> str:
        """Where figures are fetched; empty where nobody wants any."""
        return "" if self._metrics is None else self._metrics.url

    def _select(self, config: EmbeddingConfig) -> ProviderSelection:
        blockers = self._settings.remote_embeddings_blocked_by
        if blockers and not config.blocked_by:
            # A call that began before a reload has the configuration from before it.
            config = replace(config, blocked_by=tuple(blocker.shown_to("") for blocker in blockers))
        return self._providers.select(config)

    def _make_memory(self, config: AgentConfig) -> Agent:
        selection = self._select(config.embedding)
        return Agent(config, selection, self._threads, Clock(), self._end_run)

    def _end_run(self, agent_id: str, run: SyncRun) -> None:
        self._log_run(agent_id, run)
        config = self.agents.configs().get(agent_id)
        if run.mode is SyncMode.FULL and run.failure is None and config is not None:
            for extension in self.extensions:
                extension.on_full_sync(config)

    def _log_run(self, agent_id: str, run: SyncRun) -> None:
        fields = {"agent": agent_id, "sync_id": run.sync_id, "trigger": run.trigger, "mode": run.mode}
        elapsed = round(run.elapsed_seconds, 3)
        result = "completed" if run.failure is None else run.failure.reason.lower()
        done = run.outcome
        counts = None if done is None else _file_counts(done)
        chunks = 0 if done is None else done.chunks
        end = SyncFinished(agent_id, run.trigger.lower(), result, run.elapsed_seconds, counts, chunks)
        self._meter.sync_ended(end)
        if done is None:
            cause = run.failure.__cause__ if run.failure is not None else None
            self._log.warning("end-sync", **fields, elapsed_s=elapsed, error=str(run.failure), exc_info=cause)
            return
        vectors = run.vectors
        # The reasons may quote a text that the provider refused, so Status has them and the log has their kinds.
        (self._log.warning if vectors.missing else self._log.info)(
            "complete-sync",
            **fields,
            elapsed_s=elapsed,
            revision=done.revision,
            **_file_counts(done),
            pending_embeddings=vectors.pending,
            refused_embeddings=vectors.refused,
            degraded=[degradation.kind for degradation in vectors.degradations],
        )

    async def start(self) -> list[str]:
        """Opens the indexes and listens; answers with the addresses that clients dial.

        Raises:
            MemorydError: an index is held by another process, or an address cannot be used.
        """
        self._fault_log.start()
        try:
            await self.agents.start(background=self._background)
        except BaseException:
            self._fault_log.stop()
            raise
        try:
            await self._server.start()
            if self._metrics is not None:
                self._metrics.start()
                self._log.info("serve-metrics", url=self._metrics.url)
        except BaseException:
            await self._server.stop(0)
            await self.agents.stop()
            await asyncio.to_thread(self._backends.close)
            self._fault_log.stop()
            raise
        self._log.info("start-daemon", listen=self._server.addresses, agents=list(self.agents.configs()))
        return self._server.addresses

    async def reload(self, load: Callable[[], ResolvedSettings]) -> SettingsReport:
        """Brings into force what `load` reads, as far as it can be at work; what cannot be used changes nothing.

        A setting in it that is not understood disables remote embeddings even if the settings are refused.

        Returns how that went, which `Status` tells from then on.
        """
        async with self._reloading:
            if self._stopping:
                return self._settings_report
            loads = self._settings_report.loads + 1
            try:
                loaded, settings = await asyncio.to_thread(self._read, load)
            except Exception as error:  # noqa: BLE001 -- whatever it is, the settings in force stay
                self._settings_report = replace(self._settings_report, loads=loads, error=_words(error), changed=())
                self._log.error("refuse-settings", error=_words(error), exc_info=_bug(error))
                if isinstance(error, RefusedSettings) and error.blockers:
                    await self._block_remote(error)
                return self._settings_report
            changed = changed_keys(self._settings, settings)
            problems = await self._tried(settings)
            waiting = changed_keys(settings, loaded)
            self._settings_report = SettingsReport(time.time_ns(), loads, "; ".join(problems), changed, waiting)
        self._log.info("reload-settings", changed=changed, awaiting_restart=waiting, problems=problems)
        for warning in settings.warnings:
            self._log.warning("warn-settings", warning=warning)
        return self._settings_report

    def _read(self, load: Callable[[], ResolvedSettings]) -> tuple[ResolvedSettings, ResolvedSettings]:
        """The settings as they are on disk, and as far as they can be in force now; blocks."""
        loaded = load()
        try:
            check_listeners(loaded)
            return loaded, brought_into_force(self._settings, loaded)
        except SettingsError as error:
            raise RefusedSettings(error.message, loaded.remote_embeddings_blocked_by) from error

    async def _block_remote(self, refused: RefusedSettings) -> None:
        """Keep the settings in force, but for the remote embeddings that the refused ones may restrict."""
        found = [blocker.warning for blocker in refused.blockers]
        warnings = tuple(dict.fromkeys((*self._settings.warnings, *found)))
        kept = replace(self._settings, remote_embeddings_blocked_by=refused.blockers, warnings=warnings)
        changed = changed_keys(self._settings, kept)
        problems = await self._tried(kept)
        error = "; ".join((self._settings_report.error, *problems))
        self._settings_report = replace(self._settings_report, error=error, changed=changed)
        for warning in found:
            self._log.warning("warn-settings", warning=warning)

    async def _tried(self, settings: ResolvedSettings) -> tuple[str, ...]:
        try:
            return await self._bring_into_force(settings)
        except Exception as error:  # noqa: BLE001 -- the daemon goes on, and the next reload mends what it can
            self._log.exception("fail-reload")
            return (_words(error),)

    async def _bring_into_force(self, settings: ResolvedSettings) -> tuple[str, ...]:
        configs = await asyncio.to_thread(_agent_configs, settings)
        limits = settings.service.limits
        self._settings = settings
        if settings.remote_embeddings_blocked_by:
            # Syncs and searches under way send nothing more; the memories are opened again without the provider.
            await asyncio.to_thread(self._providers.close_remote)
        self._grace_seconds = limits.shutdown_grace_seconds
        self._gate.admission.limits = call_limits(limits)
        self._service.ceiling_seconds = limits.default_deadline_seconds
        if self._log_level is not None:
            self._log_level.set(settings.service.log.level)
        bound_page_caches(len(configs))
        # Providers that nobody uses any more stay until the end: they are idle, and a change back finds them.
        problems = await self.agents.change(configs, grace_seconds=self._grace_seconds)
        for extension in self.extensions:
            await extension.change(self.agents.configs())
        return problems

    async def stop(self) -> None:
        """Health NOT_SERVING, syncs to a file boundary, running calls within the grace, then everything closed."""
        self._log.info("stop-daemon", grace_s=self._grace_seconds)
        ends_at = time.monotonic() + self._grace_seconds
        self._stopping = True
        self.agents.open_no_more()
        await self._server.close_gate()
        async with self._reloading:
            await self._stop(ends_at)

    async def _stop(self, ends_at: float) -> None:
        # A search that waits for a provider answers by keywords now, within the grace.
        self._threads.embed.shutdown()
        await self.agents.interrupt_syncs()
        await self._server.stop(max(0.0, ends_at - time.monotonic()))
        for extension in self.extensions:
            await extension.stop()
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.stop)
        await self.agents.stop()
        await asyncio.to_thread(self._backends.close)
        await asyncio.to_thread(self._providers.close)
        self._threads.quick.shutdown()
        self._threads.slow.shutdown()
        self._fault_log.stop()


async def run_daemon(
    settings: ResolvedSettings,
    log: Log,
    on_ready: Callable[[list[str]], None],
    *,
    log_level: LogLevel,
    load: Callable[[], ResolvedSettings],
    on_reload: Callable[[SettingsReport], None],
) -> None:
    """Runs the daemon until SIGTERM or SIGINT; a second one ends it now. SIGHUP has it `load` settings again."""
    _raise_descriptor_limit()
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    daemon = Daemon(settings, log, log_level=log_level)
    signals = _StopSignals(lambda: loop.call_soon_threadsafe(stop.set), lambda: daemon.grace_seconds, log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signals.on_signal)
    on_ready(await daemon.start())
    reloads = loop.create_task(_reload_whenever(reload, daemon, load, on_reload))
    await stop.wait()
    await daemon.stop()
    reloads.cancel()
    await asyncio.gather(reloads, return_exceptions=True)


def _agent_configs(settings: ResolvedSettings) -> list[AgentConfig]:
    """Return the configuration of each agent. Blocks: the host's time zone is a file."""
    return [agent_config(agent, settings) for agent in settings.agents.values()]


def _file_counts(done: SyncOutcome) -> dict[str, int]:
    return {"indexed": done.indexed_files, "removed": done.removed_files, "failed": done.failed_files}


def _raise_descriptor_limit() -> None:
    # Each agent has some ten files open, and what a process gets unasked is often 1,024.
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if most == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, most)
    if resource.RLIM_INFINITY != now < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _reload_whenever(
    asked: asyncio.Event,
    daemon: Daemon,
    load: Callable[[], ResolvedSettings],
    on_reload: Callable[[SettingsReport], None],
) -> None:
    """Reload once for all the signals that came before it began."""

    async def reload_once() -> None:
        await asked.wait()
        asked.clear()
        on_reload(await daemon.reload(load))

    await repeat(reload_once, ReportedErrors("a reload of the settings"))


class _StopSignals:
    """Handles SIGTERM and SIGINT: the first one starts a stop with a time limit, the second one ends the process now.

    The handler is Python's and not the event loop's, and the limit has a thread of its own, so that both work while the
    loop, or a thread that the interpreter joins at its exit, hangs in a call to the system.
    """

    def __init__(self, stop: Callable[[], object], grace_seconds: Callable[[], float], log: Log) -> None:
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._log = log
        self._is_stopping = False

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGINT, on the main thread."""
        if self._is_stopping:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # The first process of a container ignores a signal with the default handler.
            os._exit(128 + number)
        self._is_stopping = True
        self._stop()
        limit = threading.Timer(self._grace_seconds() + BEYOND_GRACE_SECONDS, self._give_up)
        limit.daemon = True
        # If the system has no thread left, the stop has no limit.
        with suppress(RuntimeError):
            limit.start()

    def _give_up(self) -> None:
        # A log whose reader hangs must not keep the process from ending.
        logging = threading.Thread(target=self._log_threads, daemon=True)
        logging.start()
        logging.join(_LOG_SECONDS)
        os._exit(1)

    def _log_threads(self) -> None:
        names = sorted(thread.name for thread in threading.enumerate() if not thread.daemon)
        self._log.error("abandon-stop", waiting_for=names)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, MemorydError) else f"{type(error).__name__}: {error}"


def _bug(error: Exception) -> Exception | None:
    return None if isinstance(error, MemorydError) else error


def use_calling_thread_only() -> None:
    """Lets BLAS start no threads of its own, in the whole process.

    The products of a search take tenths of a millisecond. Shared out among threads they gain nothing on an idle
    machine, and on a busy one each product waits until the last thread had its turn: 100 ms instead of one.
    """
    threadpoolctl.threadpool_limits(1, user_api="blas")
