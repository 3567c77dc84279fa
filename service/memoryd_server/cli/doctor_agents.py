"""The part of `memoryd doctor` that explains what Status tells of an agent."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from memoryd import messages
from memoryd_server.observe.doctor import Check, failure, warning, well

# Of each kind of degradation: what it means, and what to do.
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "VECTOR_LEG_SKIPPED": (
        "keywords alone answer",
        "mend what the reason names; where no vectors are wanted, set memorySearch.provider: none",
    ),
    "EMBEDDING_FALLBACK": (
        "the provider of memorySearch.fallback makes the vectors and embeds questions",
        "mend the configured provider; then restart, or memoryd index --force",
    ),
    "BACKEND_FALLBACK": (
        "memoryd's own index answers in the place of qmd, or nobody does where memoryd.qmdFallback is none",
        "mend qmd; docs/qmd.md says how",
    ),
    "VECTOR_EXTENSION_MISSING": (
        "sqlite-vec did not load; the same results are found without it",
        "nothing, or memorySearch.store.vector.enabled: false to be told no more",
    ),
    "FULLTEXT_MISSING": ("words cannot be searched", "run memoryd index --force, and look at the daemon's log"),
    "IDENTITY_MISMATCH": (
        "the index was built otherwise than the settings say now, and answers as it is, its vectors aside",
        "run memoryd index; where it waits for a yes to the price: memoryd index --force",
    ),
    "INDEX_IMPAIRED": (
        "something stands in for a whole index of the newest state",
        "do what the reason says; memoryd index --force builds it anew",
    ),
    "SOURCE_SKIPPED": (
        "a source is not searched; what is indexed of a folder that is away is kept and not shown",
        "mount or create the folder; where it is gone for good, take it out of the settings",
    ),
    "DEADLINE_CUT": ("a search ended before it had seen everything", "allow calls more time"),
    "WATCHER_IMPAIRED": (
        "changes are found by comparing the files, within a minute",
        "docs/operations.md, Disk and watches, says what each reason needs",
    ),
    "VECTORS_PENDING": (
        "some chunks are found by keywords alone",
        "wait for the sync, or do what the reason says",
    ),
}
_UNKNOWN = ("this version of the command does not know it", "use the command of the daemon's version")

# What a search asks of each watched root.
_UNWATCHED = frozenset({messages.WatcherMode.WATCHER_MODE_DEAD})


def check_agent(answer: messages.StatusResponse) -> Iterator[Check]:
    """Everything that an agent's status tells."""
    name = f"memory of {answer.agent_id}"
    yield from _index(name, answer)
    yield from _embedding(name, answer)
    yield from _watching(name, answer)
    for each in answer.degradations:
        kind = messages.DegradationKind.Name(each.kind).removeprefix("DEGRADATION_KIND_")
        yield warning(name, f"{kind}: {each.reason or 'no reason is told'}", *_EXPLAINED.get(kind, _UNKNOWN))
    for issue in answer.source_issues:
        means, advice = _EXPLAINED["SOURCE_SKIPPED"]
        yield warning(name, issue, means, advice)
    for failed in answer.failed_files:
        means = "this file is not found by searches; the others are"
        yield warning(name, f"{failed.path}: {failed.error}", means, "mend the file; the next sync takes it up")
    if answer.qmd.configured:
        yield _qmd(name, answer.qmd)


def _index(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    index = answer.index
    if answer.fulltext.available:
        detail = f"{index.files} files, {index.chunks} chunks, revision {index.revision}, {index.size_bytes:,} bytes"
        yield well(name, detail)
    else:
        means = "searches of this agent fail"
        yield failure(
            name, answer.fulltext.error or "the keyword leg does not answer", means, "run memoryd index --force"
        )
    if index.dirty:
        means = "they are not found, or as they were before"
        advice = "wait for the sync, or run memoryd index; memoryd status tells why one failed"
        yield warning(name, f"{index.pending_files} files are not indexed yet", means, advice)


def _embedding(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    embedding = answer.embedding
    if not embedding.provider:
        asked = embedding.requested_provider or "auto"
        if asked in {"auto", "none"}:
            yield well(name, f"no embedding provider ({asked}): keywords alone answer, and nothing leaves the machine")
        return
    who = f"{embedding.provider} {embedding.model}".strip()
    if not embedding.HasField("probe"):
        yield well(name, f"{who}; not asked")
    elif embedding.probe.ok:
        yield well(name, f"{who} answers in {embedding.probe.elapsed.ToMilliseconds()} ms")
    else:
        means = "questions are answered by keywords, and new chunks wait for their vectors"
        advice = "look at its address, its key and its quota; docs/embedding.md says where each comes from"
        yield failure(name, f"{who} does not answer: {embedding.probe.error or 'no reason is told'}", means, advice)
    if answer.batch.enabled and answer.batch.last_error:
        means = "chunks are sent to the provider directly instead, which costs more"
        yield warning(name, f"batch jobs: {answer.batch.last_error}", means, "look at the provider's console")


def _watching(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    for each in answer.watchers:
        mode = messages.WatcherMode.Name(each.mode).removeprefix("WATCHER_MODE_").lower()
        if each.mode in _UNWATCHED:
            means = "changes are found by the reconcile pass alone, within a minute"
            advice = "create the folder, or restart the daemon if it is there"
            yield warning(name, f"nothing watches {each.root}: {each.reason or mode}", means, advice)
        else:
            yield well(name, f"{each.root} is watched: {mode}{f', {each.reason}' if each.reason else ''}")


def _qmd(name: str, qmd: messages.QmdStatus) -> Check:
    if qmd.available:
        return well(name, f"qmd {qmd.version} answers")
    means = "memoryd's own index answers in its place, unless memoryd.qmdFallback is none"
    return warning(
        name, f"qmd does not answer: {qmd.reason or 'no reason is told'}", means, "docs/qmd.md says what it needs"
    )


def last_sync_of(answer: messages.StatusResponse) -> datetime | None:
    """When the agent's last sync completed, by the clock of that day."""
    if not answer.index.HasField("last_sync_time"):
        return None
    return answer.index.last_sync_time.ToDatetime(tzinfo=UTC)
