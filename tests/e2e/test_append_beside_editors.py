"""Clients append while an editor saves the same file by renaming: only a stale save loses text, and none is doubled."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from e2e.daemon_fixture import client
from memoryd.client import MemorydError
from waiting import wait_until

pytestmark = pytest.mark.faults

EDITOR = Path(__file__).with_name("saving_editor.py")
LOG = "memory/log.md"
CLIENTS = 4
EACH = 25


class Editor:
    def __init__(self, file, kind):
        command = [sys.executable, str(EDITOR), str(file), kind]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self):
        """Returns how often it saved, and the lines that it lost."""
        output, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        count, lost = json.loads(output)
        return count, set(lost)


def append_all(served, name, taken):
    with client(served) as connection:
        for number in range(EACH):
            text, key = f"{name}-{number}", f"{name}-{number}" if number % 2 else ""
            for _ in range(100):
                try:
                    connection.append(text=text, path=LOG, idempotency_key=key, timeout=20)
                except MemorydError as error:
                    if error.reason != "INDEX_BUSY":
                        raise
                    if not key:
                        break
                else:
                    taken.append(text)
                    break


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["locking", "blind"])
def test_acknowledged_text_is_lost_only_by_a_save_of_what_was_read_before_it(daemons, kind):
    daemons.configure(watch=False)
    log = daemons.write(LOG, "# Log\n")
    served = daemons.start()
    editor, taken = Editor(log, kind), []
    wait_until(lambda: "edit 1\n" in log.read_text())
    threads = [threading.Thread(target=append_all, args=(served, f"client{n}", taken)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    saves, lost = editor.end()
    assert saves > 10
    lines = log.read_text().splitlines()
    assert len(taken) > CLIENTS * EACH / 2
    if kind == "locking":
        assert (len(taken), lost) == (CLIENTS * EACH, set())
    assert len(set(lines)) == len(lines), "a text is there twice"
    assert set(taken) - lost <= set(lines)
    # What was lost is known to the ledger as done, and the file is right from here on.
    with client(served) as connection:
        connection.append(text="the last one", path=LOG)
    assert log.read_text().endswith("the last one\n")
