"""Every ending of the command is an answer or a failure with its own reason."""

import os
import stat

import pytest

from fake_qmd.installs import make_fake
from memoryd_server.qmd import client
from memoryd_server.qmd.client import (
    QmdClient,
    QmdFailure,
    QmdFailureReason,
    QmdSearchMode,
    check,
    executable_of,
    read_results,
    read_version,
)
from memoryd_server.qmd.home import QmdHome
from memoryd_server.qmd.process import CommandResult, ExitKind, ProcessGuard

ROWS = '[\n  {"score": 0.5, "file": "qmd://m/a.md"}\n]\n'
WARNING = "Warning: {} documents ({}%) need embeddings. Run 'qmd embed' for better results.\n"


def finished(code=0, stdout="", stderr="", ending=ExitKind.EXITED):
    return CommandResult(ending, code, stdout, stderr, 1.5)


def check_failure(reason, words, work):
    with pytest.raises(QmdFailure) as failed:
        work()
    assert failed.value.reason is reason
    assert words in failed.value.message
    assert "\x1b" not in failed.value.message


@pytest.mark.parametrize(
    ("done", "reason", "words"),
    [
        (finished(-11), QmdFailureReason.SIGNAL, "SIGSEGV; a Node older than 22"),
        (finished(139), QmdFailureReason.SIGNAL, "SIGSEGV"),
        (finished(-9), QmdFailureReason.SIGNAL, "SIGKILL"),
        (finished(-77), QmdFailureReason.SIGNAL, "signal 77"),
        (finished(127, stderr="qmd: not found"), QmdFailureReason.MISSING, "npm install"),
        (finished(126, stderr="Permission denied"), QmdFailureReason.MISSING, "Permission denied"),
        (
            finished(1, stderr="Collection not found: mem"),
            QmdFailureReason.UNKNOWN_COLLECTION,
            "Collection not found: mem",
        ),
        (finished(1, stderr="SqliteError: database is locked\n  code: 'SQLITE_BUSY'"), QmdFailureReason.BUSY, "locked"),
        (
            finished(1, stderr="\x1b[33mNoise\x1b[0m\nError: No model file found at x\n  at y"),
            QmdFailureReason.EXIT_CODE,
            "No model file",
        ),
        (finished(1, stderr="just words"), QmdFailureReason.EXIT_CODE, "exit code 1: just words"),
        (finished(3), QmdFailureReason.EXIT_CODE, "exit code 3"),
        (finished(0, ending=ExitKind.TIMED_OUT), QmdFailureReason.TIMEOUT, "1.5 s"),
        (finished(0, ending=ExitKind.CANCELLED), QmdFailureReason.CANCELLED, "was cancelled"),
        (finished(0, ending=ExitKind.OVERFLOWED), QmdFailureReason.TOO_LARGE, "1,048,576 bytes"),
    ],
)
def test_an_ending_that_is_none_has_its_reason(done, reason, words):
    check_failure(reason, words, lambda: check(done))
    check_failure(reason, words, lambda: read_results(done, QmdSearchMode.SEARCH))


def test_the_words_of_a_failure_are_few():
    check_failure(QmdFailureReason.EXIT_CODE, "Error: xxx", lambda: check(finished(1, stderr="Error: " + "x" * 10_000)))
    with pytest.raises(QmdFailure) as failed:
        check(finished(1, stderr="Error: " + "x" * 10_000))
    assert len(failed.value.message) < 500


@pytest.mark.parametrize("done", [finished(0), finished(-11), finished(134), finished(0, ending=ExitKind.TIMED_OUT)])
def test_results_that_were_printed_whole_count(done):
    done = CommandResult(done.ending, done.code, ROWS, "", 1.0)
    assert [row.uri for row in read_results(done, QmdSearchMode.SEARCH).rows] == ["qmd://m/a.md"]


@pytest.mark.parametrize("ending", [ExitKind.OVERFLOWED, ExitKind.CANCELLED])
def test_of_what_was_cut_off_nothing_counts(ending):
    with pytest.raises(QmdFailure):
        read_results(finished(0, ROWS, ending=ending), QmdSearchMode.SEARCH)


