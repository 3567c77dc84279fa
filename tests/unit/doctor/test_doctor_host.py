"""What `memoryd doctor` says of the machine, and that it never finds fault without saying what to do."""

import os
import resource
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from memoryd_server.doctor import host
from memoryd_server.doctor.checks import Check, CheckResult, check_keyword_engine, check_vector_engine
from memoryd_server.doctor.host import (
    InotifyUse,
    check_clock,
    check_descriptors,
    check_inotify,
    check_state_dir,
    check_workspace,
    inotify_use,
)

OK, WARNING, FAILED = CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def verdicts(checks):
    return [check.verdict for check in checks]


def bad(checks):
    return [check for check in checks if check.verdict is not OK]


def mounts(tmp_path, kind, point):
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / {point} rw - {kind} host:/x rw\n")
    return table


@pytest.mark.parametrize("verdict", [WARNING, FAILED])
@pytest.mark.parametrize("told", [("", "m", "a"), ("d", "", "a"), ("d", "m", "")])
def test_nothing_finds_fault_without_saying_what_that_means_and_what_to_do(verdict, told):
    with pytest.raises(ValueError, match="no detail, meaning or advice"):
        Check("x", verdict, *told)


# The state directory


def test_a_good_state_directory(tmp_path):
    tmp_path.chmod(0o700)
    assert set(verdicts(check_state_dir(tmp_path))) == {OK}


def test_a_state_directory_that_is_not_there_yet_is_judged_by_where_it_will_be(tmp_path):
    assert set(verdicts(check_state_dir(tmp_path / "a" / "b"))) == {OK}


def test_a_state_directory_that_others_can_write_is_told(tmp_path):
    tmp_path.chmod(0o777)
    (check,) = bad(check_state_dir(tmp_path))
    assert (check.verdict, "0777" in check.detail, f"chmod 700 {tmp_path}") == (WARNING, True, check.advice)


def test_a_state_directory_that_is_a_file_has_failed(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert verdicts(check_state_dir(file)) == [FAILED]


def test_a_disk_with_no_room_or_no_room_for_files_is_told(tmp_path):
    room = {
        "disk_usage": lambda _: SimpleNamespace(free=2**20),
        "statvfs": lambda _: SimpleNamespace(f_files=1_000_000, f_favail=3),
    }
    space, files = bad(check_state_dir(tmp_path, **room))
    assert ("1 MiB" in space.detail, "room for 3 more files" in files.detail) == (True, True)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "virtiofs"])
def test_a_state_directory_on_another_machine_is_told(tmp_path, kind):
    folder = tmp_path / "state"
    folder.mkdir()
    (check,) = bad(check_state_dir(folder, mounts(tmp_path, kind, folder)))
    assert (kind in check.detail, "rollback journal" in check.meaning, "local disk" in check.advice) == (True,) * 3


# A workspace


def test_a_workspace_that_is_there_is_well(tmp_path):
    assert verdicts(check_workspace("main", tmp_path)) == [OK]


def test_a_workspace_that_is_away_or_on_another_machine_is_told(tmp_path):
    (away,) = check_workspace("main", tmp_path / "absent")
    assert (away.verdict, "does not exist" in away.detail) == (WARNING, True)
    (remote,) = bad(check_workspace("main", tmp_path, mounts(tmp_path, "nfs", tmp_path)))
    assert "comparing the files" in remote.meaning


@pytest.mark.parametrize(("refused", "verdict"), [(os.R_OK | os.X_OK, FAILED), (os.W_OK, WARNING)])
def test_a_workspace_that_cannot_be_read_or_written_is_told(tmp_path, refused, verdict):
    (check,) = check_workspace("main", tmp_path, access=lambda _, mode: mode != refused)
    assert check.verdict is verdict


# inotify


def proc(tmp_path, watches=1_000_000, instances=128):
    """A /proc with these limits and no process."""
    limits = tmp_path / "sys/fs/inotify"
    limits.mkdir(parents=True)
    (limits / "max_user_watches").write_text(f"{watches}\n")
    (limits / "max_user_instances").write_text(f"{instances}\n")
    return tmp_path


