"""Checks of who may call over TCP: tokens, and the certificates that callers are shown."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from memoryd_server.access import CertificateFiles, TokenFiles, TokenStore, read_certificates, read_tokens
from memoryd_server.access.validity import validity
from memoryd_server.errors import MemorydError
from memoryd_server.observe.doctor import Check, Verdict

_SOON = timedelta(days=14)


def check_tokens(files: TokenFiles, now: datetime) -> Iterator[Check]:
    """Whether the tokens' files can be used, and whether a token in them can."""
    name = "tokens"
    try:
        records = TokenStore(files.store).read()
        plain = _plain_count(files)
    except MemorydError as error:
        yield Check(name, Verdict.FAILED, error.message, "until then callers over TCP are refused")
        return
    expired = [record.token_id for record in records if record.expired(now)]
    good = plain + len(records) - len(expired)
    if not good and expired:
        yield Check(name, Verdict.WARNING, "every token has expired", "make one: memoryd token new")
    elif not good:
        yield Check(name, Verdict.OK, "none yet; the first is made when a daemon listens on TCP")
    else:
        yield Check(name, Verdict.OK, f"{good} in force")
    if good and expired:
        advice = "remove those that are not needed: memoryd token revoke ID"
        yield Check(name, Verdict.WARNING, f"{len(expired)} expired: {', '.join(expired)}", advice)


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
        end = validity(files).until
    except MemorydError as error:
        return Check(name, Verdict.FAILED, error.message, "mend memoryd.tls, or renew the certificate")
    detail = f"{files.certificate} is good until {end:%Y-%m-%d}"
    if end - now < _SOON:
        return Check(name, Verdict.WARNING, detail, "renew it; a daemon that runs takes the new one by itself")
    return Check(name, Verdict.OK, detail)
