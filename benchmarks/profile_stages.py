"""The stages of a search, of an indexed file and of an appended note: what they are, and the functions that are timed.

The time of a stage is the time spent in its functions, excluding the functions of other stages that they call. The
functions are public ones of memoryd, named as `module:Class.method`. `profile_daemon.py` wraps them, and ends with an
error if one of them does not exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEYWORD, HYBRID = "keyword", "hybrid"
MODES = (KEYWORD, HYBRID)
SIZES = (1_500, 15_000, 100_000)


@dataclass(frozen=True)
class Stage:
    """A stage by its name in the results.

    `title` is its name in the tables, and `description` says what it includes. A stage without `functions` is measured
    in another way, which its description says. Functions of `on_other_threads` run while the thread that waits for them
    is in another function of the stage, so only their CPU time counts. A stage that is `hybrid_only` does not exist
    without an embedding provider.
    """

    name: str
    title: str
    description: str
    functions: tuple[str, ...] = ()
    on_other_threads: tuple[str, ...] = ()
    hybrid_only: bool = False


STAGES = (
    Stage(
        "call",
        "call overhead",
        "The cost of any call, measured with `grpc.health.v1.Health/Check`: the client, the socket, gRPC in both "
        "processes, authorization, the log and the limits. Measured in the daemon without timers.",
    ),
    Stage(
        "start",
        "start of the daemon",
        "The start of the process and a sync of an empty workspace. Measured in a daemon without timers.",
    ),
    Stage(
        "request",
        "request",
        "Converting the request's bytes into the internal request, and validating it.",
        (
            "memoryd_server.rpc.requests:search_request",
            "memoryd_server.rpc.requests:append_request",
            "memoryd_server.agent.requests:SearchRequest.resolve",
            "memoryd_server.agent.requests:AppendRequest.resolve",
        ),
    ),
    Stage(
        "waits",
        "threads and waits",
        "The time that no other stage measures: admission, the opening of the agent, the hand-over to a worker thread "
        "and back, waits for the interpreter lock, and the event loop.",
    ),
    Stage(
        "query_vector",
        "cached query vector",
        "The lookup of the query's vector.",
        ("memoryd_server.agent.query_embedding:QueryEmbedder.known",),
        hybrid_only=True,
    ),
    Stage(
        "snapshot",
        "snapshot and counts",
        "Opening and closing a snapshot of the index, and reading its counts and the model of its vectors.",
        (
            "memoryd_server.sqlite.store:SqliteStore.read",
            "memoryd_server.sqlite.reader:SqliteReader.counts",
            "memoryd_server.sqlite.reader:SqliteReader.vector_identity",
        ),
    ),
    Stage(
        "analysis",
        "analysis of the query",
        "The query's terms and the dates in its text.",
        ("memoryd_server.text.analyzer:Analyzer.query_terms", "memoryd_server.search.dates:dates_in"),
    ),
    Stage(
        "frequencies",
        "keyword: frequencies",
        "The number of chunks in which each term of the query occurs.",
        (
            "memoryd_server.sqlite.reader:SqliteReader.frequencies",
            "memoryd_server.sqlite.reader:SqliteReader.keyword_chunks",
            "memoryd_server.sqlite.reader:SqliteReader.names_containing",
        ),
    ),
    Stage(
        "scores",
        "keyword: scores",
        "The chunks with the best BM25, and the BM25 of chunks that only vector search found.",
        (
            "memoryd_server.sqlite.reader:SqliteReader.keyword_hits",
            "memoryd_server.sqlite.reader:SqliteReader.keyword_scores",
        ),
    ),
    Stage(
        "keyword",
        "keyword: other",
        "The choice of the terms that are searched, and everything else in keyword retrieval.",
        ("memoryd_server.search.keyword:search", "memoryd_server.search.retrieval:keyword_answer"),
    ),
    Stage(
        "vectors",
        "vector retrieval",
        "The nearest chunks, the cosines of chunks that only keyword search found, and the model's typical cosines.",
        (
            "memoryd_server.sqlite.reader:SqliteReader.vector_hits",
            "memoryd_server.sqlite.reader:SqliteReader.cosines",
            "memoryd_server.search.cutoff:scale_of",
        ),
        hybrid_only=True,
    ),
    Stage(
        "fusion",
        "fusion",
        "The fused and adjusted scores of the candidates, and their order.",
        (
            "memoryd_server.search.retrieval:retrieve",
            "memoryd_server.search.ranking:fuse",
            "memoryd_server.search.ranking:rank",
        ),
    ),
    Stage(
        "rows",
        "rows",
        "Reading the texts of candidates and the metadata of their files, of which most are cached.",
        (
            "memoryd_server.sqlite.reader:SqliteReader.chunks",
            "memoryd_server.sqlite.reader:SqliteReader.heads",
        ),
    ),
    Stage(
        "windows",
        "windows",
        "Finding the best window of lines in each of the first candidates.",
        ("memoryd_server.search.windows:window_scores",),
    ),
    Stage(
        "selection",
        "cutoff and neighbours",
        "The cutoff, the effect of adjacent chunks, and merging them into the results.",
        (
            "memoryd_server.search.cutoff:apply_cutoff",
            "memoryd_server.search.neighbours:spread",
            "memoryd_server.search.results:select",
        ),
    ),
    Stage(
        "file_checks",
        "file checks",
        "Checking that the files of the results exist and have not changed since they were indexed.",
        ("memoryd_server.search.file_check:check_files",),
    ),
    Stage(
        "snippets",
        "snippets",
        "The snippets, the words that they contain, and the coverage of the query.",
        ("memoryd_server.search.results:hits", "memoryd_server.search.results:HitRenderer.__init__"),
    ),
    Stage(
        "engine",
        "search engine: other",
        "Everything else of the search on the worker thread: the objects that the stages exchange, and the confidence.",
        (
            "memoryd_server.search.engine:SearchEngine.search",
            "memoryd_server.search.engine:SearchEngine.prepare",
            "memoryd_server.search.engine:SearchEngine.finish",
        ),
    ),
    Stage(
        "state",
        "state and metrics",
        "The degradations and the state of the agent, and the metrics of the search.",
        (
            "memoryd_server.agent.search:IndexSearch.result",
            "memoryd_server.agent.search:SearchResult.measurement",
            "memoryd_server.observe.metrics:Metrics.search_ended",
        ),
    ),
    Stage(
        "answer",
        "answer",
        "Converting the internal answer into a protobuf message, and serializing it.",
        ("memoryd_server.rpc.responses:search_response", "memoryd_server.rpc.responses:append_response"),
    ),
    Stage(
        "file_write",
        "file write",
        "Appending the text to the file, and syncing the file to the disk.",
        ("memoryd_server.writing.append:Appender.append",),
    ),
    Stage(
        "plan",
        "discovery and plan",
        "Finding the files, and comparing them with the rows of the index.",
        (
            "memoryd_server.sync.plan:SyncPlanner.take",
            "memoryd_server.sync.plan:SyncPlanner.discover",
        ),
    ),
    Stage(
        "read",
        "reading the file",
        "Reading the bytes of the file.",
        ("memoryd_server.sources.folder_corpus:FolderCorpus.read",),
    ),
    Stage(
        "chunks",
        "chunks",
        "Parsing the front matter of the file, and dividing the file into chunks.",
        ("memoryd_server.chunk.memory:memory_chunks", "memoryd_server.chunk.front_matter:split_front_matter"),
    ),
    Stage(
        "tokens",
        "tokens",
        "Detecting the language of the file, and computing the tokens of its chunks for the keyword index.",
        ("memoryd_server.store.rows:keyword_tokens", "memoryd_server.store.rows:language_of"),
    ),
    Stage(
        "prepare",
        "preparation: other",
        "The hash of the file, and everything else before its rows are written.",
        ("memoryd_server.sync.prepare:FilePreparer.prepare",),
    ),
    Stage(
        "write",
        "rows and keyword index",
        "Writing the rows, the keyword index and the vectors of unchanged texts, and the commit.",
        (
            "memoryd_server.sqlite.writer:SqliteWriter.write",
            "memoryd_server.sqlite.writer:SqliteWriter.touch",
            "memoryd_server.sqlite.writer:SqliteWriter.record_sync",
        ),
    ),
    Stage(
        "pending",
        "chunks without a vector",
        "Counting and reading the chunks that have no vector, and the estimate of what embedding them costs.",
        (
            "memoryd_server.sqlite.writer:SqliteWriter.pending_chunks",
            "memoryd_server.sqlite.writer:SqliteWriter.count_pending",
            "memoryd_server.sqlite.writer:SqliteWriter.count_chunks",
            "memoryd_server.embedding.embedder:Embedder.price_index",
        ),
        hybrid_only=True,
    ),
    Stage(
        "cache",
        "embedding cache",
        "Looking up and storing vectors in the embedding cache.",
        (
            "memoryd_server.sqlite.embedding_cache:EmbeddingCache.get",
            "memoryd_server.sqlite.embedding_cache:EmbeddingCache.put",
            "memoryd_server.sqlite.embedding_cache:EmbeddingCache.refusals",
            "memoryd_server.sqlite.embedding_cache:EmbeddingCache.add_usage",
        ),
        hybrid_only=True,
    ),
    Stage(
        "provider",
        "provider",
        "The calls to the provider: sending requests, waiting for responses, and decoding their vectors.",
        ("memoryd_server.providers.remote:RemoteProvider.embed_documents",),
        ("memoryd_server.providers.http_client:HttpClient.post", "memoryd_server.vectors:unit"),
        hybrid_only=True,
    ),
    Stage(
        "put_vectors",
        "vectors of the index",
        "Writing the vectors and their mean to the index, and the commits.",
        (
            "memoryd_server.sqlite.writer:SqliteWriter.put_vectors",
            "memoryd_server.sqlite.writer:SqliteWriter.begin_vectors",
            "memoryd_server.sqlite.writer:SqliteWriter.measure_vector_centre",
        ),
        hybrid_only=True,
    ),
    Stage(
        "embedding",
        "embedding: other",
        "Everything else of the embedding run: choosing the texts to send, and recording the state of the vectors.",
        ("memoryd_server.embedding.embedder:Embedder.run",),
        hybrid_only=True,
    ),
    Stage(
        "sync",
        "sync: other",
        "Everything else on the writer thread: the progress of the sync, and the repair and the counts of the index.",
        ("memoryd_server.sync.engine:SyncEngine.run",),
    ),
)

BY_NAME = {stage.name: stage for stage in STAGES}

_SYNC = (
    "plan",
    "read",
    "chunks",
    "tokens",
    "prepare",
    "write",
    "pending",
    "cache",
    "provider",
    "put_vectors",
    "embedding",
    "snapshot",
    "sync",
)


@dataclass(frozen=True)
class Operation:
    """A profiled operation: its name in the results, its title, the name of one unit, and its stages in order."""

    name: str
    title: str
    unit: str
    stages: tuple[str, ...]
    chunks: int = 15_000

    def stages_of(self, mode: str) -> list[str]:
        """Return the stages that exist in this mode."""
        return [name for name in self.stages if mode == HYBRID or not BY_NAME[name].hybrid_only]


_SEARCH = (
    "call",
    "request",
    "waits",
    "query_vector",
    "snapshot",
    "analysis",
    "frequencies",
    "scores",
    "keyword",
    "vectors",
    "fusion",
    "rows",
    "windows",
    "selection",
    "file_checks",
    "snippets",
    "engine",
    "state",
    "answer",
)

SEARCHES = tuple(Operation(f"search_{size}", f"Search of {size:,} chunks", "search", _SEARCH, size) for size in SIZES)
FIRST_INDEX = Operation(
    "first_index", "First index of 10,000 files of 1.5 KB", "file", ("start", "waits", *_SYNC), 10_000
)
CHANGED_FILE = Operation(
    "changed_file", "Sync of 15,000 chunks after one file of ten chunks changed", "sync", ("waits", *_SYNC)
)
APPENDED_NOTE = Operation(
    "appended_note",
    "MemoryAppend of a line to an index of 15,000 chunks",
    "call",
    ("call", "request", "waits", "file_write", *_SYNC, "answer"),
)
OPERATIONS = (*SEARCHES, FIRST_INDEX, CHANGED_FILE, APPENDED_NOTE)
# Parts with many callers, and the number of reader processes (`memoryd.readers`) of the daemon that they call.
LOADS = {"load": 0, "load_readers": 2}

# The targets of the figures, by operation and mode. `cpu_seconds` and `peak_rss_mib` are totals of the first index.
TARGETS: dict[str, dict[str, float]] = {
    "search_1500/hybrid": {"p50_ms": 2.5},
    "search_15000/keyword": {"p50_ms": 2.2, "cpu_ms": 2.0},
    "search_15000/hybrid": {"p50_ms": 4.0, "cpu_ms": 3.5},
    "search_100000/keyword": {"p99_ms": 15.0},
    "first_index/hybrid": {"cpu_seconds": 7.0, "peak_rss_mib": 150.0},
    "load_readers/keyword": {"searches_per_second": 800.0},
    "load_readers/hybrid": {"searches_per_second": 450.0},
}
# How much the sum of the stages may differ from the total, which is measured without timers; a share of the total.
# Other work of the machine makes wall times less repeatable than CPU times.
TOLERANCES = {"wall_ms": 0.25, "cpu_ms": 0.15}


def differences(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return how much the sum of an operation's stages differs from its total, as a share of the total."""
    return {key: sum(stage[key] for stage in figures["stages"].values()) / figures[key] - 1 for key in TOLERANCES}


def adds_up(figures: Mapping[str, Any]) -> bool:
    """Return whether the sum of the stages is within the tolerances."""
    return all(abs(share) <= TOLERANCES[key] for key, share in differences(figures).items())


def met(runs: Mapping[str, Any]) -> dict[str, dict[str, bool]]:
    """Return which targets the measured runs meet: more is better for a rate, less for everything else."""
    found = {}
    for run, targets in TARGETS.items():
        part, _, mode = run.partition("/")
        if mode in runs.get(part, {}):
            figures = runs[part][mode]
            found[run] = {
                key: figures[key] >= target if key.endswith("per_second") else figures[key] <= target
                for key, target in targets.items()
            }
    return found
