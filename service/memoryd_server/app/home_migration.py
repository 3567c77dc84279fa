"""HomeMigration: copies agents from files into the database, for `memoryd migrate`.

The files are those of a home without a database: workspaces, transcripts, and the files of the state directory. They
are not changed. The parts of an agent are copied in an order in which an interruption does no harm: first what keeps a
daemon of the database from indexing forgotten files, writing a repeated append again, and paying for vectors again, and
the memory files last.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd_server.agent import AgentConfig
from memoryd_server.app.config import agent_config, check_backends
from memoryd_server.app.document_copies import DocumentCopies, open_copies, require_documents
from memoryd_server.errors import IndexBusy, MemorydError
from memoryd_server.model import Clock, Source
from memoryd_server.settings import DatabaseSettings, ResolvedSettings
from memoryd_server.sources import discover_sessions, list_archives
from memoryd_server.sqlite import (
    StoredFileUnusable,
    open_index_vectors,
    open_stored_cache,
    open_stored_history,
    stored_cache_path,
    stored_index_path,
    unused,
)
from memoryd_server.store import StoredCache, StoredHistory, WriteRecord
from memoryd_server.writing import (
    AppendState,
    LedgerEntry,
    append_state,
    has_append_draft,
    is_applied,
    stored_ledger,
)

if TYPE_CHECKING:
    from memoryd_server.postgres import CopyOptions, CopyReport

_INTERRUPTED = (
    "was interrupted: start the daemon once with the settings of the old home, so that it completes or undoes the "
    "write, stop it, and repeat the command; nothing of this agent was copied"
)
_UNKNOWN_APPEND = (
    "was not copied, because its append was interrupted, and {path} may contain a part of the text; a retry appends it "
    "again"
)
_EXTRA_PATH = 'is an extra path, which is not copied; a daemon reads it only if memoryd.store.documents is "folder"'
_NO_CACHE = "has {count} vectors, which were not copied, because memorySearch.cache.enabled is false"
_ARCHIVE = "is a compressed archive of a transcript, which is not copied"
_SESSION = "is a session in OpenClaw's database, which is not copied; the gateway has to send it with SessionAppend"


@dataclass(frozen=True, slots=True)
class MigratedPart:
    """A part of an agent's data. `name` is its key in JSON, `noun` what messages call its rows or files."""

    name: str
    noun: str
    copy: Callable[["CopyOptions"], "CopyReport"]


class HomeMigration:
    """Copies agents from a home without a database into the database of the settings. Blocks.

    `origin` are the settings of the home; whether they name a database does not matter.
    """

    def __init__(self, settings: ResolvedSettings, origin: ResolvedSettings) -> None:
        """Check the settings.

        Raises:
            SettingsError: they do not keep the memory files in a database, or a search backend needs a workspace.
        """
        require_documents(settings)
        check_backends(settings)
        self._settings = settings
        service = origin.service.model_copy(update={"store": DatabaseSettings()})
        self._origin = replace(origin, service=service)

    def agents(self, given: Sequence[str]) -> list[str]:
        """Return the agents to copy: those given, or all that both the settings and the home have.

        Raises:
            AgentNotFound: a given agent is not configured, or not in the home.
        """
        if given:
            wanted = [self._settings.agent(each).agent_id for each in given]
            return [self._origin.agent(each).agent_id for each in dict.fromkeys(wanted)]
        return [each for each in self._settings.agents if each in self._origin.agents]

    def unconfigured(self) -> list[str]:
        """Return the agents of the home that the settings do not have."""
        return [each for each in self._origin.agents if each not in self._settings.agents]

    def require_unused(self, agents: Sequence[str]) -> None:
        """Check that no daemon uses the files of these agents.

        Raises:
            IndexBusy: a daemon does.
        """
        for agent_id in agents:
            with unused(self._origin.agent(agent_id).index_path):
                pass

    @contextmanager
    def opened(self, agent_id: str, *, dry_run: bool) -> Iterator["AgentMigration"]:
        """Yield the migration of an agent; no daemon can open its files until the block ends.

        Raises:
            IndexBusy: a daemon uses them. In a dry run, they are read all the same.
        """
        config = agent_config(self._origin.agent(agent_id), self._origin)
        sessions = config.sessions_folder if Source.SESSIONS in config.sources else None
        in_use = False
        with ExitStack() as stack:
            try:
                stack.enter_context(unused(config.index_path))
            except IndexBusy:
                if not dry_run:
                    raise
                in_use = True
            copies = stack.enter_context(
                open_copies(self._settings, agent_id, Path(config.roots.workspace), sessions, config.forgotten_path)
            )
            yield AgentMigration(config, copies, self._settings, in_use=in_use)


