"""`memoryd doctor` on a socket: which users can open it, and whether a daemon answers."""

import socket

import pytest

from memoryd_server.access import addresses
from memoryd_server.doctor.checks import CheckResult
from memoryd_server.doctor.network import MAX_PATH_BYTES, check_socket

OK, WARNING, FAILED = CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED


@pytest.fixture
def path(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path / "s"


@pytest.fixture
def listening(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o600)
        yield path


def check(path, *verdicts, mentions=""):
    found = list(check_socket(path))
    assert [each.verdict for each in found] == list(verdicts)
    assert any(mentions in f"{each.detail} {each.meaning} {each.advice}" for each in found)


def test_a_socket_with_a_listener_has_no_findings(listening):
    check(listening, OK, mentions="a process listens at")


def test_none_yet_is_well(path):
    check(path, OK, mentions="the daemon creates it")
    check(path.parent / "not" / "there" / "s", OK, mentions="the daemon creates it")


def test_a_socket_left_by_a_killed_daemon_is_reported(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    path.chmod(0o600)
    check(path, WARNING, mentions="replaces it")


def test_a_socket_that_others_can_open_is_reported(listening):
    listening.chmod(0o666)
    check(listening, WARNING, OK, mentions=f"chmod 600 {listening}")


def test_a_folder_that_others_can_write_is_reported(listening):
    listening.parent.chmod(0o777)
    check(listening, WARNING, OK, mentions="replace the daemon's socket")
    listening.parent.chmod(0o1777)
    check(listening, OK)


def test_another_file_at_the_path_has_failed(path):
    path.write_text("")
    check(path, FAILED, mentions="is not a socket")


def test_a_path_that_is_too_long_has_failed(tmp_path):
    check(tmp_path / ("x" * 120), FAILED, mentions="a shorter one")


def test_the_length_is_the_listeners():
    assert MAX_PATH_BYTES == addresses.MOST_SOCKET_PATH_BYTES
