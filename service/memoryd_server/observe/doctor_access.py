"""Checks of who may call over TCP: tokens, and the certificates that callers are shown."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from memoryd_server.access import CertificateFiles, TokenFiles, TokenStore, read_certificates, read_tokens
from memoryd_server.access.validity import validity
from memoryd_server.errors import MemorydError
from memoryd_server.observe.doctor import Check, failure, warning, well

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
        end = validity(files).until
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
