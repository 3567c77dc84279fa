"""The files under service/deploy say what is true of memoryd, and what the docs promise of them."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import pytest

from memoryd_server.cli.main import main
from memoryd_server.settings.loading import load

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "service" / "deploy"
UNIT = DEPLOY / "memoryd.service"
CONTAINERFILE = DEPLOY / "Containerfile"
LOCKS = REPOSITORY / "service" / "locks"

# Points of systemd's own ten (1.1 by version 252; others count a little otherwise). What is left is what a daemon
# needs that opens sockets and keeps files.
MOST_EXPOSURE = 1.5


class Unit:
    """A unit file as systemd reads it: a key may stand several times, an empty value takes back what stood before."""

    def __init__(self, text):
        parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",), dict_type=dict)
        parser.optionxform = str
        parser.read_string(re.sub(r"^(SystemCallFilter)=(?=~)", r"\1~=", text, flags=re.MULTILINE))
        self.sections = {name: dict(parser[name]) for name in parser.sections()}

    def __getitem__(self, key):
        return self.sections["Service"][key]


@pytest.fixture(scope="module")
def unit():
    return Unit(UNIT.read_text("utf-8"))


def invoked(words):
    """The verb and the options of a command line of memoryd, which must be ones that it has."""
    context = click.Context(main)
    verb, *arguments = words
    command = main.get_command(context, verb)
    assert command is not None, verb
    command.make_context(verb, list(arguments), resilient_parsing=True)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("--")} <= known
    return verb


def test_the_unit_starts_what_there_is(unit):
    program, *words = shlex.split(unit["ExecStart"])
    assert program.endswith("/bin/memoryd")
    assert invoked(words) == "serve"
    assert (unit["Type"], unit["ExecReload"]) == ("notify", "/bin/kill -HUP $MAINPID")


def test_the_systemd_unit_runs_unprivileged(unit):
    assert unit["User"] not in {"", "root", "0"}
    assert (unit["CapabilityBoundingSet"], unit["AmbientCapabilities"]) == ("", "")
    assert (unit["ProtectSystem"], unit["UMask"]) == ("strict", "0077")
    assert unit["StateDirectoryMode"] == unit["RuntimeDirectoryMode"] == "0700"
    yes = {key for key, value in unit.sections["Service"].items() if value == "yes"}
    wanted = {"NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectHome", "ProtectKernelTunables"}
    assert wanted | {"RestrictNamespaces", "RestrictSUIDSGID", "LockPersonality"} <= yes


def test_the_unit_gives_the_daemon_time_and_files(unit):
    assert int(unit["TimeoutStopSec"]) > 10, "memoryd.limits.shutdownGraceSeconds and the closing of indexes"
    assert int(unit["LimitNOFILE"]) >= 12 * 1_000
    assert unit["Restart"] == "on-failure"


@pytest.fixture
def startable(tmp_path):
    """The unit with a program and a user that are here, so that systemd-analyze finds no fault in those."""
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text("utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.MULTILINE)
    file = tmp_path / "memoryd.service"
    file.write_text(text)
    return file


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_no_fault_in_the_unit(startable):
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(startable)], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in verified.stderr.splitlines() if "memoryd" in line]
    assert (verified.returncode, ours) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_exposes_little():
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    rated = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in rated.stderr:
        pytest.skip("a systemd-analyze that rates no files")
    found = re.search(r"exposure level for \S+: ([0-9.]+)", rated.stdout)
    assert found, rated.stdout + rated.stderr
    assert float(found[1]) <= MOST_EXPOSURE


# The container


def instructions():
    """Each instruction with its arguments, stages marked by their FROM."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text("utf-8"), flags=re.MULTILINE))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def last_stage():
    found = instructions()
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def of(name, stage):
    return [value for found, value in stage if found == name]


def words(value):
    """A command in its JSON form, which no shell reads."""
    assert value.startswith("["), value
    return [str(word) for word in json.loads(value)]


