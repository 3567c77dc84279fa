"""Damaged files that were set aside are found by `memoryd doctor`, so that somebody looks at the disk."""

import pytest

from deep_folders import MORE_THAN_RECURSION, deep_folders
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


@pytest.mark.attacks
def test_folders_of_any_depth_below_the_state_directory_do_not_stop_the_search(tmp_path):
    (tmp_path / "main.sqlite.damaged-20260101T000000Z").touch()
    with deep_folders(tmp_path, MORE_THAN_RECURSION):
        assert len(list(check_set_aside(tmp_path))) == 1


def test_a_state_directory_without_any_or_not_there_is_no_news(tmp_path):
    assert list(check_set_aside(tmp_path)) == []
    assert list(check_set_aside(tmp_path / "absent")) == []
