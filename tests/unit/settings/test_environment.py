"""Variables set keys of the memoryd block."""

import os
from pathlib import Path

import pytest

from memoryd_server.settings.environment import use_one_grpc_thread, variables


def check(home, environ, **expected):
    home.environ.update(environ)
    service = home.load().service
    for dotted, value in expected.items():
        found = service
        for name in dotted.split("__"):
            found = getattr(found, name)
        assert found == value


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"MEMORYD_LIMITS__MAX_FILE_BYTES": "1024"}, {"limits__max_file_bytes": 1024}),
        ({"MEMORYD_LIMITS__SHUTDOWN_GRACE_SECONDS": " 2.5 "}, {"limits__shutdown_grace_seconds": 2.5}),
        ({"MEMORYD_LOG_LEVEL": "DEBUG"}, {"log__level": "debug"}),
        ({"MEMORYD_LOG__FORMAT": "console"}, {"log__format": "console"}),
        ({"MEMORYD_TOKEN_FILE": "/run/tokens"}, {"token_file": Path("/run/tokens")}),
        ({"MEMORYD_LISTEN": "unix:/a/b,127.0.0.1:0,"}, {"listen": ("unix:/a/b", "127.0.0.1:0")}),
        ({"MEMORYD_WATCHER__MODE": "polling"}, {"watcher__mode": "polling"}),
        ({"MEMORYD_LOG_LEVEL": ""}, {"log__level": "info"}),
    ],
)
def test_a_variable_sets_its_key(home, environ, expected):
    check(home, environ, **expected)


def test_paths_in_variables_may_begin_with_the_home_directory(home):
    environ = {"MEMORYD_TOKEN_FILE": "~/tokens", "MEMORYD_LISTEN": "unix:~/m.sock"}
    check(home, environ, token_file=home.path / "tokens", listen=(f"unix:{home.path}/m.sock",))


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        (
            {"MEMORYD_LIMITS__MAX_FILE_BYTES": "lots"},
            "memoryd.limits.maxFileBytes: expected a whole number, found a st",
        ),
        ({"MEMORYD_LOG_LEVEL": "loud"}, "memoryd.log.level: expected one of debug, info, warning, error"),
        ({"MEMORYD_LISTEN": "nowhere"}, "memoryd.listen: 'nowhere' is neither unix:PATH nor HOST:PORT nor [::1]:PORT"),
    ],
)
def test_a_variable_with_a_wrong_value_is_refused_by_its_name(home, environ, complaint):
    home.environ.update(environ)
    assert f"env {next(iter(environ))}: {complaint}" in home.refused()


def test_an_unknown_variable_is_warned_of_with_the_nearest_name(home):
    home.environ["MEMORYD_LOG_LEVLE"] = "debug"
    (warning,) = home.load().warnings
    assert warning.startswith('env MEMORYD_LOG_LEVLE: unknown variable (did you mean "MEMORYD_LOG_LEVEL"?)')


def test_the_variables_that_name_no_key_are_known(home):
    home.environ.update({"MEMORYD_ADDRESS": "x", "MEMORYD_WORKSPACE": "/w", "MEMORYD_STATE_DIR": "/s", "OTHER": "1"})
    assert home.load().warnings == ()


def test_an_unknown_flag_is_refused(home):
    assert "flag --log-levle: no such flag" in home.refused(log_levle="debug")


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [("/run/user/5", "unix:/run/user/5/memoryd/memoryd.sock"), ("", None), ("relative", None)],
)
def test_the_default_socket_is_in_the_runtime_or_the_state_directory(home, runtime, expected):
    home.environ["XDG_RUNTIME_DIR"] = runtime
    assert home.load().service.listen == (expected or f"unix:{home.state}/run/memoryd.sock",)


@pytest.mark.parametrize("address", ["unix:/a", "localhost:1", "0.0.0.0:65535", "[::1]:0", "[fe80::1%eth0]:1"])
def test_an_address_is_taken(home, address):
    assert home.load(listen=[address]).service.listen == (address,)


@pytest.mark.parametrize("address", ["unix:", "host", "host:", ":1", "host:65536", "::1:5", "h:1x", "", "http://h:1"])
def test_an_invalid_address_is_refused(home, address):
    assert "memoryd.listen: " in home.refused(listen=[address])


def test_each_variable_has_one_key():
    assert variables()["MEMORYD_LIMITS__MAX_FILE_BYTES"] == ("limits", "maxFileBytes")
    assert variables()["MEMORYD_LOG_LEVEL"] == variables()["MEMORYD_LOG__LEVEL"] == ("log", "level")


def test_grpc_uses_one_thread_unless_the_environment_configures_it(monkeypatch):
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    use_one_grpc_thread()
    assert os.environ["GRPC_EXPERIMENTS"] == "-event_engine_listener"
    monkeypatch.setenv("GRPC_EXPERIMENTS", "call_tracer_in_transport")
    use_one_grpc_thread()
    assert os.environ["GRPC_EXPERIMENTS"] == "call_tracer_in_transport"
