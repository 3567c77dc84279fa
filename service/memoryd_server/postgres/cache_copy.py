"""CacheCopy: copies an embedding cache into the database, so that no provider is asked for its vectors again."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from memoryd_server.postgres.agent_database import AgentDatabase, AgentRows
from memoryd_server.postgres.copy_report import CopyOptions, CopyReport
from memoryd_server.postgres.errors import bounded, storable
from memoryd_server.store import CachedVector, CacheKey, RefusedText, StoredBatchJob, StoredCache, StoredUsage

_KEY: Final = "provider = %(provider)s AND model = %(model)s AND provider_key = %(provider_key)s"

_HASHES = f"""SELECT hash, sha256(embedding) FROM cached_vectors
    WHERE agent_id = %(agent)s AND {_KEY} AND hash = ANY(%(hashes)s)"""  # noqa: S608 -- a constant
_ADD_VECTORS = """INSERT INTO cached_vectors(agent_id, provider, model, provider_key, hash, embedding, used_at_ms)
    SELECT %(agent)s, %(provider)s, %(model)s, %(provider_key)s, hash, embedding, used
    FROM unnest(%(hashes)s::bytea[], %(vectors)s::bytea[], %(used)s::bigint[]) AS t(hash, embedding, used)
    ON CONFLICT DO NOTHING"""
_REFUSED = "SELECT provider, model, provider_key, hash FROM refused_texts WHERE agent_id = %(agent)s"
_ADD_REFUSED = """INSERT INTO refused_texts(agent_id, provider, model, provider_key, hash, reason, refused_at_ms)
    VALUES(%(agent)s, %(provider)s, %(model)s, %(provider_key)s, %(hash)s, %(reason)s, %(time)s)
    ON CONFLICT DO NOTHING"""
_USAGE = "SELECT provider, model, calls, tokens, retries, cache_hits FROM provider_usage WHERE agent_id = %(agent)s"
_ADD_USAGE = """INSERT INTO provider_usage(agent_id, provider, model, calls, tokens, retries, cache_hits)
    VALUES(%(agent)s, %(provider)s, %(model)s, %(calls)s, %(tokens)s, %(retries)s, %(hits)s) ON CONFLICT DO NOTHING"""
_JOBS = "SELECT name FROM batch_jobs WHERE agent_id = %(agent)s"
_ADD_JOB = """INSERT INTO batch_jobs(agent_id, name, provider, model, provider_key, job_id, texts, begun_at_ms, attempt)
    VALUES(%(agent)s, %(name)s, %(provider)s, %(model)s, %(provider_key)s, %(job_id)s, %(texts)s, %(begun)s,
        %(attempt)s) ON CONFLICT DO NOTHING"""
_ADD_JOB_TEXTS = """INSERT INTO batch_texts(agent_id, name, hash)
    SELECT %(agent)s, %(name)s, hash FROM unnest(%(hashes)s::bytea[]) AS t(hash) ON CONFLICT DO NOTHING"""


class CacheCopy:
    """Copies the vectors of one agent's embedding cache. Blocks.

    The database keeps a vector that differs. With `any_equal`, it counts as equal: a provider may return another one
    each time.
    """

    def __init__(self, documents: AgentDatabase, source: StoredCache, *, any_equal: bool = False) -> None:
        self._documents = documents
        self._source = source
        self._any_equal = any_equal

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy the missing vectors, then compare all.

        Raises:
            IndexUnavailable, IndexBusy, IndexReadOnly, DiskFull: the database cannot be used. Repeat the copy.
        """
        report = CopyReport()
        done = 0
        for key, batch, stored in self._pairs():
            missing = [each for each in batch if each.hash not in stored]
            differing = [each for each in batch if each.hash in stored and not self._is_equal(each, stored)]
            report.conflicts += map(_name, differing)
            report.equal += len(batch) - len(missing) - len(differing)
            if missing and not options.dry_run:
                self._add(key, missing)
            report.copied += len(missing)
            report.copied_bytes += sum(len(each.vector) for each in missing)
            done += len(batch)
            options.progress(done, self._source.count)
        if not options.dry_run:
            self._verify(report)
        return report

    def _is_equal(self, vector: CachedVector, stored: Mapping[bytes, bytes]) -> bool:
        found = stored.get(vector.hash)
        return found is not None and (self._any_equal or found == sha256(vector.vector).digest())

    def _pairs(self) -> Iterator[tuple[CacheKey, list[CachedVector], dict[bytes, bytes]]]:
        """Yield some vectors at a time, with the SHA-256 of those that the database has."""
        for key, batch in self._source.vectors():
            with self._documents.read() as rows:
                found = rows.all(_HASHES, **_values(key), hashes=[each.hash for each in batch])
            yield key, batch, dict(found)

    def _add(self, key: CacheKey, vectors: Sequence[CachedVector]) -> None:
        with self._documents.write() as rows:
            rows.run(
                _ADD_VECTORS,
                **_values(key),
                hashes=[each.hash for each in vectors],
                vectors=[each.vector for each in vectors],
                used=[each.used_at_ms for each in vectors],
            )

    def _verify(self, report: CopyReport) -> None:
        kept = set(report.conflicts)
        for _, batch, stored in self._pairs():
            compared = [each for each in batch if _name(each) not in kept]
            report.verified += len(compared)
            report.mismatched += [_name(each) for each in compared if not self._is_equal(each, stored)]


