"""The definitions of the service for systemd and launchd."""

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.cli.service_definition import LABEL, UNIT, ServiceCommand, ServiceError, service_program

ODD = '/opt/my notes/100% "real" $HOME \\ ä'
COMMAND = ServiceCommand((ODD, "serve", "--state-dir", "/s"), {"MEMORYD_STATE_DIR": "/s p", "OPENCLAW_PROFILE": "50%"})


def systemd_words(text):
    """Split a line of a unit file as systemd does; see systemd.syntax(7)."""
    words, word, quoted, chars = [], "", False, iter(text)
    for char in chars:
        if char == '"':
            quoted = not quoted
            if not quoted:
                words.append(word)
                word = ""
        elif char == "\\":
            word += next(chars)
        elif char == "%":
            assert next(chars) == "%"
            word += "%"
        elif quoted:
            word += char
        else:
            assert char == " "
    return words


@given(st.text(st.characters(blacklist_categories=["C", "Z"], whitelist_characters=" "), min_size=1))
def test_any_path_is_one_argument_of_the_unit(path):
    (line,) = [
        line
        for line in ServiceCommand((path, "serve", path)).systemd_unit().split("\n")
        if line.startswith("ExecStart=")
    ]
    words = systemd_words(line.removeprefix("ExecStart="))
    # Variables are replaced in arguments, not in the path of the program.
    assert words == [path, "serve", path.replace("$", "$$")]


@pytest.mark.parametrize("path", ["/a\nExecStartPre=/bin/x", "/a\x1b[2J", "/not-utf-8-\udcff"])
def test_a_path_that_cannot_be_printed_is_refused(path, tmp_path):
    command = ServiceCommand((path, "serve"))
    with pytest.raises(ServiceError, match="choose a path of printable characters"):
        command.systemd_unit()
    with pytest.raises(ServiceError, match="choose a path of printable characters"):
        command.launchd_plist(tmp_path)


def test_systemd_accepts_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: `apt install systemd` installs it")
    program = tmp_path / "my notes" / "memoryd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    file = tmp_path / UNIT
    file.write_text(ServiceCommand((str(program), "serve"), COMMAND.environment).systemd_unit(), "utf-8")
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "SYSTEMD_LOG_LEVEL": "warning"}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", file], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_property_list_has_the_keys_of_launchd_with_their_types(tmp_path):
    content = plistlib.loads(COMMAND.launchd_plist(tmp_path / "memoryd.log"))
    # See launchd.plist(5).
    types = {
        "Label": str,
        "ProgramArguments": list,
        "EnvironmentVariables": dict,
        "RunAtLoad": bool,
        "KeepAlive": dict,
        "ThrottleInterval": int,
        "ExitTimeOut": int,
        "ProcessType": str,
        "SoftResourceLimits": dict,
        "Umask": int,
        "StandardOutPath": str,
        "StandardErrorPath": str,
    }
    assert {name: type(value) for name, value in content.items()} == types
    assert content["Label"] == LABEL
    assert content["ProgramArguments"] == list(COMMAND.arguments)
    assert content["ProcessType"] in {"Background", "Standard", "Adaptive", "Interactive"}
    assert content["EnvironmentVariables"] == COMMAND.environment


@pytest.mark.skipif(sys.platform != "darwin", reason="plutil is a program of macOS")
def test_plutil_accepts_the_property_list(tmp_path):
    file = tmp_path / f"{LABEL}.plist"
    file.write_bytes(COMMAND.launchd_plist(tmp_path / "memoryd.log"))
    subprocess.run(["plutil", "-lint", file], check=True, capture_output=True)


def test_the_started_program_is_used_and_else_the_module(tmp_path):
    home = tmp_path / "home"
    program = Path(sys.prefix) / "bin" / "memoryd"
    assert service_program(str(program), home) == [str(program)]
    assert service_program(str(tmp_path / "__main__.py"), home) == [sys.executable, "-m", "memoryd_server"]


@pytest.mark.parametrize("folder", [".cache/uv/environments/x/bin", "Library/Caches/uv/bin"])
def test_a_program_in_a_temporary_environment_is_refused(tmp_path, folder):
    program = tmp_path / folder / "memoryd"
    program.parent.mkdir(parents=True)
    program.touch()
    with pytest.raises(ServiceError, match=r"is in a folder of temporary files.*uv tool install memoryd"):
        service_program(str(program), tmp_path)
