"""Compare what a database holds, after kills, with the writes that its clients had acknowledged.

`rows` is a function that returns the rows of a query of the superuser, who sees all agents.
"""

from grpc import StatusCode

from e2e.daemon_fixture import last_event
from e2e.store_workers import Appender, Inserter, Recorder, Replacer, writes
from memoryd.messages import SEARCH_MODE_KEYWORD, SYNC_MODE_FULL

OWN = "agent_id = 'main' AND generation = (SELECT generation FROM agents WHERE agent_id = 'main')"


def check_writes(workers, rows, *, other_versions=()):
    """Check that each acknowledged write is stored once, and that nothing else is, except some other edits."""
    documents = {path: bytes(content).decode() for path, content in rows("SELECT path, content FROM documents")}
    for path, appenders in by_path(workers).items():
        lines = documents[path].split("\n")
        taken = set()
        for appender in appenders:
            for number, (first, last) in enumerate(appender.done):
                assert "\n".join(lines[first - 1 : last]) == appender.text(number)
                assert taken.isdisjoint(range(first, last + 1))
                taken.update(range(first, last + 1))
        # Only the empty string behind the last line break is left.
        assert len(lines) == len(taken) + 1
    shared = documents["memory/shared.md"].split()
    inserters = [worker for worker in workers if isinstance(worker, Inserter)]
    assert sorted(shared) == sorted(each.word(number) for each in inserters for number in range(len(each.done)))
    for replacer in (worker for worker in workers if isinstance(worker, Replacer)):
        assert documents[f"memory/{replacer.label}.md"] == replacer.content(len(replacer.done) - 1)
    versions = [version for worker in workers if isinstance(worker, Inserter | Replacer) for version in worker.done]
    stored = [row[0] for row in rows("SELECT version_id FROM history_records")]
    assert sorted(stored) == sorted([*versions, *other_versions])
    for recorder in (worker for worker in workers if isinstance(worker, Recorder)):
        parts = rows("SELECT data FROM transcript_parts WHERE name = %s ORDER BY first_byte", f"{recorder.label}.jsonl")
        lines = b"".join(bytes(data) for (data,) in parts).decode().splitlines()
        assert [recorder.word(number) in line for number, line in enumerate(lines)] == [True] * len(recorder.done)


def by_path(workers):
    found = {}
    for worker in workers:
        if isinstance(worker, Appender):
            found.setdefault(worker.path, []).append(worker)
    return found


def check_index(connection, rows, workers):
    """Check that the index has all documents and words, and is that of a rebuild."""
    assert last_event(connection).failed_files == 0
    stored = rows("SELECT path, sha256 FROM documents ORDER BY path")
    query = f"SELECT path, hash FROM files WHERE {OWN} AND source = 'memory' AND error IS NULL ORDER BY path"
    assert rows(query) == stored
    terms = {term for (term,) in rows(f"SELECT term FROM postings WHERE {OWN}")}
    for worker in workers:
        if isinstance(worker, Appender | Inserter | Recorder):
            assert {worker.word(number) for number in range(len(worker.done))} <= terms
            last = worker.word(len(worker.done) - 1)
            hits = connection.search(query=last, mode=SEARCH_MODE_KEYWORD).results
            assert any(last in hit.snippet for hit in hits), last
    check_counts(rows)
    chunks = chunks_of(rows)
    assert last_event(connection, mode=SYNC_MODE_FULL).failed_files == 0
    assert chunks_of(rows) == chunks
    check_counts(rows)


def chunks_of(rows):
    names = "source, path, start_line, end_line, text"
    return rows(
        f"SELECT {names} FROM chunks JOIN files USING (agent_id, generation) WHERE {OWN} AND file_id = files.id"
        f" ORDER BY {names}"
    )


def check_counts(rows):
    """Check the counts of the index, and that no row belongs to a chunk or file that does not exist."""
    counted = f"SELECT (SELECT count(*) FROM chunks WHERE {OWN}), (SELECT sum(token_count) FROM chunks WHERE {OWN})"
    assert rows(f"SELECT chunk_count, token_count FROM generations WHERE {OWN}") == rows(counted)
    assert rows(f"SELECT sum(chunk_count) FROM files WHERE {OWN}") == [rows(counted)[0][:1]]
    for table in ("postings", "vectors"):
        assert not rows(f"""SELECT chunk_id FROM {table} WHERE {OWN}
            AND chunk_id NOT IN (SELECT id FROM chunks WHERE {OWN}) LIMIT 1""")
    assert not rows(f"SELECT id FROM chunks WHERE {OWN} AND file_id NOT IN (SELECT id FROM files WHERE {OWN}) LIMIT 1")
    same = f"SELECT file_id, start_line, end_line, text FROM chunks WHERE {OWN}"
    assert not rows(f"{same} GROUP BY file_id, start_line, end_line, text HAVING count(*) > 1")


def print_report(workers):
    """Print the figures of a test, which pytest shows with `-s` or `-rP`."""
    slowest = max(workers, key=lambda worker: worker.longest_seconds)
    failures = sum(len(worker.failures) for worker in workers)
    print(  # noqa: T201
        f"{writes(workers)} writes; longest gap of a client {slowest.longest_seconds:.1f} s"
        f" ({type(slowest).__name__}); {failures} repeated calls"
    )


def check_failures(workers):
    """Check that each failed call could be repeated, and that its error said when."""
    for worker in workers:
        for failure in worker.failures:
            assert failure.code == StatusCode.UNAVAILABLE, failure
            assert failure.retry_after_seconds, failure
