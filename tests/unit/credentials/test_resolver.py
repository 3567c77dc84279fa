"""The values of SecretRefs: from variables, files, OpenClaw's store and commands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memoryd_server.credentials import (
    ResolvedSecret,
    SecretReference,
    SecretSources,
    denied_variable,
    resolve_secrets,
)
from memoryd_server.credentials.private_file import SecretFileError, read_private_file
from openclaw_rows import open_state, put_secret, state_file
from waiting import wait_until

SECRET = "sk-of-this-test-0123456789"
needs_another_user = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path


def sources(place, providers=None, *, defaults=None, environ=None, commands=False):
    return SecretSources(providers or {}, defaults or {}, environ or {}, place, place, may_run_commands=commands)


def resolved(reference, found_in):
    """Return the value of one reference, else the reason."""
    found = resolve_secrets([reference], found_in)[reference]
    return found.value if isinstance(found, ResolvedSecret) else found.reason


# Variables


def env(name, alias="default"):
    return SecretReference("env", alias, name)


def test_a_variable_needs_no_entry_under_the_default_alias(place):
    environ = {"KEY": f" {SECRET} ", "BLANK": " "}
    assert resolved(env("KEY"), sources(place, environ=environ)) == SECRET
    assert resolved(env("KEY", "mine"), sources(place, defaults={"env": "mine"}, environ=environ)) == SECRET
    for name in ("BLANK", "UNSET"):
        assert resolved(env(name), sources(place, environ=environ)) == f"the variable {name} is not set"


def test_another_alias_needs_an_entry_of_the_same_source(place):
    environ = {"KEY": SECRET}
    assert resolved(env("KEY", "mine"), sources(place, environ=environ)) == "secrets.providers.mine is not configured"
    wrong = sources(place, {"mine": {"source": "store"}}, environ=environ)
    assert resolved(env("KEY", "mine"), wrong) == "secrets.providers.mine is not of the source env"
    assert resolved(env("KEY", "mine"), sources(place, {"mine": {"source": "env"}}, environ=environ)) == SECRET
    # `default` is no alias of variables if another one is.
    moved = sources(place, defaults={"env": "mine"}, environ=environ)
    assert resolved(env("KEY"), moved) == "secrets.providers.default is not configured"


def test_an_allowlist_restricts_the_variables(place):
    def found(allowlist):
        return sources(place, {"default": {"source": "env", "allowlist": allowlist}}, environ={"KEY": SECRET})

    assert resolved(env("KEY"), found(["OTHER", "KEY"])) == SECRET
    for allowlist in (["OTHER"], []):
        reason = "the variable KEY is not in secrets.providers.default.allowlist"
        assert resolved(env("KEY"), found(allowlist)) == reason
        assert denied_variable("KEY", found(allowlist)) == reason
    assert denied_variable("KEY", found(["KEY"])) == ""
    assert "is not an array of strings" in resolved(env("KEY"), found("KEY"))


@pytest.mark.parametrize("entry", [{"source": "env", "allowlst": []}, {"source": "env", "$include": "./x"}])
def test_a_source_with_an_unknown_key_provides_nothing(place, entry):
    found = sources(place, {"default": entry}, environ={"KEY": SECRET})
    assert "memoryd does not know the key secrets.providers.default." in resolved(env("KEY"), found)


@pytest.mark.parametrize("value", ["a\nb", "a\x00b", "k" * 65_537])
def test_a_value_that_cannot_be_in_a_header_is_refused_and_not_shown(place, value):
    assert resolved(env("KEY"), sources(place, environ={"KEY": value})) == (
        "its value is too long, or contains control characters"
    )


# Files


def private(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    file.chmod(0o600)
    return file


def in_file(pointer="/openai/apiKey"):
    return SecretReference("file", "main", pointer)


def file_sources(place, file, **more):
    return sources(place, {"main": {"source": "file", "path": str(file), **more}})


def test_a_file_is_read_by_json_pointer(place):
    file = private(place / "s.json", json.dumps({"openai": {"apiKey": SECRET, "n": 5}, "a/b": [{"~": "deep"}]}))
    found = file_sources(place, file)
    assert resolved(in_file(), found) == SECRET
    assert resolved(in_file("/a~1b/0/~0"), found) == "deep"
    assert resolved(in_file("/none"), found) == "the file has no value at /none"
    assert resolved(in_file("/openai"), found) == "its value is not a text, or is blank"
    assert resolved(in_file("/openai/n"), found) == "its value is not a text, or is blank"
    assert "JSON pointer" in resolved(in_file("value"), found)
    assert resolved(in_file(), file_sources(place, "~/s.json")) == SECRET


def test_a_file_of_one_value_is_read_without_its_line_end(place):
    found = file_sources(place, private(place / "key", f"\ufeff{SECRET}\r\n"), mode="singleValue")
    assert resolved(in_file("value"), found) == SECRET
    assert resolved(in_file("/x"), found) == 'the id in a file of one value is "value"'


def test_a_file_with_a_secret_is_private_regular_and_has_one_link(place):
    file = private(place / "s", SECRET)

    def reason(path=file, **more):
        return resolved(in_file("value"), file_sources(place, path, **{"mode": "singleValue", **more}))

    assert reason() == SECRET
    file.chmod(0o640)
    assert "can be opened by other users (mode 0640)" in reason()
    file.chmod(0o600)
    (place / "link").symlink_to(file)
    assert "is a symbolic link" in reason(place / "link")
    os.link(file, place / "second")
    assert "has more than one hard link" in reason()
    (place / "second").unlink()
    assert reason(maxBytes=len(SECRET)) == SECRET
    assert f"is larger than {len(SECRET) - 1} bytes" in reason(maxBytes=len(SECRET) - 1)
    assert "is not a regular file" in reason(place / "state")
    assert "cannot be read: No such file" in reason(place / "none")
    assert "is not an absolute path" in reason(Path("relative"))
    for more in ({"maxBytes": 0}, {"timeoutMs": "5s"}, {"mode": "text"}, {"insecure": True}):
        assert SECRET not in reason(**more)


@needs_another_user
def test_a_file_of_another_user_is_refused(place):
    file = private(place / "s", SECRET)
    os.chown(file, 12345, -1)
    assert "belongs to another user" in resolved(in_file("value"), file_sources(place, file, mode="singleValue"))


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"', b"\xff", "[" * 5000])
def test_a_file_that_is_no_object_gives_a_reason_without_its_content(place, content):
    reason = resolved(in_file(), file_sources(place, private(place / "s.json", content)))
    assert reason.startswith("the file of secrets.providers.main.path is not ")


def test_a_named_pipe_does_not_delay_a_read(place):
    os.mkfifo(place / "pipe", 0o600)
    began = time.monotonic()
    assert "is not a regular file" in resolved(in_file(), file_sources(place, place / "pipe"))
    assert time.monotonic() - began < 2


def test_a_file_system_that_does_not_answer_fails_after_the_timeout(place):
    class Hanging:
        """A path whose first use does not return."""

        def __fspath__(self):
            time.sleep(3)
            return str(place / "s")

    began = time.monotonic()
    with pytest.raises(SecretFileError, match=r"cannot be read within 0.05 s"):
        read_private_file(Hanging(), max_bytes=10, seconds=0.05)
    assert time.monotonic() - began < 2


# OpenClaw's store


def stored(name, alias="default"):
    return SecretReference("store", alias, name)


def test_a_secret_of_openclaws_store_is_read(place):
    put_secret(place, "KEY", SECRET)
    put_secret(place, "GONE", SECRET, deleted=5)
    put_secret(place, "PERSONAL", SECRET, scope=("identity", "joe"))
    assert resolved(stored("KEY"), sources(place)) == SECRET
    assert resolved(stored("KEY", "team"), sources(place, {"team": {"source": "store"}})) == SECRET
    for name in ("GONE", "PERSONAL", "NONE"):
        assert resolved(stored(name), sources(place)) == f"OpenClaw's secret store has no {name}"


def test_a_store_that_cannot_be_read_gives_a_reason(place):
    assert resolved(stored("KEY"), sources(place)) == "OpenClaw's secret store has no KEY"
    open_state(place, version=19).close()
    assert "its schema has version 19, and memoryd knows up to 18" in resolved(stored("KEY"), sources(place))
    state_file(place).write_bytes(b"no database" * 1000)
    for suffix in ("-wal", "-shm"):
        state_file(place).with_name(f"openclaw.sqlite{suffix}").unlink(missing_ok=True)
    assert "the database cannot be read (NotADBError)" in resolved(stored("KEY"), sources(place))


# Commands


def command(place, body, name="vault"):
    file = place / name
    file.write_text(f"#!{sys.executable} -I\nimport json, os, sys, time\n{body}\n")
    file.chmod(0o700)
    return file


ANSWER = """
asked = json.load(sys.stdin)
with open(os.path.join(os.getcwd(), "runs"), "a") as runs:
    print(json.dumps([asked, sys.argv[1:], dict(os.environ)]), file=runs)
