"""One command to its end: what it printed, and nothing of it left."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from child_processes import pids_of
from memoryd_server.qmd import guard_script
from memoryd_server.qmd.process import Command, CommandRun, ExitKind, ProcessGuard
from waiting import wait_until

PATIENCE = 20
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}


@pytest.fixture
def guard():
    guard = ProcessGuard()
    yield guard
    guard.close()


def guard_pid():
    """The process of the only guard; None while there is none."""
    found = pids_of(guard_script.__file__)
    assert len(found) <= 1
    return next(iter(found), None)


@pytest.fixture
def started(tmp_path):
    """The ids that the commands of a test wrote down."""
    return tmp_path / "pids"


def script(text, *arguments):
    return [sys.executable, "-S", "-c", textwrap.dedent(text), *map(str, arguments)]


def invocation(command, tmp_path, *, seconds=PATIENCE, max_bytes=None, environment=ENVIRONMENT):
    return Command(command, environment, str(tmp_path), seconds, max_bytes)


def pids(file, count=1):
    """Waits until so many ids are written."""

    def written():
        found = file.read_text().split() if file.exists() else []
        return [int(each) for each in found] if len(found) >= count else None

    return wait_until(written, PATIENCE)


def is_gone(pid):
    """Whether the process has ended; one that nobody has reaped yet counts, where its new parent is not ours."""
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE and process.ppid() != os.getpid()
    except psutil.NoSuchProcess:
        return True


def check_gone(processes, seconds=2.0):
    wait_until(lambda: all(is_gone(pid) for pid in processes), seconds)


# Writes its own id and that of a child which ignores SIGTERM and holds both pipes, then does as told.
STUBBORN = """
    import os, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if not child:
        time.sleep(600)
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()} {child} ")
    if sys.argv[2] == "stay":
        time.sleep(600)
    print("done", flush=True)
