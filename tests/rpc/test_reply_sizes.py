"""Every reply fits gRPC's 4 MiB, whatever it holds."""

from dataclasses import replace

import pytest

from memoryd_server.agent import Deadline, ServiceInfo, SettingsReport
from memoryd_server.agent.state import IndexSnapshot, IndexUpdate
from memoryd_server.agent.sync_run import RunCompleted, SyncEvent, VectorReport
from memoryd_server.entries.memory import EntryForgetResult, RecallResult
from memoryd_server.entries.model import Entry, EntryCategory, EntryPage, RememberAction, RememberResult, ScoredEntry
from memoryd_server.model import Degradation, DegradationKind, FileFailure, Source
from memoryd_server.rpc import entry_service, responses
from memoryd_server.rpc.status_response import status_response
from memoryd_server.rpc.wire import MOST_REPORT_BYTES
from memoryd_server.search.query import Hit
from memoryd_server.sources.watch_scope import WatchedRoot, WatcherMode
from memoryd_server.sync.progress import SyncOutcome

pytestmark = pytest.mark.attacks

FOUR_MIB = 4 * 2**20
PATH = "/".join(["x" * 250] * 15)
LONG = "\U00010348" * 50_000
ISSUES = tuple(f"{number} {PATH}" for number in range(5_000))
ROOTS = tuple(WatchedRoot(PATH, WatcherMode.POLLING, LONG) for _ in range(1_000))


@pytest.fixture
async def status(serve, home):
    """The status of an agent."""
    home.write(a="the heron")
    running = await serve()
    return await running.memory().status(Deadline.after(None, 30.0))


def with_problems(found):
    """The status with as many problems as can be, each with a text as long as can be."""
    failures = tuple(FileFailure(PATH, Source.MEMORY, LONG) for _ in range(5_000))
    index = replace(found.index, issues=ISSUES, failed_files=failures)
    return replace(found, index=index, watched_roots=ROOTS, degradations=MANY)


def test_status_of_an_agent_with_thousands_of_problems_fits_a_message(status):
    settings = SettingsReport(1, 1, LONG, (), ISSUES)
    service = ServiceInfo(1, lambda: ISSUES, settings=lambda: settings, background_failures=lambda _: ISSUES)
    response = status_response(with_problems(status), service)
    assert response.ByteSize() < FOUR_MIB
    failures = response.service.background_failures
    for shown in (response.source_issues, response.service.settings_warnings, failures):
        assert shown[0] == ISSUES[0]
        assert shown[-1] == f"… and {5_000 - len(shown) + 1:,} more"
    assert response.watchers
    assert response.degradations


def test_events_of_a_stream_with_thousands_of_problems_fit_a_message():
    update = IndexUpdate(1, IndexSnapshot(), None, ROOTS, heartbeat=False)
    assert responses.watch_response("main", update).ByteSize() < FOUR_MIB
    failure = SyncEvent("id", 1, 1, FileFailure(PATH, Source.MEMORY, LONG))
    assert responses.sync_response(failure).ByteSize() < FOUR_MIB
    completed = RunCompleted(SyncOutcome(1), 1.0, VectorReport(degradations=MANY))
    assert responses.sync_response(SyncEvent("id", 1, 1, completed)).ByteSize() < FOUR_MIB


def test_longest_hits_fit_a_message():
    hit = Hit(PATH, Source.MEMORY, 1, 2, 0.5, "\U00010348" * 4_000, 1, 2, 1)
    assert 50 * responses.search_result(hit, explain=True).ByteSize() + MOST_REPORT_BYTES < FOUR_MIB


def entries(count, size=128 * 1024):
    """Entries of texts as long as can be stored."""
    return tuple(Entry(f"{n:032}", "\U00010348" * (size // 4), 0.5, EntryCategory.FACT, n) for n in range(count))


def scored(count, size=128 * 1024):
    return tuple(ScoredEntry(entry, 0.5) for entry in entries(count, size))


MANY = tuple(Degradation(DegradationKind.INDEX_IMPAIRED, "w" * 2_000, "u" * 2_000, "r" * 2_000) for _ in range(1_000))

ENTRY_REPLIES = {
    "recalled": lambda: entry_service.recalled(RecallResult(scored(50), MANY)),
    "recalled, of another program": lambda: entry_service.recalled(RecallResult(scored(5, 2**23), ())),
    "block": lambda: entry_service.block(RecallResult(scored(3, 2**20), MANY)),
    "forgotten": lambda: entry_service.forgotten(EntryForgetResult(None, scored(5, 2**22), MANY)),
    "deleted": lambda: entry_service.forgotten(EntryForgetResult(entries(1, 2**23)[0], (), MANY)),
    "remembered": lambda: entry_service.remembered(
        RememberResult(RememberAction.DUPLICATE, entries(1, 2**23)[0], 0.9), MANY
    ),
    "listed": lambda: entry_service.listed(EntryPage(entries(100), 100, more=True)),
    "listed, of another program": lambda: entry_service.listed(EntryPage(entries(2, 2**23), 2, more=False)),
}


@pytest.mark.parametrize("make", ENTRY_REPLIES.values(), ids=ENTRY_REPLIES)
def test_reply_of_the_entry_service_fits_a_message(make):
    assert make().ByteSize() < FOUR_MIB


def test_recalled_entries_are_the_best_ones_that_fit():
    response = entry_service.recalled(RecallResult(scored(50), ()))
    # 1 MiB holds seven texts of 128 KiB with their ids.
    assert [found.entry.create_time.nanos for found in response.entries] == [n * 1_000_000 for n in range(7)]