values = {name: f"value of {name}" for name in asked["ids"]}
print(json.dumps({"protocolVersion": 1, "values": values, "errors": {}}))
"""


def by_command(name="openai/key"):
    return SecretReference("exec", "vault", name)


def command_sources(place, file, *, commands=True, environ=None, **more):
    entry = {"source": "exec", "command": str(file), **more}
    return sources(place, {"vault": entry}, commands=commands, environ=environ)


def test_a_command_is_not_run_unless_memoryd_is_told_to(place):
    found = command_sources(place, command(place, ANSWER), commands=False)
    assert "memoryd.secrets.exec" in resolved(by_command(), found)
    assert not (place / "runs").exists()


def test_a_command_is_run_once_for_all_its_secrets(place):
    found = command_sources(
        place,
        command(place, ANSWER),
        args=["--profile", "a b; $(touch x)"],
        env={"MODE": "prod"},
        passEnv=["VAULT_ADDR", "NOT_SET"],
        environ={"VAULT_ADDR": "http://v", "OPENAI_API_KEY": SECRET},
    )
    references = [by_command("a"), by_command("b#c"), by_command("a")]
    values = resolve_secrets(references, found)
    assert [values[reference].value for reference in references] == ["value of a", "value of b#c", "value of a"]
    (run,) = (place / "runs").read_text().splitlines()
    asked, arguments, environment = json.loads(run)
    assert asked == {"protocolVersion": 1, "provider": "vault", "ids": ["a", "b#c"]}
    assert arguments == ["--profile", "a b; $(touch x)"]
    # The interpreter of the test's command sets LC_CTYPE.
    assert {**environment, "LC_CTYPE": ""} == {"MODE": "prod", "VAULT_ADDR": "http://v", "LC_CTYPE": ""}


OUTPUTS = {
    "print('{')": "the output of the command of secrets.providers.vault is not JSON",
    "print('[]')": "the output of the command of secrets.providers.vault is not an object",
    "print(json.dumps({'values': {}}))": "is not of protocol version 1",
    "print(json.dumps({'protocolVersion': 1, 'values': {}}))": "returns no value",
    "print(json.dumps({'protocolVersion': 1, 'values': {'openai/key': 5}}))": "its value is not a text",
    "print(json.dumps({'protocolVersion': 1, 'values': {}, 'errors': {'openai/key': {'code': 'NOT_FOUND'}}}))": (
        "reports an error (NOT_FOUND)"
    ),
    f"print(json.dumps(dict(protocolVersion=1, values={{}}, errors={{'openai/key': dict(code='{SECRET}')}})))": (
        "reports an error"
    ),
    f"print('{SECRET}'); sys.exit(3)": "exited with status 3",
    "os.abort()": "exited with status",
    "print('x' * 2**20, flush=True)": "printed more than 1048576 bytes",
    f"print('{SECRET}')": "is not JSON",
}


@pytest.mark.parametrize("body", OUTPUTS)
def test_an_answer_that_is_not_understood_gives_a_reason_without_the_output(place, body):
    reason = resolved(by_command(), command_sources(place, command(place, body)))
    assert OUTPUTS[body] in reason
    assert SECRET not in reason


def test_text_that_is_not_json_is_one_value_where_the_settings_allow_it(place):
    found = command_sources(place, command(place, f"print('{SECRET}')"), jsonOnly=False)
    assert resolved(by_command(), found) == SECRET


def test_a_command_that_reads_nothing_and_leaves_its_output_open_to_a_child_is_no_problem(place):
    child = "import subprocess; subprocess.Popen(['sleep', '60'])"
    body = f"{child}\nprint(json.dumps({{'protocolVersion': 1, 'values': {{'openai/key': 'k'}}}}), flush=True)"
    began = time.monotonic()
    assert resolved(by_command(), command_sources(place, command(place, body))) == "k"
    assert time.monotonic() - began < 4


@pytest.mark.slow
def test_a_command_that_does_not_end_is_ended_with_its_children(place):
    body = """
