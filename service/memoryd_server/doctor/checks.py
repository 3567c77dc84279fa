"""Check; tokens, certificates, libraries.

What a check of `memoryd doctor` finds: what is so, what that means for the memory, and what to do about it.

Checks of who may call over TCP: tokens, and the certificates that callers are shown.

Checks of the libraries that search: SQLite with its full text, and sqlite-vec.
"""

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
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `meaning` and `advice` are empty when all is well, and never where it is not."""

    name: str
    verdict: CheckResult
    detail: str
    meaning: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not CheckResult.OK and not (self.detail and self.meaning and self.advice):
            raise ValueError(f"the check {self.name!r} finds fault and does not say what that means or what to do")


def well(name: str, detail: str) -> Check:
    """All is well."""
    return Check(name, CheckResult.OK, detail)


def warning(name: str, detail: str, meaning: str, advice: str) -> Check:
    """The memory works, and something about it is less than it could be, or soon will be."""
    return Check(name, CheckResult.WARNING, detail, meaning, advice)


def failure(name: str, detail: str, meaning: str, advice: str) -> Check:
    """Something does not work."""
    return Check(name, CheckResult.FAILED, detail, meaning, advice)


_SOON = timedelta(days=14)


def check_tokens(files: TokenFiles, now: datetime) -> Iterator[Check]:
    """Whether the tokens' files can be used, and whether a token in them can."""
    name = "tokens"
    try:
        records = TokenStore(files.store).read()
        plain = _plain_count(files)
    except MemorydError as error:
        means = "its tokens are refused, and a daemon that is to listen on TCP does not start"
        yield failure(name, error.message, means, "mend the file, or make its tokens anew: memoryd token new")
        return
    expired = [record.token_id for record in records if record.expired(now)]
    good = plain + len(records) - len(expired)
    if not good and expired:
        yield warning(
            name, "every token has expired", "all callers over TCP are refused", "make one: memoryd token new"
        )
    elif not good:
        yield well(name, "none yet; the first is made when a daemon listens on TCP")
    else:
        yield well(name, f"{good} in force")
    if good and expired:
        means = "callers that show them are refused with TOKEN_INVALID"
        advice = "give their callers new ones, and remove those that are not needed: memoryd token revoke ID"
        yield warning(name, f"{len(expired)} expired: {', '.join(expired)}", means, advice)


def _plain_count(files: TokenFiles) -> int:
    try:
        return len(read_tokens(files.plain))
    except FileNotFoundError:
        return 0


def check_certificates(files: CertificateFiles, now: datetime) -> Check:
    """Whether the certificate and its key can serve, and for how long."""
    name = "certificate"
    try:
        read_certificates(files)
        end = certificate_validity(files).until
    except MemorydError as error:
        means = "the daemon does not start with it; one that runs goes on with what it had"
        return failure(name, error.message, means, "mend memoryd.tls, or renew the certificate")
    detail = f"{files.certificate} is good until {end:%Y-%m-%d}"
    advice = "renew it; a daemon that runs takes the new one by itself"
    if end <= now:
        return failure(name, f"{files.certificate} was good until {end:%Y-%m-%d}", "clients refuse to connect", advice)
    if end - now < _SOON:
        return warning(name, detail, "clients will refuse to connect from then on", advice)
    return well(name, detail)


# Without threads SQLite would have to be asked from one thread alone.
_NEEDED = ("THREADSAFE=1", "ENABLE_FTS5")


def check_keyword_engine(version: str, options: Sequence[str], probe: Callable[[], None]) -> Check:
    """Whether SQLite can build and search a keyword table; `probe` does so and raises when it cannot."""
    name, advice = "SQLite", "install apsw from its published wheels"
    missing = [option for option in _NEEDED if option not in options]
    if missing:
        means = "the index cannot be kept"
        return failure(name, f"{version}, compiled without {', '.join(missing)}", means, advice)
    try:
        probe()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        return failure(name, f"{version}: {error}", "words cannot be searched", advice)
    return well(name, f"{version} ({', '.join(_NEEDED)}), FTS5 answers")


def check_vector_engine(version: str, load_error: str | None) -> Check:
    """Return whether sqlite-vec loads and computes right distances."""
    if load_error is None:
        return well("sqlite-vec", f"{version}, computes known distances")
    return warning(
        "sqlite-vec",
        load_error,
        "memoryd compares the vectors on disk itself: the same results, but other calls wait longer",
        "install sqlite-vec for this platform, or set memorySearch.store.vector.enabled: false to be told no more",
    )