def test_every_instruction_is_one_that_there_is():
    known = {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {name for name, _ in instructions()} <= known | {"ENTRYPOINT", "CMD"}


def test_files_copied_into_the_image_are_in_the_repository_and_not_ignored():
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text("utf-8").split()
    shown = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    for value in of("COPY", instructions()):
        if value.startswith("--from="):
            continue
        *sources, _ = value.split()
        for source in sources:
            assert (REPOSITORY / source).exists(), source
            assert any(source == each or source.startswith(f"{each}/") for each in shown), source


def test_the_container_runs_unprivileged_with_a_health_check():
    stage = last_stage()
    (user,) = of("USER", stage)
    assert all(int(number) >= 1_000 for number in user.split(":"))
    (health,) = of("HEALTHCHECK", stage)
    options, _, command = health.partition("CMD ")
    assert "--start-period=" in options
    assert words(command)[0] == "memoryd"
    assert invoked(words(command)[1:]) == "health"
    assert words(of("ENTRYPOINT", stage)[0]) == ["memoryd"]
    assert invoked(words(of("CMD", stage)[0])) == "serve"
    assert of("STOPSIGNAL", stage) == ["SIGTERM"]


def variables(stage):
    """What the image's ENV gives its processes."""
    return dict(word.split("=", 1) for value in of("ENV", stage) for word in shlex.split(value))


def option(text, name):
    """Seconds that an option of HEALTHCHECK gives."""
    return float(re.search(rf"--{name}=([0-9.]+)s", text)[1])


def test_the_container_writes_to_its_volumes_alone():
    stage = last_stage()
    volumes = {Path(each) for each in words(of("VOLUME", stage)[0])}
    settings = load(environ=variables(stage), home=Path("/nowhere"))
    assert not settings.warnings
    (listen,) = settings.service.listen
    socket = Path(listen.removeprefix("unix:"))
    workspaces = {agent.workspace for agent in settings.agents.values()}
    assert {settings.state_dir, socket.parent, *workspaces} == volumes
    # A new volume gets the owner that its folder has in the image.
    made = shlex.split(of("RUN", stage)[0])
    assert volumes <= {Path(word) for word in made[made.index("install") :] if word.startswith("/")}


def test_the_question_for_its_health_has_time_to_be_answered():
    (health,) = of("HEALTHCHECK", last_stage())
    waits = next(
        each.default for each in main.get_command(click.Context(main), "health").params if each.name == "timeout"
    )
    # The command itself has to start, on a machine that is busy with more than us.
    assert option(health, "timeout") >= 3 * waits
    assert option(health, "interval") > option(health, "timeout")


@pytest.mark.slow
def test_the_wheels_are_made_of_what_is_copied_alone(tmp_path):
    """As the first stage makes them, in a folder that has nothing else of the repository."""
    build = instructions()[: -len(last_stage())]
    for value in of("COPY", build):
        *sources, target = value.split()
        for source in sources:
            place = tmp_path / (target if len(sources) == 1 else f"{target}/{Path(source).name}")
            place.parent.mkdir(parents=True, exist_ok=True)
            made = REPOSITORY / source
            if made.is_dir():
                shutil.copytree(made, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(made, place)
    (command,) = [step for run in of("RUN", build) for step in run.split("&&") if "pip wheel" in step]
    _, *arguments = shlex.split(command.replace("/wheels", str(tmp_path / "wheels")))
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    made = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    for name, needed in [
        ("memoryd", {"memoryd_server/py.typed", "memoryd_server/cli/main.py"}),
        ("memoryd_client", {"memoryd/client.py", "memoryd/v1/memory_pb2.py", "memoryd/service_config.json"}),
    ]:
        (wheel,) = (tmp_path / "wheels").glob(f"{name}-*.whl")
        with zipfile.ZipFile(wheel) as opened:
            names = set(opened.namelist())
        assert needed <= names
        assert any(each.endswith("/LICENSE") for each in names)


def test_the_container_takes_nothing_but_what_is_locked():
    installs = [
        run for run in of("RUN", instructions()) for run in run.split("&&") if " install " in run and "pip" in run
    ]
    for install in installs:
        assert "--require-hashes" in install or "--no-index" in install, install
    for locked in re.findall(r"service/locks/([\w-]+\.lock)", " ".join(installs)):
        assert (LOCKS / locked).exists()
    named = re.search(r"extra: (.+?);", CONTAINERFILE.read_text("utf-8"))
    assert all((LOCKS / f"{extra}.lock").exists() for extra in re.findall(r"\w{3,}", named[1]))


def test_no_tool_of_the_build_is_in_the_last_stage():
    stage = last_stage()
    assert not any("pip" in run or "apt" in run for run in of("RUN", stage))
    assert of("COPY", stage) == ["--from=build /opt/memoryd /opt/memoryd"]


def pins(name):
    lines = (LOCKS / name).read_text("utf-8").splitlines()
    return {line.split(" \\")[0].strip() for line in lines if "==" in line}


@pytest.mark.parametrize("name", ["run.lock", "build.lock"])
def test_the_deployed_versions_are_the_tested_ones(name):
    """All but hatchling's own, which the development environment may have in other words."""
    tested = {pin.split("==")[0]: pin for pin in pins("dev.lock")}
    for pin in pins(name):
        package = pin.split("==")[0]
        assert package not in tested or pin in pins("dev.lock"), pin


def test_every_dependency_is_locked():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    locked = {pin.split("==")[0].lower().replace("_", "-") for pin in pins("run.lock")}
    needed = {re.split(r"[=<>~!]", each)[0].strip().lower().replace("_", "-") for each in project["dependencies"]}
    assert needed - {"memoryd-client"} <= locked