class AgentMigration:
    """The parts of one agent's data. `in_use` is whether a daemon may be changing the files.

    `config` is the agent's configuration in the old home, and `settings` are those with the database.
    """

    def __init__(
        self, config: AgentConfig, copies: DocumentCopies, settings: ResolvedSettings, *, in_use: bool
    ) -> None:
        self.workspace = config.roots.workspace
        self.location = copies.location
        self._config = config
        self._copies = copies
        self._in_use = in_use
        self._now_ms = Clock().now_ns() // 1_000_000
        self._since_ms = self._now_ms - int(settings.service.history.days * 86_400_000)
        self._has_cache = settings.agent(config.agent_id).memory_search.cache.enabled

    def parts(self) -> Sequence[MigratedPart]:
        """Return the parts in the order in which they have to be copied.

        If a write was interrupted, only a part whose report says so.
        """
        if interrupted := self._interrupted():
            return [MigratedPart("interrupted", "writes", lambda _: _skipped(interrupted))]
        return [
            MigratedPart("forgotten", "forgotten files and sessions", self._copy_forgotten),
            MigratedPart("history", "records of the history", self._copy_history),
            MigratedPart("appendKeys", "keys of appends", self._copy_append_keys),
            MigratedPart("vectors", "cached vectors", self._copy_vectors),
            MigratedPart("indexVectors", "vectors of the index", self._copy_index_vectors),
            MigratedPart("providers", "refused texts, totals of usage and batch jobs", self._copy_provider_records),
            MigratedPart("files", "files", self._copy_files),
            MigratedPart("transcripts", "transcripts", self._copy_transcripts),
        ]

    def notify_replicas(self) -> None:
        """Let the daemons that use the database index the copied files soon. Raises as the copies."""
        self._copies.documents.notify_replicas()

    def _interrupted(self) -> Mapping[str, str]:
        """Return the writes that only a daemon can settle: they may have left memory files under other names."""
        found: dict[str, str] = {}
        if self._in_use:
            # Its daemon is about to complete them.
            return found
        try:
            with open_stored_history(self._config.history_path, in_use=self._in_use) as history:
                unfinished = [record for record in history.records(1) if not record.is_done]
        except StoredFileUnusable:
            # The part of the history reports it.
            unfinished = []
        for record in unfinished:
            if self._is_applied(record) is None:
                found[f"the edit of {record.path}"] = _INTERRUPTED
        if has_append_draft(self._config.ledger_path):
            for entry in self._ledger_entries():
                if self._append_state(entry) is AppendState.PENDING:
                    found[f"the append to {entry.path}"] = _INTERRUPTED
        return found

    def _is_applied(self, record: WriteRecord) -> bool | None:
        try:
            return is_applied(self._config.roots, record)
        except (MemorydError, OSError):
            return None

    def _append_state(self, entry: LedgerEntry) -> AppendState:
        try:
            return append_state(self._config.roots, entry)
        except (MemorydError, OSError):
            return AppendState.PENDING

    def _ledger_entries(self) -> Sequence[LedgerEntry]:
        try:
            return stored_ledger(self._config.ledger_path).entries
        except OSError:
            return ()

    def _copy_forgotten(self, options: "CopyOptions") -> "CopyReport":
        from memoryd_server.postgres import CopyReport  # noqa: PLC0415 -- an extra

        report = CopyReport()
        copy = self._copies.forgotten
        missing = copy.missing()
        report.copied = len(missing.files) + len(missing.sessions)
        if missing.problem:
            report.skipped[str(self._config.forgotten_path)] = missing.problem
        if not options.dry_run:
            copy.into_database()
            left = copy.missing()
            report.verified = report.copied
            report.mismatched += [*left.files, *left.sessions]
        return report

    def _copy_history(self, options: "CopyOptions") -> "CopyReport":
        from memoryd_server.postgres import HistoryCopy  # noqa: PLC0415 -- an extra

        path = self._config.history_path
        try:
            with open_stored_history(path, in_use=self._in_use) as history:
                settled = replace(history, records=lambda first: self._settled(history, first))
                return HistoryCopy(self._copies.documents, settled, self._since_ms).into_database(options)
        except StoredFileUnusable as error:
            return _skipped({str(path): f"was not copied: {error}"})

    def _settled(self, history: StoredHistory, first: int) -> Iterator[WriteRecord]:
        """Yield the records of writes that are in effect, also of those that a crash interrupted."""
        for record in history.records(first):
            if record.is_done or self._is_applied(record):
                yield replace(record, is_done=True)

    def _copy_append_keys(self, options: "CopyOptions") -> "CopyReport":
        from memoryd_server.postgres import AppendKeyCopy  # noqa: PLC0415 -- an extra

        path = self._config.ledger_path
        try:
            ledger = stored_ledger(path)
            time_ms = path.stat().st_mtime_ns // 1_000_000 if ledger.entries else 0
        except OSError as error:
            return _skipped({str(path): f"cannot be read: {error.strerror}"})
        states = {entry.key: self._append_state(entry) for entry in ledger.entries if entry.key}
        done = [entry for entry in ledger.entries if states.get(entry.key) is AppendState.DONE]
        report = AppendKeyCopy(self._copies.documents, done, time_ms).into_database(options)
        for entry in ledger.entries:
            if states.get(entry.key) is AppendState.PENDING:
                report.skipped[f"the key {entry.key}"] = _UNKNOWN_APPEND.format(path=entry.path)
        if ledger.unreadable:
            words = f"{ledger.unreadable} of its lines cannot be read; retries of their appends are written again"
            report.skipped[str(path)] = words
        return report

    def _copy_vectors(self, options: "CopyOptions") -> "CopyReport":
        path = stored_cache_path(self._config.index_path)
        return self._copy_cache(path, open_stored_cache(path, in_use=self._in_use), options, any_equal=False)

    def _copy_index_vectors(self, options: "CopyOptions") -> "CopyReport":
        """Copy the vectors that the cache does not have, because its file was limited, disabled or removed."""
        if options.dry_run:
            # Most of them are in the cache, which was not copied either.
            return _skipped({})
        path = stored_index_path(self._config.index_path)
        cache = stored_cache_path(self._config.index_path)
        vectors = open_index_vectors(path, cache, self._now_ms, in_use=self._in_use)
        return self._copy_cache(path, vectors, options, any_equal=True)

    def _copy_cache(
        self, path: Path, source: AbstractContextManager[StoredCache], options: "CopyOptions", *, any_equal: bool
    ) -> "CopyReport":
        from memoryd_server.postgres import CacheCopy  # noqa: PLC0415 -- an extra

        try:
            with source as cache:
                if cache.count and not self._has_cache:
                    return _skipped({str(path): _NO_CACHE.format(count=cache.count)})
                return CacheCopy(self._copies.documents, cache, any_equal=any_equal).into_database(options)
        except StoredFileUnusable as error:
            return _skipped({str(path): f"{error}; texts without a vector in the database are embedded again"})

    def _copy_provider_records(self, options: "CopyOptions") -> "CopyReport":
        from memoryd_server.postgres import ProviderRecordCopy  # noqa: PLC0415 -- an extra

        path = stored_cache_path(self._config.index_path)
        try:
            with open_stored_cache(path, in_use=self._in_use) as cache:
                return ProviderRecordCopy(self._copies.documents, cache).into_database(options)
        except StoredFileUnusable as error:
            return _skipped({str(path): str(error)})

    def _copy_files(self, options: "CopyOptions") -> "CopyReport":
        workspace = Path(self.workspace)
        if workspace.exists():
            report = self._copies.files.into_database(options)
        elif any(path.exists() for path in (stored_index_path(self._config.index_path), self._config.ledger_path)):
            report = _skipped({self.workspace: "the workspace does not exist, so no memory files were copied"})
        else:
            report = _skipped({})
        report.skipped |= dict.fromkeys(self._config.roots.extras(), _EXTRA_PATH)
        return report

    def _copy_transcripts(self, options: "CopyOptions") -> "CopyReport":
        report, config = _skipped({}), self._config
        if self._copies.transcripts is None:
            return report
        folder = config.sessions_folder
        if folder.is_dir():
            report = self._copies.transcripts.into_database(options)
            archives = list_archives(folder, config.agent_id)
            report.skipped |= {archive.parts[-1]: _ARCHIVE for archive in archives}
        found, _ = discover_sessions(str(config.session_database), config.agent_id, str(folder))
        report.skipped |= {file.path: _SESSION for file in found.files}
        report.skipped |= {failure.path: failure.error for failure in found.failures}
        return report


def _skipped(reasons: Mapping[str, str]) -> "CopyReport":
    from memoryd_server.postgres import CopyReport  # noqa: PLC0415 -- an extra

    return CopyReport(skipped=dict(reasons))
