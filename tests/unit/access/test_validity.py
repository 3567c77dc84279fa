from datetime import UTC, datetime, timedelta

import pytest

from certificates import Authority, needs_openssl
from memoryd_server.access.certificates import CertificateFiles, certificate_validity
from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenFiles
from memoryd_server.doctor.checks import check_certificates, check_tokens
from memoryd_server.errors import SettingsError

NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@needs_openssl
def test_the_end_of_a_certificate_and_its_names_are_known(authority):
    found = certificate_validity(CertificateFiles(*authority.issue("a", days=30)))
    assert abs(found.until - (datetime.now(UTC) + timedelta(days=30))) < timedelta(minutes=5)
    assert found.names == ("localhost", "memory.example", "127.0.0.1")


@needs_openssl
def test_an_expired_certificate_is_reported(authority):
    with pytest.raises(SettingsError, match="expired"):
        certificate_validity(CertificateFiles(*authority.issue("a", days=-1)))


@needs_openssl
@pytest.mark.parametrize(("days", "verdict"), [(-1, "failed"), (3, "warning"), (90, "ok")])
def test_doctor_reports_how_long_a_certificate_is_good_for(authority, days, verdict):
    assert check_certificates(CertificateFiles(*authority.issue("a", days=days)), NOW).verdict == verdict


@needs_openssl
def test_doctor_reports_a_key_that_others_can_read(authority):
    certificate, key = authority.issue("a")
    key.chmod(0o604)
    check = check_certificates(CertificateFiles(certificate, key), NOW)
    assert (check.verdict, "chmod 600" in check.detail) == ("failed", True)


@pytest.mark.parametrize(
    ("ages", "verdicts"),
    [([], ["ok"]), ([1], ["ok"]), ([-1], ["warning"]), ([-1, 1], ["ok", "warning"])],
)
def test_doctor_counts_the_tokens_in_force(tmp_path, ages, verdicts):
    files = TokenFiles.in_state_dir(tmp_path, None)
    for age in ages:
        TokenStore(files.store).add("", None, NOW - timedelta(days=9), NOW + timedelta(days=age))
    assert [check.verdict for check in check_tokens(files, NOW)] == verdicts


def test_doctor_reports_a_token_store_that_others_can_read(tmp_path):
    files = TokenFiles.in_state_dir(tmp_path, None)
    TokenStore(files.store).add("", None, NOW, None)
    files.store.chmod(0o640)
    (check,) = check_tokens(files, NOW)
    assert (check.verdict, "chmod 600" in check.detail) == ("failed", True)
