"""The programs of docs/tutorial.md run as they are printed, against a real daemon."""

import re
import shlex
import subprocess
import sys

import pytest

from clients.languages import LANGUAGES
from clients.runner import REPOSITORY
from daemon_process import environment, serving

pytestmark = pytest.mark.clients

PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text("utf-8")
TYPESCRIPT = REPOSITORY / "clients" / "typescript"
FENCES = {"python": "python", "typescript": "ts"}
MOST_LINES = 40
QUESTION = "What is the staging database called?"
FACT = "the staging database is called heron."
# 25 messages of 900 tokens exceed the 20,000 tokens at which a window of 32,000 is flushed.
LONG_MESSAGES = ["word " * 720] * 25


def languages():
    return [pytest.param(each, id=each.name, marks=each.marks) for each in LANGUAGES if each.name in FENCES]


def program_of(language):
    (program,) = re.findall(rf"^```{FENCES[language.name]}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return program


def run(command, folder, daemon, messages=()):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment(daemon.home) | {"MEMORYD_STATE_DIR": str(daemon.state)},
        input="".join(f"{message}\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def prepare(language, program, folder, daemon):
    """Write the program into a new folder, compile it if it is TypeScript, and return the command that runs it."""
    folder.mkdir()
    if language.name == "python":
        (folder / "gateway.py").write_text(program, "utf-8")
        return [sys.executable, "gateway.py"]
    (folder / "gateway.ts").write_text(program, "utf-8")
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    # `npm install` of the page makes the first link; the second package is the one that the client is built with.
    packages = {"@memoryd/client": TYPESCRIPT, "@types/node": TYPESCRIPT / "node_modules" / "@types" / "node"}
    for name, source in packages.items():
        link = folder / "node_modules" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(source, target_is_directory=True)
    (compiler,) = re.findall(r"^\$ npx tsc (.*)$", PAGE, re.MULTILINE)
    run(["node", TYPESCRIPT / "node_modules/typescript/bin/tsc", *shlex.split(compiler)], folder, daemon)
    return ["node", "gateway.js"]


def notes(daemon):
    return "".join(path.read_text("utf-8") for path in sorted(daemon.workspace.glob("**/*.md")))


@pytest.fixture
def daemon(tmp_path):
    workspace, state = tmp_path / "w", tmp_path / "s"
    workspace.mkdir()
    with serving(workspace, state, home=tmp_path) as served:
        yield served


@pytest.mark.parametrize("language", languages())
def test_tutorial_program_has_at_most_40_lines(language):
    assert len(program_of(language).splitlines()) <= MOST_LINES


@pytest.mark.parametrize("language", languages())
def test_tutorial_program_answers_from_memory_after_a_restart(language, daemon, tmp_path):
    language.or_skip()
    command = prepare(language, program_of(language), tmp_path / "p", daemon)
    answer = rf"- {re.escape(FACT)}\n\nSource: memory/[0-9-]+\.md#L1-L2\n"

    first = run(command, tmp_path / "p", daemon, [QUESTION, "", f"Remember {FACT}", QUESTION])
    second = run(command, tmp_path / "p", daemon, [QUESTION])

    assert re.fullmatch(rf"none\nnone\n{answer}", first), first
    assert re.fullmatch(answer, second), second
    assert notes(daemon) == f"- {FACT}\n"


@pytest.mark.parametrize("language", languages())
def test_tutorial_program_stores_what_the_model_writes_at_a_flush(language, daemon, tmp_path):
    language.or_skip()
    stub = program_of(language)
    model = stub.replace('"NO_REPLY"', '"- The release is on Friday."')
    assert model != stub
    command = prepare(language, model, tmp_path / "p", daemon)
    run(command, tmp_path / "p", daemon, LONG_MESSAGES)
    assert notes(daemon) == "- The release is on Friday.\n"


@pytest.mark.parametrize("language", languages())
def test_tutorial_stub_stores_nothing_at_a_flush(language, daemon, tmp_path):
    language.or_skip()
    command = prepare(language, program_of(language), tmp_path / "p", daemon)
    run(command, tmp_path / "p", daemon, LONG_MESSAGES)
    assert notes(daemon) == ""