class ProviderRecordCopy:
    """Copies the texts that providers refused, the totals of their usage, and running batch jobs. Blocks.

    The database keeps what it has. Totals that have continued there count as equal.
    """

    def __init__(self, documents: AgentDatabase, source: StoredCache) -> None:
        self._documents = documents
        self._source = source

    def into_database(self, options: CopyOptions) -> CopyReport:
        """Copy what is missing, then compare all. Raises as `CacheCopy.into_database`."""
        report = CopyReport()
        with self._documents.read() as rows:
            missing = _Missing.of(rows, self._source, report)
        report.equal = _count(self._source) - missing.count - len(report.conflicts)
        report.copied = missing.count
        if options.dry_run:
            return report
        if missing.count:
            with self._documents.write() as rows:
                missing.add(rows)
        with self._documents.read() as rows:
            left = _Missing.of(rows, self._source, CopyReport())
        report.verified = _count(self._source) - len(report.conflicts)
        report.mismatched += left.names()
        return report


class _Missing:
    """What the database does not have."""

    def __init__(self, refused: list[RefusedText], usage: list[StoredUsage], jobs: list[StoredBatchJob]) -> None:
        self._refused = refused
        self._usage = usage
        self._jobs = jobs
        self.count = len(refused) + len(usage) + len(jobs)

    @classmethod
    def of(cls, rows: AgentRows, source: StoredCache, report: CopyReport) -> "_Missing":
        refused = {tuple(row) for row in rows.all(_REFUSED)}
        usage = {(row[0], row[1]): row[2:] for row in rows.all(_USAGE)}
        jobs = {row[0] for row in rows.all(_JOBS)}
        new_usage: list[StoredUsage] = []
        for each in source.usage:
            stored = usage.get((bounded(each.provider), bounded(each.model)))
            if stored is None:
                new_usage.append(each)
            elif any(now < before for now, before in zip(stored, each.counts, strict=True)):
                report.conflicts.append(_usage_name(each))
        return cls(
            [each for each in source.refused if (*_values(each.key).values(), each.hash) not in refused],
            new_usage,
            [each for each in source.jobs if each.job.name not in jobs],
        )

    def add(self, rows: AgentRows) -> None:
        for text in self._refused:
            values = {"hash": text.hash, "reason": storable(text.reason), "time": text.refused_at_ms}
            rows.run(_ADD_REFUSED, **_values(text.key), **values)
        for total in self._usage:
            calls, tokens, retries, hits = total.counts
            names = {"provider": bounded(total.provider), "model": bounded(total.model)}
            rows.run(_ADD_USAGE, **names, calls=calls, tokens=tokens, retries=retries, hits=hits)
        for each in self._jobs:
            job = each.job
            values = {"job_id": job.job_id, "texts": job.texts, "begun": job.begun_at_ms, "attempt": job.attempt}
            rows.run(_ADD_JOB, **_values(each.key), **values, name=job.name)
            rows.run(_ADD_JOB_TEXTS, name=job.name, hashes=list(each.hashes))

    def names(self) -> list[str]:
        return [
            *(f"the refused text {each.hash.hex()}" for each in self._refused),
            *map(_usage_name, self._usage),
            *(f"the batch job {each.job.name}" for each in self._jobs),
        ]


def _values(key: CacheKey) -> dict[str, str]:
    return {"provider": bounded(key.provider), "model": bounded(key.model), "provider_key": bounded(key.provider_key)}


def _count(source: StoredCache) -> int:
    return len(source.refused) + len(source.usage) + len(source.jobs)


def _name(vector: CachedVector) -> str:
    return f"the vector of the text {vector.hash.hex()}"


def _usage_name(usage: StoredUsage) -> str:
    return f"the usage of {usage.provider} {usage.model}"
