"""A command at a terminal that answers its questions."""

import os
import pty
import re
import select
import subprocess
import time

from daemon_process import COMMAND, environment

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SECONDS = 90


def converse(*arguments, home, answers, variables=()):
    """Run a verb at a terminal. `answers` are pairs: a part of a question, and what to type when it is shown.

    Return the exit code and all that was shown.
    """
    terminal, side = pty.openpty()
    env = {**environment(home), "TERM": "xterm", "COLUMNS": "200", **dict(variables)}
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], env=env, stdin=side, stdout=side, stderr=side)
    os.close(side)
    shown, searched, remaining, deadline = "", 0, list(answers), time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            try:
                data = os.read(terminal, 65_536)
            except OSError:
                # Linux reports the end of a terminal as an error.
                break
            shown += _ESCAPES.sub("", data.decode("utf-8", "replace"))
        while remaining and remaining[0][0] in shown[searched:]:
            searched = shown.index(remaining[0][0], searched) + len(remaining[0][0])
            os.write(terminal, f"{remaining.pop(0)[1]}\n".encode())
    os.close(terminal)
    code = process.wait(_SECONDS)
    assert not remaining, f"not asked: {remaining}; shown: {shown}"
    return code, shown.replace("\r\n", "\n")
