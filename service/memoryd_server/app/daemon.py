"""The daemon: it builds the parts from the settings, starts, reloads and stops them in order, and handles signals."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from memoryd_server.access import Credentials, parse_address
from memoryd_server.agent import (
    AbandonedIndexes,
    Agent,
    AgentConfig,
    Agents,
    AgentWorkspace,
    ProviderExecutors,
    ReaderProcesses,
    ServiceInfo,
    SettingsReport,
    SharedReranking,
    SharedResources,
    SyncRun,
)
from memoryd_server.app.collector import FullCollections
from memoryd_server.app.config import (
    agent_configs,
    call_limits,
    check_backends,
    check_listeners,
    http_address,
    rerank_config,
    rerank_policy,
    verifier_and_certificates,
)
from memoryd_server.app.edges import Edges
from memoryd_server.app.idle_exit import LOOK_SECONDS, IdleWatch
from memoryd_server.app.metrics import collect_metrics, metrics_address
from memoryd_server.app.plugins import EXTENSIONS, Backends, ExtensionParts, StorageFactory
from memoryd_server.app.process_limits import raise_descriptor_limit
from memoryd_server.app.stop_signals import StopSignals
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.model import Clock
from memoryd_server.observe import (
    FaultLog,
    Log,
    LogLevel,
    Meter,
    Metrics,
    MetricsListener,
    MetricsSnapshot,
    NoMeter,
    SyncFinished,
)
from memoryd_server.providers import (
    EmbeddingConfig,
    EmbeddingProvider,
    HubModelFile,
    ProviderPool,
    ProviderSelection,
    make_reranker,
    missing_model,
)
from memoryd_server.rpc import Authorizer, HealthReporter, MemoryService, RpcServer
from memoryd_server.settings import RefusedSettings, ResolvedSettings, changed_keys, keep_until_restart
from memoryd_server.sources import NativeReader, SharedInotify, open_inotify
from memoryd_server.sqlite import bound_page_caches
from memoryd_server.sync import SyncMode, SyncOutcome
from memoryd_server.threads import SharedPool
from memoryd_server.vectors import use_calling_thread_only

# One agent occupies at most all but one of the quick threads, and half of the slow ones. More quick threads wait longer
# for the interpreter: with four, the throughput of 64 callers fell by 7 %.
QUICK_THREADS = 3
SLOW_THREADS = 4


class Daemon:
    """memoryd from `start` to `stop`.

    `background` enables work that no caller requested: watching, and the first sync. A command that runs without a
    daemon disables it. `log_level` is the level of `log`, which a reload may change. `open_native` opens a reader of
    file events.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        log: Log,
        *,
        background: bool = True,
        log_level: LogLevel | None = None,
        open_native: Callable[[], NativeReader] = open_inotify,
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned: AbandonedIndexes | None = None
        # Without a background, a model is downloaded by `HubModelFile.download` and by nothing else.
        self._providers = ProviderPool(downloads=background, on_ready=self._sync_vectors)
        failures = TaskFailures()
        self.readers = ReaderProcesses(settings.service.readers, log, failures)
        self._storage = StorageFactory(log, settings.service.store, self.readers)
        self.resources = _make_resources(open_native, self._storage, failures, background)
        self.resources.reranking.start(rerank_config(settings), rerank_policy(settings))
        self._collections = FullCollections(self.resources.failures, closed_agents=lambda: self.agents.closed_agents)
        check_backends(settings)
        configs = agent_configs(settings)
        bound_page_caches(len(configs))
        self._metrics, self._metrics_listener = self._make_metrics(settings)
        self._meter: Meter = self._metrics or NoMeter()
        self._backends = Backends(self.resources, log)
        self.agents = Agents(
            configs,
            self._make_memory,
            self._backends.make,
            make_workspace=lambda config: AgentWorkspace(config, self.resources, Clock()),
            failures=self.resources.failures,
        )
        limits = settings.service.limits
        addresses = [parse_address(address) for address in settings.service.listen]
        access = Credentials(*verifier_and_certificates(settings, addresses, log), failures=self.resources.failures)
        self.authorizer = Authorizer(access, call_limits(limits))
        self.service = MemoryService(
            self.agents,
            ServiceInfo(
                time.time_ns(),
                warnings=lambda: (*self._settings.warnings, *access.problems()),
                settings=lambda: self._settings_report,
                background_failures=self.resources.failures.current,
            ),
            self.authorizer.grant_of,
            ceiling_seconds=limits.default_deadline_seconds,
        )
        # A command that runs without a daemon opens no part of an extension that it does not need.
        parts = ExtensionParts(self.agents, self._select, self.resources, log, self.service, background, failures)
        self.extensions = tuple(make(parts) for make in EXTENSIONS)
        self.edges = Edges(
            settings, self.service, self.authorizer, access=access, log=log, meter=self._meter, failures=failures
        )
        services = [*(extension.service for extension in self.extensions), self.edges.mcp_service()]
        self._readiness = HealthReporter(self.agents, services, log=log, failures=failures)
        self.server = RpcServer(
            self.service,
            services,
            self._readiness,
            self.authorizer,
            addresses,
            access=access,
            max_connections=limits.max_connections,
            log=log,
            meter=self._meter,
        )

    def _make_metrics(self, settings: ResolvedSettings) -> tuple[Metrics | None, MetricsListener | None]:
        """Return the metrics, None if no listener serves them, and the listener that serves nothing else."""
        address = metrics_address(settings)
        if address is None:
            return (None if http_address(settings) is None else Metrics(self._collect_metrics)), None
        metrics = Metrics(self._collect_metrics)
        return metrics, MetricsListener(metrics, address.host, address.port)

    def _collect_metrics(self) -> MetricsSnapshot:
        return collect_metrics(
            self.agents,
            self._providers,
            self.authorizer.admission,
            self.resources,
            database=self._storage.database_metrics(),
            readers=self.readers.measured(),
        )

    @property
    def settings(self) -> ResolvedSettings:
        """The settings in force; a reload replaces them."""
        return self._settings

    @property
    def grace_seconds(self) -> float:
        """Return the time that running calls have to finish when the daemon stops."""
        return self._grace_seconds

    @property
    def metrics_url(self) -> str:
        """Return the URL of the metrics listener; empty if it is disabled."""
        return "" if self._metrics_listener is None else self._metrics_listener.url

    def _select(self, config: EmbeddingConfig) -> ProviderSelection:
        blockers = self._settings.remote_embeddings_blocked_by
        if blockers and not config.blocked_by:
            # A call that began before a reload uses the configuration from before the reload.
            config = replace(config, blocked_by=tuple(blocker.visible_to("") for blocker in blockers))
        return self._providers.select(config)

    def _sync_vectors(self, provider: EmbeddingProvider) -> None:
        """Make the vectors of a provider whose model has arrived. From any thread."""
        # A download can end while the daemon stops, and its loop is closed.
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.agents.sync_vectors, provider)

    async def missing_models(self, agent_id: str) -> list[HubModelFile]:
        """Return the models that an agent's vectors need and that have to be downloaded.

        Raises:
            AgentNotFound, MemoryDisabled, MemorydError: as `Agents.use`.
        """
        async with self.agents.use(agent_id) as agent:
            providers = agent.index.embedding.providers
            return await asyncio.to_thread(lambda: [file for file in map(missing_model, providers) if file is not None])

    def _make_memory(self, config: AgentConfig) -> Agent:
        selection = self._select(config.embedding)
        return Agent(config, selection, self.resources, Clock(), on_sync_end=self._end_run, meter=self._meter)

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
        self._meter.sync_ended(SyncFinished(agent_id, run.trigger.lower(), result, run.elapsed_seconds, counts, chunks))
        if done is None:
            cause = run.failure.__cause__ if run.failure is not None else None
            self._log.warning("end-sync", **fields, elapsed_s=elapsed, error=str(run.failure), exc_info=cause)
            return
        vectors = run.vectors
        # A reason may quote a text that the provider refused, so Status has the reasons and the log only their kinds.
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
        """Open the indexes, listen, and return the addresses that clients connect to.

        Raises:
            MemorydError: another process holds an index, or an address cannot be used.
        """
        self._fault_log.start()
        self._loop = asyncio.get_running_loop()
        try:
            await self.agents.start(background=self._background)
        except BaseException:
            self._end_threads()
            raise
        try:
            await self.server.start()
            if self._metrics_listener is not None:
                self._metrics_listener.start()
                self._log.info("serve-metrics", url=self._metrics_listener.url)
            await self.edges.start(self._readiness, self._metrics)
            if self._background:
                self._abandoned = AbandonedIndexes(self.agents, self.resources.failures)
                self._storage.on_abandoned(self._abandoned.report)
        except BaseException:
            await self.server.stop(0)
            await self._stop_edges()
            await self.agents.stop()
            await asyncio.to_thread(self._backends.close)
            self._end_threads()
            raise
        if self._background:
            self.readers.start()
        self._collections.start()
        agents = list(self.agents.configs())
        self._log.info("start-daemon", listen=self.server.addresses, agents=agents[:20], agent_count=len(agents))
        return self.server.addresses

    async def reload(self, load: Callable[[], ResolvedSettings]) -> SettingsReport:
        """Apply the settings that `load` returns, except those that need a restart, and return the outcome.

        Settings that cannot be used change nothing, but a setting among them that is not understood disables remote
        embeddings. `Status` reports the outcome until the next reload.
        """
        async with self._reloading:
            if self._stopping:
                return self._settings_report
            loads = self._settings_report.loads + 1
            try:
                loaded, settings = await asyncio.to_thread(self._read, load)
            except Exception as error:  # noqa: BLE001 -- any error leaves the settings in force
                self._settings_report = replace(
                    self._settings_report, loads=loads, error=_message_of(error), changed=()
                )
                self._log.error("refuse-settings", error=_message_of(error), exc_info=_unexpected(error))
                if isinstance(error, RefusedSettings) and error.blockers:
                    await self._block_remote(error)
                return self._settings_report
            changed = await asyncio.to_thread(changed_keys, self._settings, settings)
            problems = await self._try_to_apply(settings)
            waiting = await asyncio.to_thread(changed_keys, settings, loaded)
            self._settings_report = SettingsReport(time.time_ns(), loads, "; ".join(problems), changed, waiting)
        self._log.info("reload-settings", changed=changed, awaiting_restart=waiting, problems=problems)
        for warning in settings.warnings:
            self._log.warning("warn-settings", warning=warning)
        return self._settings_report

    def _read(self, load: Callable[[], ResolvedSettings]) -> tuple[ResolvedSettings, ResolvedSettings]:
        """Return the settings as they are on disk, and the part of them that can be in force now. Blocks."""
        loaded = load()
        try:
            check_listeners(loaded)
            kept = keep_until_restart(self._settings, loaded)
            check_backends(kept)
        except SettingsError as error:
            raise RefusedSettings(error.message, loaded.remote_embeddings_blocked_by) from error
        return loaded, kept

    async def _block_remote(self, refused: RefusedSettings) -> None:
        """Keep the settings in force, without the remote embeddings that the refused settings may restrict."""
        found = [blocker.warning for blocker in refused.blockers]
        warnings = tuple(dict.fromkeys((*self._settings.warnings, *found)))
        kept = replace(self._settings, remote_embeddings_blocked_by=refused.blockers, warnings=warnings)
        changed = await asyncio.to_thread(changed_keys, self._settings, kept)
        problems = await self._try_to_apply(kept)
        error = "; ".join((self._settings_report.error, *problems))
        self._settings_report = replace(self._settings_report, error=error, changed=changed)
        for warning in found:
            self._log.warning("warn-settings", warning=warning)

    async def _try_to_apply(self, settings: ResolvedSettings) -> tuple[str, ...]:
        try:
            return await self._apply(settings)
        except Exception as error:  # noqa: BLE001 -- the daemon continues; the next reload may succeed
            self._log.exception("fail-reload")
            return (_message_of(error),)

    async def _apply(self, settings: ResolvedSettings) -> tuple[str, ...]:
        configs = await asyncio.to_thread(agent_configs, settings)
        limits = settings.service.limits
        self._settings = settings
        if settings.remote_embeddings_blocked_by:
            # Running syncs and searches send no more requests. The agents are then opened again without the provider.
            await asyncio.to_thread(self._providers.close_remote)
        await self.resources.reranking.change(rerank_config(settings), rerank_policy(settings))
        self._grace_seconds = limits.shutdown_grace_seconds
        self.authorizer.admission.limits = call_limits(limits)
        self.service.ceiling_seconds = limits.default_deadline_seconds
        if self._log_level is not None:
            self._log_level.set(settings.service.log.level)
        bound_page_caches(len(configs))
        # An agent that is opened again goes on with its provider, and with a pause that the server asked for.
        in_use = self._providers.providers()
        problems = await self.agents.change(configs, grace_seconds=self._grace_seconds)
        if not self._stopping:
            for extension in self.extensions:
                await extension.change(self.agents.configs())
        del in_use
        return problems

    async def stop(self) -> None:
        """Stop the daemon and close everything.

        Health changes to NOT_SERVING, syncs end at a file boundary, and running calls have the grace period to finish.
        """
        self._log.info("stop-daemon", grace_s=self._grace_seconds)
        ends_at = time.monotonic() + self._grace_seconds
        self._stopping = True
        self.agents.open_no_more()
        await self.server.close_gate()
        self.edges.close_gate()
        async with self._reloading:
            await self._stop(ends_at)

    async def _stop(self, ends_at: float) -> None:
        # Searches that wait for a provider now answer by keywords, within the grace period.
        self.resources.embed.shutdown()
        self.resources.reranking.shut_down()
        if self._abandoned is not None:
            await self._abandoned.stop()
        await self.agents.interrupt_syncs()
        await self.server.stop(max(0.0, ends_at - time.monotonic()))
        await self._stop_edges()
        for extension in self.extensions:
            await extension.stop()
        await self.readers.stop()
        await self.agents.stop()
        await asyncio.to_thread(self._backends.close)
        await asyncio.to_thread(self._providers.close)
        await asyncio.to_thread(self.resources.reranking.close)
        await self._collections.stop()
        self._end_threads()

    def _end_threads(self) -> None:
        # The process waits for idle threads of these pools, for `IDLE_SECONDS`.
        self.resources.quick.shutdown()
        self.resources.standby.shutdown()
        self.resources.slow.shutdown()
        self._fault_log.stop()

    async def _stop_edges(self) -> None:
        await self.edges.stop()
        if self._metrics_listener is not None:
            await asyncio.to_thread(self._metrics_listener.stop)


