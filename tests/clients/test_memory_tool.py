"""The memory tool of the Python client with a real daemon; `cases.json` has the results that all clients share."""

import json
import subprocess
import sys

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from certificates import needs_openssl
from clients.runner import REPOSITORY
from daemon_process import environment
from memoryd._memory_paths import listed_path, parse_path
from memoryd._memory_texts import human_size, lines_of_occurrences
from memoryd.client import MemorydError, connect
from memoryd.memory_tool import MemoryTool

pytestmark = [needs_openssl, pytest.mark.clients]

EXAMPLE = REPOSITORY / "clients" / "python" / "examples" / "memory_tool" / "execute_calls.py"


class Interrupted:
    """A client before whose calls of one method something happens, as long as there are `actions`."""

    def __init__(self, client, method, *actions):
        self._client = client
        self._method = method
        self._actions = list(actions)

    def __getattr__(self, name):
        if name == self._method and self._actions:
            self._actions.pop(0)()
        return getattr(self._client, name)


class SmallPages:
    """A client whose lists of files have two files a page."""

    def __init__(self, client):
        self._client = client
        self.get = client.get

    def list_files(self, request):
        request.page_size = 2
        return self._client.list_files(request)


@pytest.fixture
def daemon(daemons):
    daemon = daemons()
    daemon.reset({"memory/a.md": "alpha\nbravo\n"}, {})
    return daemon


@pytest.fixture
def client(daemon):
    with connect(daemon.addresses[0], timeout=60) as client:
        yield client


def test_an_edit_is_repeated_on_the_content_that_another_program_saved(daemon, client):
    file = daemon.workspace / "memory" / "a.md"
    tool = MemoryTool(Interrupted(client, "write", lambda: file.write_text("zero\nalpha\nbravo\n", "utf-8")))
    text = tool.execute({"command": "str_replace", "path": "/memories/a.md", "old_str": "bravo", "new_str": "beta"})
    assert text.endswith("\n     1\tzero\n     2\talpha\n     3\tbeta")
    assert file.read_text("utf-8") == "zero\nalpha\nbeta\n"


def test_an_edit_whose_text_another_program_removed_is_refused(daemon, client):
    file = daemon.workspace / "memory" / "a.md"
    tool = MemoryTool(Interrupted(client, "write", lambda: file.write_text("alpha\n", "utf-8")))
    text = tool.execute({"command": "str_replace", "path": "/memories/a.md", "old_str": "bravo", "new_str": "beta"})
    assert text == "No replacement was performed, old_str `bravo` did not appear verbatim in /memories/a.md."
    assert file.read_text("utf-8") == "alpha\n"


def test_an_edit_of_a_file_that_changes_each_time_is_given_up_and_changes_nothing(daemon, client):
    file = daemon.workspace / "memory" / "a.md"
    changes = [lambda number=number: file.write_text(f"bravo {number}\n", "utf-8") for number in range(9)]
    tool = MemoryTool(Interrupted(client, "write", *changes))
    text = tool.execute({"command": "insert", "path": "/memories/a.md", "insert_line": 1, "insert_text": "beta"})
    assert text.startswith("Error: The file /memories/a.md was changed by another program at the same time, 5 times")
    assert file.read_text("utf-8") == "bravo 4\n"