"""


def test_output_is_returned_with_the_exit_code(guard, tmp_path):
    command = script("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    done = CommandRun(invocation(command, tmp_path), guard).run()
    assert (done.ending, done.code, done.stdout, done.stderr) == (ExitKind.EXITED, 3, "out\n", "err\n")
    assert 0 < done.elapsed_seconds < PATIENCE


def test_the_command_gets_its_environment_and_folder_and_nothing_else(guard, tmp_path):
    command = script("import os, sys; print(sorted(os.environ)); print(os.getcwd()); print(repr(sys.stdin.read()))")
    done = CommandRun(invocation(command, tmp_path), guard).run()
    names, folder, stdin = done.stdout.splitlines()
    assert set(eval(names)) <= {*ENVIRONMENT, "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert (folder, stdin) == (str(tmp_path), "''")


def test_arguments_arrive_as_they_are(guard, tmp_path):
    odd = ["a b", "$HOME", "'; exit 7", "日本語", '"', "-n", "*"]
    done = CommandRun(invocation([*script("import sys; print(sys.argv[1:])"), *odd], tmp_path), guard).run()
    assert eval(done.stdout) == odd


def test_both_pipes_are_read_as_they_fill(guard, tmp_path):
    command = script("""
        import sys
        for n in range(400):
            sys.stderr.write("e" * 10_000); sys.stdout.write("o" * 10_000)
        sys.stderr.write("last")
    """)
    done = CommandRun(invocation(command, tmp_path, max_bytes=10_000_000), guard).run()
    assert (done.ending, len(done.stdout)) == (ExitKind.EXITED, 4_000_000)
    assert len(done.stderr) == 65_536
    assert done.stderr.endswith("last")


def test_too_much_is_cut_off_at_once(guard, tmp_path):
    command = script("import sys\nwhile True: sys.stdout.write('x' * 100_000)")
    began = time.monotonic()
    done = CommandRun(invocation(command, tmp_path, max_bytes=1_000_000), guard).run()
    assert done.ending is ExitKind.OVERFLOWED
    assert len(done.stdout) == 1_000_000
    assert time.monotonic() - began < PATIENCE / 2


def test_without_a_limit_the_tail_is_kept(guard, tmp_path):
    command = script("import sys; sys.stdout.write('x' * 5_000_000 + 'end')")
    done = CommandRun(invocation(command, tmp_path), guard).run()
    assert (done.ending, len(done.stdout), done.stdout[-3:]) == (ExitKind.EXITED, 65_536, "end")


def test_invalid_utf8_is_replaced(guard, tmp_path):
    done = CommandRun(invocation(script("import os; os.write(1, b'a\\xff\\xfeb')"), tmp_path), guard).run()
    assert done.stdout == "a��b"


def test_a_signal_is_a_negative_code(guard, tmp_path):
    done = CommandRun(invocation(script("import os; os.kill(os.getpid(), 11)"), tmp_path), guard).run()
    assert (done.ending, done.code) == (ExitKind.EXITED, -signal.SIGSEGV)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["time", "cancel"])
def test_a_command_that_hangs_ends_with_its_whole_group(guard, tmp_path, started, how):
    run = CommandRun(
        invocation(script(STUBBORN, started, "stay"), tmp_path, seconds=1.5 if how == "time" else 60), guard
    )
    results = []
    thread = threading.Thread(target=lambda: results.append(run.run()))
    thread.start()
    group = pids(started, 2)
    if how == "cancel":
        run.cancel()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert results[0].ending is (ExitKind.TIMED_OUT if how == "time" else ExitKind.CANCELLED)
    check_gone(group)


def test_a_grandchild_that_holds_the_pipes_is_not_waited_for(guard, tmp_path, started):
    began = time.monotonic()
    done = CommandRun(invocation(script(STUBBORN, started, "go"), tmp_path, seconds=60), guard).run()
    assert (done.ending, done.code, done.stdout) == (ExitKind.EXITED, 0, "done\n")
    assert time.monotonic() - began < PATIENCE / 2
    check_gone(pids(started, 2))


def test_a_grandchild_that_left_the_group_does_not_hold_us_up(guard, tmp_path, started):
    command = script(
        """
        import os, sys, time
        if not os.fork():
            os.setsid()
            with open(sys.argv[1], "a") as file:
                file.write(f"{os.getpid()} ")
            time.sleep(600)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        print("done")
        """,
        started,
    )
    began = time.monotonic()
    done = CommandRun(invocation(command, tmp_path, seconds=60), guard).run()
    assert done.stdout == "done\n"
    assert time.monotonic() - began < PATIENCE / 2
    os.kill(pids(started)[0], signal.SIGKILL)


def test_a_run_that_is_cancelled_before_it_began_starts_nothing(guard, tmp_path, started):
    run = CommandRun(invocation(script(STUBBORN, started, "stay"), tmp_path), guard)
    run.cancel()
    assert run.run().ending is ExitKind.CANCELLED
    assert not started.exists()
    run.cancel()


def test_runs_leave_no_descriptor_and_no_zombie(guard, tmp_path):
    command = ["/bin/sh", "-c", "echo x; echo y >&2"]
    CommandRun(invocation(command, tmp_path), guard).run()
    process = psutil.Process()
    before = process.num_fds()
    for _ in range(50):
        assert CommandRun(invocation(command, tmp_path), guard).run().stdout == "x\n"
    assert process.num_fds() == before
    assert [child.pid for child in process.children() if child.status() == psutil.STATUS_ZOMBIE] == []


def test_a_command_that_is_not_there_has_a_code_and_words(guard, tmp_path):
    done = CommandRun(invocation([str(tmp_path / "nowhere")], tmp_path), guard).run()
    assert done.code == 127
    assert "nowhere" in done.stderr


DAEMON = """
    import sys, threading
    from memoryd_server.qmd.process import Command, CommandRun, ProcessGuard
    command, environment, folder = eval(sys.argv[1])
    guard = ProcessGuard()
    threading.Thread(target=CommandRun(Command(command, environment, folder, 600), guard).run, daemon=True).start()
    threading.Event().wait()
"""


def test_nothing_outlives_a_daemon_that_is_killed(tmp_path, started):
    given = repr((script(STUBBORN, started, "stay"), ENVIRONMENT, str(tmp_path)))
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(DAEMON), given]) as daemon:
        group = pids(started, 2)
        assert not any(is_gone(pid) for pid in group)
        daemon.kill()
    check_gone(group, PATIENCE)


def test_a_guard_that_died_is_replaced_and_knows_every_group(guard, tmp_path, started):
    runs = [CommandRun(invocation(script(STUBBORN, started, "stay"), tmp_path, seconds=60), guard) for _ in range(2)]
    threads = [threading.Thread(target=run.run) for run in runs]
    threads[0].start()
    first = pids(started, 2)
    old = guard_pid()
    os.kill(old, signal.SIGKILL)
    psutil.Process(old).wait(PATIENCE)
    threads[1].start()
    everyone = pids(started, 4)
    assert guard_pid() != old
    assert set(first) < set(everyone)
    # Closing it is what a daemon's end is to it.
    guard.close()
    check_gone(everyone, PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_guard_ends_when_it_is_closed(tmp_path):
    guard = ProcessGuard()
    assert guard_pid() is None
    guard.register(2**22 + 1)
    # A process is found by its command, which it has some time after its start.
    wait_until(lambda: guard_pid() is not None)
    pid = guard_pid()
    guard.release(2**22 + 1)
    guard.close()
    assert not psutil.pid_exists(pid)
    guard.close()