@pytest.mark.parametrize("done", [finished(-11, "[]"), finished(1, "[]"), finished(0, "[]", ending=ExitKind.TIMED_OUT)])
def test_an_empty_list_of_a_command_that_failed_is_no_answer(done):
    with pytest.raises(QmdFailure):
        read_results(done, QmdSearchMode.SEARCH)


def test_an_empty_list_of_a_command_that_did_well_is_one():
    assert read_results(finished(0, "[]\n"), QmdSearchMode.SEARCH).rows == ()


def test_nothing_by_meaning_where_nothing_has_a_vector_is_no_answer():
    done = finished(0, "[]", WARNING.format(5, 100))
    check_failure(
        QmdFailureReason.NOT_READY, "none of qmd's 5 documents", lambda: read_results(done, QmdSearchMode.VSEARCH)
    )
    assert read_results(done, QmdSearchMode.SEARCH).rows == ()
    assert read_results(finished(0, "[]", WARNING.format(5, 40)), QmdSearchMode.QUERY).pending == 5
    assert (
        read_results(
            finished(0, ROWS, "Tip: 3 documents need embeddings. Run 'qmd embed' to index them."), QmdSearchMode.QUERY
        ).pending
        == 3
    )


@pytest.mark.parametrize(
    ("printed", "version"),
    [("qmd 2.8.3 (facd35e)\n", "2.8.3"), ("noise\nqmd v2.0.0", "2.0.0"), ("qmd 10.11.12", "10.11.12")],
)
def test_the_version_is_read(printed, version):
    assert read_version(finished(0, printed)) == version


@pytest.mark.parametrize("printed", ["qmd 1.9.9", "qmd 0.1.0 (abc)", "usage: something", ""])
def test_an_old_or_unknown_version_is_too_old(printed):
    check_failure(QmdFailureReason.TOO_OLD, "npm install", lambda: read_version(finished(0, printed)))


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("qmd", "qmd"),
        ("qmd --verbose", "qmd"),
        ("'/a b/qmd' -x", "/a b/qmd"),
        ("", "qmd"),
        ("it's", "it's"),
        ("~/bin/qmd", "~/bin/qmd"),
    ],
)
def test_of_several_words_the_first_is_the_command(setting, command):
    assert executable_of(setting) == command


def test_the_command_is_found_on_the_path_or_where_it_is(tmp_path):
    fake = make_fake(tmp_path / "bin").path
    home = QmdHome(tmp_path / "qmd", (), {"PATH": f"/nowhere:{tmp_path / 'bin'}"})
    assert QmdClient("qmd", home, ProcessGuard()).locate() == str(fake)
    assert QmdClient(f"'{fake}' --flag", home, ProcessGuard()).locate() == str(fake)
    missing = QmdClient("no-such-qmd", home, ProcessGuard())
    check_failure(QmdFailureReason.MISSING, "no-such-qmd is not on the PATH; install", missing.locate)
    fake.chmod(stat.S_IRUSR)
    if os.access(fake, os.X_OK):
        return
    check_failure(QmdFailureReason.MISSING, "is not executable", QmdClient(str(fake), home, ProcessGuard()).locate)


def test_a_search_has_its_options_before_the_question():
    arguments = client.search_arguments(QmdSearchMode.SEARCH, "-c x\n\0 --json ", ["a", "b"], 7)
    assert arguments == ("--index", "index", "search", "--json", "-n", "7", "-c", "a", "-c", "b", "--", "-c x  --json")


@pytest.mark.parametrize(
    ("verb", "question", "line"),
    [
        (QmdSearchMode.QUERY, "lex: coffee", "lex : coffee"),
        (QmdSearchMode.QUERY, "  HYDE:x", "HYDE :x"),
        (QmdSearchMode.QUERY, "expand: a\nvec: b", "expand : a vec: b"),
        (QmdSearchMode.QUERY, "what is lex: about", "what is lex: about"),
        (QmdSearchMode.SEARCH, "lex: coffee", "lex: coffee"),
        (QmdSearchMode.VSEARCH, "a\u2028b\r\nc\x0bd", "a b c d"),
    ],
)
def test_no_question_speaks_qmds_own_language(verb, question, line):
    assert client.one_line(verb, question) == line


def test_the_limit_of_a_search_is_far_above_what_it_prints():
    assert client.MAX_SEARCH_BYTES > 50 * 2_000