import subprocess
child = subprocess.Popen(["sleep", "60"])
with open("pids", "w") as file:
    print(os.getpid(), child.pid, file=file)
time.sleep(60)
"""
    found = command_sources(place, command(place, body), timeoutMs=1500)
    assert resolved(by_command(), found) == "the command of secrets.providers.vault did not end within 1.5 s"
    for pid in (place / "pids").read_text().split():
        wait_until(lambda pid=pid: not is_running(int(pid)))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_ends_if_memoryd_is_killed(place):
    file = command(place, "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)")
    script = (
        "from pathlib import Path\n"
        "from memoryd_server.credentials.command import SecretCommand, run_command\n"
        f"run_command(SecretCommand(Path({str(file)!r}), [], {{}}, 60.0, 100), b'x')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_until(lambda: (place / "pid").exists() and (place / "pid").read_text())
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not is_running(int((place / "pid").read_text())))


def test_a_command_that_others_can_change_is_not_run(place):
    file = command(place, ANSWER)

    def reason(path=file, **more):
        return resolved(by_command(), command_sources(place, path, **more))

    for mode in (0o720, 0o702):
        file.chmod(mode)
        assert "can be changed by other users" in reason()
    file.chmod(0o700)
    (place / "link").symlink_to(file)
    assert "is a symbolic link" in reason(place / "link")
    assert "is not a regular file" in reason(place)
    assert "is not an absolute path" in reason("vault")
    assert "is outside of trustedDirs" in reason(trustedDirs=["/opt/vault"])
    assert "does not know the key secrets.providers.vault.pluginIntegration" in reason(pluginIntegration={})
    file.chmod(0o600)
    assert "exited with status 127" in reason()
    assert not (place / "runs").exists()
    file.chmod(0o700)
    assert reason(trustedDirs=[str(place)]) == "value of openai/key"


def test_a_command_outside_of_its_trusted_folders_is_not_run_whatever_its_path(place):
    outside, trusted = place / "outside", place / "trusted"
    for folder in (outside, trusted):
        folder.mkdir()
    command(outside, ANSWER)
    (trusted / "link").symlink_to(outside)
    for path in (trusted / ".." / "outside" / "vault", trusted / "link" / "vault"):
        found = resolved(by_command(), command_sources(place, path, trustedDirs=[str(trusted)]))
        assert "is outside of trustedDirs" in found
    assert not (outside / "runs").exists()


@needs_another_user
def test_a_command_of_another_user_is_not_run(place):
    file = command(place, ANSWER)
    os.chown(file, 12345, -1)
    assert "belongs to another user" in resolved(by_command(), command_sources(place, file))


def test_no_value_is_in_the_representation_of_the_result(place):
    found = resolve_secrets([env("KEY")], sources(place, environ={"KEY": SECRET}))
    assert SECRET not in repr(found)
