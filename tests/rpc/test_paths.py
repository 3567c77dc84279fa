"""The files and functions that a search and a sync pass through, in order: few enough to be read in one sitting.

A profile function records every call of a function of memoryd on any thread. A hop is a hand-over to another file; an
added layer shows up here as another file, and a hop that is no longer taken as a failure of the order.
"""

import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

import memoryd_server
from rpc.wire import by_meaning
from waiting import eventually

SERVICE = Path(memoryd_server.__file__).parent

# Limits of the files entered, which are as many as there are today. Lower one when a change makes it possible.
FILES_OF_SEARCH = 54
FILES_OF_NEW_QUERY = 64
FILES_UNTIL_SEARCHABLE = 44
FILES_OF_VECTORS = 24

# The health check, which may run during a trace.
UNRELATED = {"rpc/health.py", "background_tasks.py"}

SEARCH = """
rpc/interceptors.py CallInterceptor._served
rpc/authorization.py Authorizer.admit
rpc/memory_service.py MemoryService.MemorySearch
agent/agents.py Agents.use
rpc/requests.py search_request
agent/agent.py Agent.search
agent/search.py IndexSearch.search
agent/embedding.py AgentEmbedding.query_vector
search/engine.py SearchEngine.search
sqlite/store.py SqliteStore.read
search/retrieval.py retrieve
sqlite/reader.py SqliteReader.keyword_hits
sqlite/vector_index.py VectorIndex.search
search/ranking.py rank
search/results.py hits
rpc/responses.py search_response
"""
# While the provider makes the query's vector, the keyword search runs.
NEW_QUERY = SEARCH.replace("sqlite/reader.py SqliteReader.keyword_hits\n", "")
EARLY_KEYWORDS = """
agent/embedding.py AgentEmbedding.query_vector
search/engine.py SearchEngine.search_keywords
sqlite/reader.py SqliteReader.keyword_hits
search/engine.py SearchEngine.search
"""
QUERY_VECTOR = """
agent/embedding.py AgentEmbedding.query_vector
providers/remote.py RemoteProvider.embed_query
providers/http_client.py HttpClient.post
search/engine.py SearchEngine.search
"""
CHANGED_FILE = """
sources/inotify.py InotifyWatch.on_event
sources/watcher.py Watcher._handle_event
agent/background.py BackgroundSync.note_change
agent/coordinator.py SyncCoordinator.start
threads.py SerialExecutor.submit
sync/engine.py SyncEngine.run
sqlite/store.py SqliteStore.on_sound_index
sync/plan.py SyncPlanner.take
sources/discover.py discover_files
sync/plan.py make_plan
sync/executor.py PlanExecutor.run
sync/prepare.py FilePreparer.prepare
sources/files.py read_file
chunk/memory.py memory_chunks
chunk/annotations.py split_annotations
chunk/markdown.py indexable_chunks
text/analyzer.py Analyzer.index_tokens
sqlite/writer.py SqliteWriter.write
sqlite/resident.py ResidentIndex.apply
"""
VECTORS = """
embedding/embedder.py Embedder.run
embedding/run.py EmbeddingRun.run
sqlite/embedding_cache.py EmbeddingCache.get
embedding/text_embedder.py TextEmbedder.embed
providers/remote.py RemoteProvider.embed_documents
providers/batching.py embed_in_batches
providers/http_client.py HttpClient.post
sqlite/vector_rows.py VectorSetWriter.put_vectors
"""


class Call(NamedTuple):
    """A function that was entered, with its file below the package, on a thread."""

    file: str
    function: str
    thread: int


class Recorder:
    """Records calls while it is `on`. It is the profile function of every thread that starts after it."""

    def __init__(self):
        self.on = False
        self.calls = []

    def __call__(self, frame, event, _):
        if self.on and event == "call" and frame.f_code.co_filename.startswith(f"{SERVICE}/"):
            file = str(Path(frame.f_code.co_filename).relative_to(SERVICE))
            self.calls.append(Call(file, frame.f_code.co_qualname, threading.get_ident()))

    def stop(self):
        """Stops recording, and returns the calls."""
        self.on, calls, self.calls = False, self.calls, []
        return calls


