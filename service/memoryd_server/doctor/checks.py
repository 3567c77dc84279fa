"""Check, the result of one check; and the checks of tokens, certificates, SQLite and sqlite-vec."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from memoryd_server.access import (
    CertificateFiles,
    TokenFiles,
    TokenStore,
    certificate_validity,
    read_certificates,
    read_tokens,
)
from memoryd_server.errors import MemorydError


class CheckResult(StrEnum):
    """The verdict of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: the finding, its meaning for the memory, and what to do about it.

    `meaning` and `advice` are empty if and only if the verdict is OK.
    """

    name: str
    verdict: CheckResult
    detail: str
    meaning: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not CheckResult.OK and not (self.detail and self.meaning and self.advice):
            raise ValueError(f"the check {self.name!r} is not OK and has no detail, meaning or advice")


def well(name: str, detail: str) -> Check:
    """Return a check that found no problem."""
    return Check(name, CheckResult.OK, detail)


def warning(name: str, detail: str, meaning: str, advice: str) -> Check:
    """Return a check that found a problem with which the memory still works, or one that is near."""
    return Check(name, CheckResult.WARNING, detail, meaning, advice)


def failure(name: str, detail: str, meaning: str, advice: str) -> Check:
    """Return a check that found something that does not work."""
    return Check(name, CheckResult.FAILED, detail, meaning, advice)


_SOON = timedelta(days=14)


def check_tokens(files: TokenFiles, now: datetime) -> Iterator[Check]:
    """Check that the token files can be read, and that they contain a token that has not expired."""
    name = "tokens"
    try:
        records = TokenStore(files.store).read()
        plain = _count_plain_tokens(files)
    except MemorydError as error:
        means = "its tokens are refused, and a daemon that listens on TCP does not start"
        yield failure(name, error.message, means, "repair the file, or create new tokens: memoryd token new")
        return
    expired = [record.token_id for record in records if record.expired(now)]
    valid = plain + len(records) - len(expired)
    if not valid and expired:
        yield warning(
            name, "every token has expired", "all callers over TCP are refused", "create one: memoryd token new"
        )
    elif not valid:
        yield well(name, "none yet; a daemon that listens on TCP creates the first")
    else:
        yield well(name, f"{valid} in force")
    if valid and expired:
        means = "callers that use them are refused with TOKEN_INVALID"
        advice = "give their callers new ones, and remove those that are not needed: memoryd token revoke ID"
        yield warning(name, f"{len(expired)} expired: {', '.join(expired)}", means, advice)


def _count_plain_tokens(files: TokenFiles) -> int:
    try:
        return len(read_tokens(files.plain))
    except FileNotFoundError:
        return 0


def check_certificates(files: CertificateFiles, now: datetime) -> Check:
    """Check that the certificate and its key can be used, and when the certificate expires."""
    name = "certificate"
    try:
        read_certificates(files)
        end = certificate_validity(files).until
    except MemorydError as error:
        means = "the daemon does not start with it; a running daemon keeps its old certificate"
        return failure(name, error.message, means, "correct memoryd.tls, or renew the certificate")
    detail = f"{files.certificate} is valid until {end:%Y-%m-%d}"
    advice = "renew it; a running daemon loads the new one by itself"
    if end <= now:
        detail = f"{files.certificate} expired on {end:%Y-%m-%d}"
        return failure(name, detail, "clients refuse to connect", advice)
    if end - now < _SOON:
        return warning(name, detail, "clients will refuse to connect from then on", advice)
    return well(name, detail)


# Without THREADSAFE, SQLite could only be called from one thread.
_REQUIRED_OPTIONS = ("THREADSAFE=1", "ENABLE_FTS5")


def check_keyword_engine(version: str, options: Sequence[str], probe: Callable[[], None]) -> Check:
    """Check that SQLite can build and search a keyword table; `probe` does so, and raises if it fails."""
    name, advice = "SQLite", "install apsw from its published wheels"
    missing = [option for option in _REQUIRED_OPTIONS if option not in options]
    if missing:
        means = "memoryd cannot use its index"
        return failure(name, f"{version}, compiled without {', '.join(missing)}", means, advice)
    try:
        probe()
    except Exception as error:  # noqa: BLE001 -- any exception is the finding
        return failure(name, f"{version}: {error}", "keyword search fails", advice)
    return well(name, f"{version} ({', '.join(_REQUIRED_OPTIONS)}), FTS5 works")


def check_vector_engine(version: str, load_error: str | None) -> Check:
    """Check that sqlite-vec loads and computes correct distances."""
    if load_error is None:
        return well("sqlite-vec", f"{version}, computes correct distances")
    return warning(
        "sqlite-vec",
        load_error,
        "memoryd compares vectors on disk without it: the results are the same, but concurrent calls wait longer",
        "install sqlite-vec for this platform, or set memory.search.store.vector.enabled: false to hide this warning",
    )
