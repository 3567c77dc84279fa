"""One turn of a gateway that uses memoryd. The client finds the daemon by the environment.

python clients/python/examples/gateway/gateway.py "how do we roll back a release?"
"""

import sys

from progress import Bar

from memoryd.client import MemorydClient, MemorydError, connect
from memoryd.messages import EmptyReason, FlushReason, SearchResult, SyncProgress

QUESTION = "what was decided lately?"
# The number of tokens in the context after the last turn, as counted by the gateway.
CONTEXT_TOKENS = 178_500


def ensure_sync(client: MemorydClient) -> None:
    """Sync the index with the files, and show the progress."""
    with Bar("indexing") as bar, client.sync() as events:
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "progress":
                bar.show(done_share(event.progress), event.progress.current_path)
            elif kind == "file_failed":
                bar.note(f"cannot index {event.file_failed.path}: {event.file_failed.error}")
            elif kind == "completed":
                bar.show(1.0, f"{event.completed.indexed_files} files indexed")


def done_share(progress: SyncProgress) -> float:
    """Return the completed share of a run, 0 to 1."""
    return progress.completed_files / progress.total_files if progress.total_files else 0.0


def recall(client: MemorydClient, question: str) -> SearchResult | None:
    """Search, print the results, and return the best one."""
    answer = client.search(query=question, max_results=3)
    for result in answer.results:
        print(f"found   {result.path}:{result.start_line}  {first_line(result.snippet)}")
    if not answer.results:
        print(f"found   nothing: {EmptyReason.Name(answer.info.empty_reason).removeprefix('EMPTY_REASON_')}")
    return answer.results[0] if answer.results else None


def read(client: MemorydClient, result: SearchResult) -> None:
    """Read the lines of a result."""
    lines = result.end_line - result.start_line + 1
    answer = client.get(path=result.path, start_line=result.start_line, line_count=lines)
    print(f"read    {answer.path}, lines {answer.start_line} to {answer.end_line} of {answer.total_lines}")


def decide_flush(client: MemorydClient) -> None:
    """Ask whether the agent should write notes before its context is compacted."""
    decision = client.flush_decision(total_tokens=CONTEXT_TOKENS)
    reason = FlushReason.Name(decision.reason).removeprefix("FLUSH_REASON_")
    print(f"flush   {'yes' if decision.flush else 'no'}, {reason}: {decision.remaining_tokens} tokens to go")


def remember(client: MemorydClient, text: str) -> int | None:
    """Append a line to today's log, and return the index revision that contains it."""
    done = client.append(text=f"- {text}")
    print(f"wrote   {done.path}, line {done.end_line}")
    return done.index_revision if done.HasField("index_revision") else None


def find_again(client: MemorydClient, text: str, revision: int | None) -> bool:
    """Search for the line in an index that contains it."""
    answer = client.search(query=text, min_revision=revision)
    found = any(text in result.snippet for result in answer.results)
    print(f"again   {'found' if found else 'not found'} at revision {answer.info.index_revision}")
    return found


def first_line(snippet: str) -> str:
    """Return the first line of a snippet that is not a heading, or else its heading."""
    lines = [line for line in snippet.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("#")), "".join(lines[:1]))


def main() -> int:
    """Run one turn, and return the exit status."""
    question = sys.argv[1] if len(sys.argv) > 1 else QUESTION
    try:
        with connect() as client:
            ensure_sync(client)
            best = recall(client, question)
            if best is not None:
                read(client, best)
            decide_flush(client)
            text = f"somebody asked: {question}"
            return 0 if find_again(client, text, remember(client, text)) else 1
    except MemorydError as error:
        print(f"memoryd: {error}", file=sys.stderr)
        return 1


sys.exit(main())