pytestmark = pytest.mark.sqlite_only("the files and functions of the SQLite driver are listed and counted")


@pytest.fixture
def recorder():
    recorder, before = Recorder(), sys.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    yield recorder
    sys.setprofile(before)
    threading.setprofile(None)


@pytest.fixture
async def running(recorder, serve, home, provider):
    """A daemon that started after the recorder, so that all its threads are recorded."""
    home.write(a="# Harbour\n\na crane lifts containers\n")
    return await serve(by_meaning(provider))


def check_order(calls, hops):
    """Each of `hops` was entered after the one before it."""
    entered = [f"{call.file} {call.function}" for call in calls]
    at = 0
    for hop in hops.split("\n")[1:-1]:
        assert hop in entered[at:], f"{hop} was not entered{' in this order' if hop in entered else ''}"
        at = entered.index(hop, at)


def check_files(calls, most):
    files = sorted({call.file for call in calls} - UNRELATED)
    assert len(files) <= most, f"{len(files)} files were entered: {', '.join(files)}"


async def search(running, recorder, query):
    recorder.on = True
    answer = await running.search(query)
    calls = recorder.stop()
    assert answer.results
    return calls


async def test_search_with_a_remembered_query_vector(running, recorder):
    await running.synced()
    await running.search("the harbour crane")
    calls = await search(running, recorder, "the harbour crane")
    check_order(calls, SEARCH)
    check_files(calls, FILES_OF_SEARCH)


async def test_search_with_a_new_query(running, recorder):
    await running.synced()
    await running.search("the harbour crane")
    calls = await search(running, recorder, "containers of the harbour")
    check_order(calls, NEW_QUERY)
    check_order(calls, EARLY_KEYWORDS)
    check_order(calls, QUERY_VECTOR)
    check_files(calls, FILES_OF_NEW_QUERY)


def until(calls, function):
    """The calls up to the first one of `function` on its thread; all calls of other threads."""
    thread = next(call.thread for call in calls if call.function == function)
    own = [call for call in calls if call.thread == thread]
    end = next(call for call in own if call.function == function)
    return calls[: calls.index(end)]


@pytest.fixture
async def changed_file(recorder, serve, home, provider):
    """The calls of a sync that a changed file started, from the event of its watcher to the end of its run."""
    home.write(a="# Harbour\n\na crane lifts containers\n")
    settings = by_meaning(provider, sync={"watchDebounceMs": 50})
    running = await serve(settings, background=True)
    index = running.memory().index

    async def written(**files):
        revision = index.monitor.current.revision
        home.write(**files)
        await eventually(lambda: index.monitor.current.revision > revision and index.coordinator.active is None)

    await eventually(lambda: index.monitor.current.files == 1 and index.coordinator.active is None)
    await written(b="# Pier\n\ngulls circle\n")
    recorder.on = True
    await written(b="# Pier\n\nherons circle over the pier\n")
    return recorder.stop()


async def test_a_changed_file_until_it_is_searchable(changed_file):
    calls = until(changed_file, "Embedder.run")
    check_order(calls, CHANGED_FILE)
    check_files(calls, FILES_UNTIL_SEARCHABLE)


async def test_vectors_of_a_changed_file(changed_file):
    began = len(until(changed_file, "Embedder.run"))
    threads = {call.thread for call in changed_file if call.function in {"Embedder.run", "HttpClient.post"}}
    calls = [call for call in changed_file[began:] if call.thread in threads]
    last = max(at for at, call in enumerate(calls) if call.function == "VectorSetWriter.put_vectors")
    check_order(calls[: last + 1], VECTORS)
    check_files(calls[: last + 1], FILES_OF_VECTORS)