async def run_daemon(
    settings: ResolvedSettings,
    log: Log,
    on_ready: Callable[[list[str]], None],
    *,
    log_level: LogLevel,
    load: Callable[[], ResolvedSettings],
    on_reload: Callable[[SettingsReport], None],
    exit_when_idle: bool = False,
) -> None:
    """Run the daemon until SIGTERM or SIGINT; the second ends the process immediately. SIGHUP reloads the settings.

    With `exit_when_idle`, it also ends when it has been idle for the time in the settings.
    """
    raise_descriptor_limit()
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(reload.set))
    daemon = Daemon(settings, log, log_level=log_level)
    signals = StopSignals(lambda: loop.call_soon_threadsafe(stop.set), lambda: daemon.grace_seconds, log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signals.on_signal)
    on_ready(await daemon.start())
    tasks = BackgroundTasks(daemon.resources.failures)
    tasks.repeat("settings reload", lambda: _reload_on_signal(reload, daemon, load, on_reload))
    if exit_when_idle:
        idle = IdleWatch(
            daemon.authorizer,
            daemon.agents,
            lambda: daemon.settings.service.mcp.idle_seconds,
            http_requests=lambda: daemon.edges.http_requests,
        )
        tasks.repeat("idle exit", partial(idle.step, stop, log), interval_seconds=LOOK_SECONDS)
        # The first session does not wait for the packages of MCP.
        tasks.spawn("import of MCP", daemon.edges.mcp_server(), expected=(MemorydError,))
    await stop.wait()
    # A reload requested now would end the process as soon as the event loop is closed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    await daemon.stop()
    await tasks.stop()


