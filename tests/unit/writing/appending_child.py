"""A process that appends, run by the tests of `writing`; dies by SIGKILL at the step that it is told.

Arguments: workspace, ledger, path, key, text, step (`ledger`, `middle`, `written` or `none`), count.
"""

import os
import signal
import sys

from patient import PatientAppender

from memoryd_server.writing import ledger, memory_file


def die(*_arguments, **_named):
    os.kill(os.getpid(), signal.SIGKILL)


def write_half(fd, data):
    os.write(fd, data[: len(data) // 2])
    die()


def main():
    workspace, ledger_path, path, key, text, step, count = sys.argv[1:]
    if step == "ledger":
        memory_file.MemoryFile.write = die
    elif step == "middle":
        memory_file.write_all = write_half
    elif step == "written":
        ledger.Ledger.settle = die
    appender = PatientAppender(workspace, ledger_path)
    for number in range(int(count)):
        appender.append(text.format(number), path=path, idempotency_key=key.format(number))


main()