def test_what_is_taken_of_inotify_is_counted(tmp_path):
    own = tmp_path / "4242"
    (own / "fd").mkdir(parents=True)
    (own / "fdinfo").mkdir()
    (own / "fd" / "7").symlink_to("anon_inode:inotify")
    (own / "fdinfo" / "7").write_text("pos:\t0\ninotify wd:2 ino:1 sdev:1\ninotify wd:1 ino:2 sdev:1\n")
    (own / "fd" / "8").symlink_to("/etc/hosts")
    (own / "fdinfo" / "8").write_text("pos:\t0\n")
    (tmp_path / "self").mkdir()
    assert inotify_use(tmp_path) == InotifyUse(1, 2)


def test_the_real_kernel_is_asked():
    checks = list(check_inotify())
    assert {check.name for check in checks} == {"inotify"}
    use = inotify_use()
    assert use.watches >= 0
    assert use.instances >= 0


def test_enough_of_inotify_is_well(tmp_path):
    assert verdicts(check_inotify(proc(tmp_path))) == [OK, OK]


def test_limits_that_are_low_or_nearly_taken_are_told_with_the_command_that_raises_them(tmp_path, monkeypatch):
    low = proc(tmp_path, watches=1024)
    (check,) = bad(check_inotify(low))
    assert (check.verdict, "sysctl fs.inotify.max_user_watches=16384" in check.advice) == (WARNING, True)
    monkeypatch.setattr(host, "inotify_use", lambda _: InotifyUse(110, 5))
    taken = bad(check_inotify(low))
    assert ["max_user_watches" in taken[0].detail, "110 of 128 instances" in taken[1].detail] == [True, True]


def test_a_system_without_inotify_is_told(tmp_path):
    (check,) = check_inotify(tmp_path)
    assert (check.verdict, "comparing" in check.meaning) == (WARNING, True)


# Limits and the clock


@pytest.mark.parametrize(
    ("hard", "agents", "verdict"), [(1024, 10, OK), (1024, 1000, WARNING), (resource.RLIM_INFINITY, 10_000, OK)]
)
def test_open_files_must_do_for_all_agents(hard, agents, verdict):
    check = check_descriptors(agents, hard)
    assert check.verdict is verdict
    assert verdict is OK or "LimitNOFILE=" in check.advice


@pytest.mark.parametrize(
    ("now", "newest", "verdict"),
    [
        (NOW, None, OK),
        (NOW, NOW - timedelta(days=400), OK),
        (NOW, NOW + timedelta(seconds=30), OK),
        (NOW, NOW + timedelta(hours=1), WARNING),
        (datetime(1970, 1, 1, tzinfo=UTC), None, WARNING),
    ],
)
def test_a_clock_that_cannot_be_right_is_told(now, newest, verdict):
    check = check_clock(now, newest)
    assert check.verdict is verdict
    assert verdict is OK or "NTP" in check.advice


# The engines

OPTIONS = ("THREADSAFE=1", "ENABLE_FTS5", "ENABLE_JSON1")


def broken():
    raise LookupError("no rank")


@pytest.mark.parametrize(
    ("options", "probe", "verdict", "told"),
    [
        (OPTIONS, lambda: None, OK, "FTS5 works"),
        (OPTIONS, broken, FAILED, "no rank"),
        (("THREADSAFE=0", "ENABLE_FTS5"), lambda: None, FAILED, "THREADSAFE=1"),
        (("THREADSAFE=1",), lambda: None, FAILED, "ENABLE_FTS5"),
    ],
)
def test_sqlite_must_have_what_the_index_needs(options, probe, verdict, told):
    check = check_keyword_engine("3.50.0", options, probe)
    assert (check.verdict, told in check.detail) == (verdict, True)


def test_without_sqlite_vec_the_memory_works():
    assert check_vector_engine("v0.1.6", None).verdict is OK
    check = check_vector_engine("", "OSError: no such file")
    assert (check.verdict, "results are the same" in check.meaning) == (WARNING, True)