def _make_resources(
    opened: Callable[[], NativeReader], storage: StorageFactory, failures: TaskFailures, downloads: bool
) -> SharedResources:
    return SharedResources(
        quick=SharedPool(QUICK_THREADS, QUICK_THREADS - 1, "quick"),
        slow=SharedPool(SLOW_THREADS, SLOW_THREADS - 2, "slow"),
        embed=ProviderExecutors(),
        native=SharedInotify(opened),
        make_storage=storage.make,
        make_documents=storage.make_documents,
        failures=failures,
        reranking=SharedReranking(partial(make_reranker, downloads=downloads)),
    )


def _file_counts(done: SyncOutcome) -> dict[str, int]:
    return {"indexed": done.indexed_files, "removed": done.removed_files, "failed": done.failed_files}


async def _reload_on_signal(
    requested: asyncio.Event,
    daemon: Daemon,
    load: Callable[[], ResolvedSettings],
    on_reload: Callable[[SettingsReport], None],
) -> None:
    """Reload once for all signals that arrived before the reload began."""
    await requested.wait()
    requested.clear()
    on_reload(await daemon.reload(load))


def _message_of(error: Exception) -> str:
    return error.message if isinstance(error, MemorydError) else f"{type(error).__name__}: {error}"


def _unexpected(error: Exception) -> Exception | None:
    return None if isinstance(error, MemorydError) else error
