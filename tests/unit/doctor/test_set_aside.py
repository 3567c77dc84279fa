"""Damaged files that were set aside are found by `memoryd doctor`, so that somebody looks at the disk."""

from memoryd_server.doctor.checks import CheckResult
from memoryd_server.doctor.host import check_set_aside


def test_each_damaged_file_is_reported_with_what_to_do(tmp_path):
    (tmp_path / "memory").mkdir()
    asides = ("main.sqlite.damaged-20260101T000000Z", "main.embeddings.sqlite.damaged-20260102T000000Z")
    for name in ("main.sqlite", *asides):
        (tmp_path / "memory" / name).write_bytes(b"")
    checks = list(check_set_aside(tmp_path))
    assert [check.verdict for check in checks] == [CheckResult.WARNING] * 2
    assert all("may be deleted" in check.advice for check in checks)
    assert "main.embeddings.sqlite.damaged-20260102T000000Z" in checks[0].detail


def test_a_state_directory_without_any_or_not_there_is_no_news(tmp_path):
    assert list(check_set_aside(tmp_path)) == []
    assert list(check_set_aside(tmp_path / "absent")) == []