def test_a_file_that_disappears_before_its_deletion_or_move_does_not_exist(daemon, client):
    file = daemon.workspace / "memory" / "a.md"
    gone = MemoryTool(Interrupted(client, "write", file.unlink))
    assert gone.execute({"command": "delete", "path": "/memories/a.md"}) == (
        "Error: The path /memories/a.md does not exist"
    )
    file.write_text("alpha\n", "utf-8")
    gone = MemoryTool(Interrupted(client, "move", file.unlink))
    assert gone.execute({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"}) == (
        "Error: The path /memories/a.md does not exist"
    )


def test_a_file_is_not_moved_over_one_that_appears_at_the_destination(daemon, client):
    other = daemon.workspace / "memory" / "b.md"
    tool = MemoryTool(Interrupted(client, "move", lambda: other.write_text("other\n", "utf-8")))
    assert tool.execute({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"}) == (
        "Error: The destination /memories/b.md already exists"
    )
    assert other.read_text("utf-8") == "other\n"


@pytest.mark.parametrize("command", ["view", "create", "str_replace", "insert", "delete", "rename"])
def test_a_path_outside_memories_is_refused_without_a_call(command):
    more = {"file_text": "x", "old_str": "x", "new_str": "x", "insert_line": 0, "insert_text": "x"}
    for path in (
        "",
        "a.md",
        "/",
        "/etc/passwd",
        "memories/a.md",
        "/memoriesx/a.md",
        "//memories/a.md",
        "/Memories/a.md",
        "/memories/../MEMORY.md",
        "/memories/x/../../MEMORY.md",
        "/memories/./a.md",
        "/memories/..",
        "/memories/..%2fa.md",
        "/memories/%2E%2e/a.md",
        "/memories/..\\a.md",
        "/memories/a\x00.md",
        "/memories/a\n.md",
    ):
        # The object is no client, so that each call would fail.
        tool = MemoryTool(object())
        for paths in ({"path": path, "old_path": path, "new_path": "/memories/b.md"}, {"old_path": "/memories/a.md"}):
            given = {"command": command, "path": path, "new_path": path} | paths
            assert f"Error: The path {path} is not valid." in tool.execute(given | more)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"command": "view", "path": 5}, "`path` must be a string"),
        ({"command": "view", "path": "/memories/\ud800.md"}, "`path` is not valid Unicode text"),
        ({"command": "view", "path": "/memories/a.md", "view_range": [1]}, "a list of two integers"),
        ({"command": "view", "path": "/memories/a.md", "view_range": [3, 2]}, "[3, 2]. Its second element"),
        ({"command": "view", "path": "/memories/a.md", "view_range": [1, True]}, "It should be an integer"),
        ({"command": "insert", "path": "/memories/a.md", "insert_line": "1", "insert_text": ""}, "an integer"),
        ({"command": "str_replace", "path": "/memories/a.md", "old_str": "", "new_str": ""}, "must not be empty"),
        ({"command": "create", "path": "/memories/a/", "file_text": ""}, "names a directory, not a file"),
        ({"command": None}, "`command` is missing"),
        (["view"], "The input must be an object"),
    ],
)
def test_arguments_that_are_not_valid_are_named_without_a_call(given, part):
    assert part in MemoryTool(object()).execute(given)


def test_a_file_that_is_not_utf8_is_shown_and_deleted_but_not_edited(daemon, client):
    (daemon.workspace / "memory" / "old.md").write_bytes(b"caf\xe9\nbar\n")
    tool = MemoryTool(client)
    assert tool.execute({"command": "view", "path": "/memories/old.md"}).endswith("     1\tcaf\ufffd\n     2\tbar")
    replaced = tool.execute({"command": "str_replace", "path": "/memories/old.md", "old_str": "bar", "new_str": "b"})
    assert replaced == "Error: The file /memories/old.md is not UTF-8 or has a line that is too long to edit"
    assert tool.execute({"command": "delete", "path": "/memories/old.md"}) == "Successfully deleted /memories/old.md"


def test_a_line_that_is_too_long_to_read_is_marked_and_not_edited(daemon, client):
    (daemon.workspace / "memory" / "long.md").write_text(f"one\n{'x' * 300_000}\nthree\n", "utf-8")
    tool = MemoryTool(client)
    shown = tool.execute({"command": "view", "path": "/memories/long.md"})
    assert shown.endswith("\n     3\tthree\n(Line 2 is too long: only its beginning is shown)")
    text = tool.execute({"command": "insert", "path": "/memories/long.md", "insert_line": 0, "insert_text": "zero"})
    assert text.startswith("Error: The file /memories/long.md is not UTF-8 or has a line that is too long")


def test_a_file_of_several_pages_is_read_as_one_version(daemon, client):
    file = daemon.workspace / "memory" / "pages.md"
    file.write_text("".join(f"line {number}\n" for number in range(1, 4502)), "utf-8")
    changed = file.read_text("utf-8").replace("line 1\n", "first line\n")
    # The file changes before its second page is read.
    tool = MemoryTool(Interrupted(client, "get", lambda: None, lambda: file.write_text(changed, "utf-8")))
    lines = tool.execute({"command": "view", "path": "/memories/pages.md"}).splitlines()
    assert lines[1] == "     1\tfirst line"
    assert lines[-1] == "  4501\tline 4501"
    text = tool.execute(
        {"command": "str_replace", "path": "/memories/pages.md", "old_str": "line 4501\n", "new_str": "last\n"}
    )
    assert text.endswith("\n  4499\tline 4499\n  4500\tline 4500\n  4501\tlast")
    assert tool.execute({"command": "view", "path": "/memories/pages.md", "view_range": [1999, 2001]}).endswith(
        "\n  1999\tline 1999\n  2000\tline 2000\n  2001\tline 2001"
    )


def test_all_pages_of_a_list_are_shown_without_hidden_files(daemon, client):
    for name in ("b.md", "c.md", "d.md", ".hidden.md", "node_modules/e.md", "f/g/h.md"):
        daemon.write(daemon.workspace / "memory", name, "x")
    assert MemoryTool(SmallPages(client)).execute({"command": "view", "path": "/memories"}).splitlines()[1:] == [
        "16B\t/memories",
        "12B\t/memories/a.md",
        "1B\t/memories/b.md",
        "1B\t/memories/c.md",
        "1B\t/memories/d.md",
        "1B\t/memories/f/",
        "1B\t/memories/f/g/",
    ]


def test_a_name_with_control_characters_adds_no_line_to_a_list(daemon, client):
    for name in ("b\n9K\tc.md", "d\x1b/e.md"):
        daemon.write(daemon.workspace / "memory", name, "x")
    assert MemoryTool(client).execute({"command": "view", "path": "/memories"}).split("\n")[2:] == [
        "12B\t/memories/a.md",
        "1B\t/memories/b�9K�c.md",
        "1B\t/memories/d�/",
        "1B\t/memories/d�/e.md",
    ]


def test_a_directory_is_not_renamed_over_a_file_or_directory_or_into_itself(daemon, client):
    for name in ("d/one.md", "d/two.md", "e/one.md"):
        daemon.write(daemon.workspace / "memory", name, "x")
    tool = MemoryTool(client)
    for target, text in (
        ("/memories/e", "The destination /memories/e already exists"),
        ("/memories/a.md", "The destination /memories/a.md already exists"),
        ("/memories", "The destination /memories already exists"),
        ("/memories/d/f", "Cannot rename /memories/d to a path below itself"),
    ):
        assert tool.execute({"command": "rename", "old_path": "/memories/d", "new_path": target}) == f"Error: {text}"
    names = sorted(path.name for path in (daemon.workspace / "memory" / "d").iterdir())
    assert names == ["one.md", "two.md"]


def test_without_edits_files_can_be_viewed_and_writes_raise_the_error_of_the_client(daemons):
    daemon = daemons(plain=True)
    daemon.reset({"memory/a.md": "alpha\n"}, {})
    with connect(daemon.addresses[0], timeout=60) as client:
        tool = MemoryTool(client, agent_id="main")
        assert tool.execute({"command": "view", "path": "/memories/a.md"}).endswith("\n     1\talpha")
        with pytest.raises(MemorydError) as caught:
            tool.execute({"command": "delete", "path": "/memories/a.md"})
    assert caught.value.reason == "EDITS_DISABLED"


def test_an_agent_that_does_not_exist_raises_the_error_of_the_client(client):
    with pytest.raises(MemorydError) as caught:
        MemoryTool(client, "unknown-agent").execute({"command": "view", "path": "/memories"})
    assert caught.value.code == grpc.StatusCode.NOT_FOUND


def test_the_example_executes_the_calls_on_its_input(daemon, tmp_path):
    blocks = [
        {"id": "toolu_1", "input": {"command": "create", "path": "/memories/day.md", "file_text": "été\n"}},
        {"id": "toolu_2", "input": {"command": "view", "path": "/memories/day.md"}},
    ]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env=environment(tmp_path) | {"MEMORYD_ADDRESS": daemon.addresses[0]},
        input="".join(f"{json.dumps(block)}\n" for block in blocks),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": "File created successfully at: /memories/day.md",
        },
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": "Here's the content of /memories/day.md with line numbers:\n     1\tété",
        },
    ]


@example(["a.md"])
@given(st.lists(st.text(st.sampled_from(".amd1é "), min_size=1, max_size=6), min_size=1, max_size=3))
def test_the_path_in_a_list_names_the_listed_file(names):
    file = "/".join(["memory", *(f"{name}x" if name in {".", ".."} else name for name in names)]) + ".md"
    assert parse_path(listed_path(file).given).file == file


def test_sizes_are_shown_as_in_the_documentation_of_the_tool():
    sizes = {0: "0B", 1023: "1023B", 1024: "1K", 5632: "5.5K", 1_258_291: "1.2M", 3 << 30: "3G"}
    assert {size: human_size(size) for size in sizes} == sizes


def test_lines_of_occurrences_are_each_named_once_and_at_most_a_hundred():
    assert lines_of_occurrences("aaa\nb\na\n", "a") == "1, 3"
    assert lines_of_occurrences("a\n" * 200, "a").endswith("99, 100 and others")
