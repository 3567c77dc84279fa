"""An editor that saves a file by renaming, again and again, until its standard input is closed.

Arguments: the file, and `locking` or `blind`. Each save adds a line to what was read. A locking editor holds the file's
lock from reading to renaming. A blind one does not, and so loses what others wrote in between. Writes the lines that it
lost as a JSON list.
"""

import fcntl
import json
import os
import select
import sys
from pathlib import Path

PAUSE_SECONDS = 0.003


def whole(descriptor):
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def opened(file, locking):
    while True:
        descriptor = os.open(file, os.O_RDONLY)
        if not locking:
            return descriptor
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            return descriptor
        os.close(descriptor)


def save(file, number, locking):
    """Saves once, and returns the lines that another program wrote between the reading and the renaming."""
    descriptor = opened(file, locking)
    read = whole(descriptor)
    beside = file.with_name(".editor.tmp")
    beside.write_bytes(read + f"edit {number}\n".encode())
    beside.rename(file)
    lost = set(whole(descriptor).splitlines()) - set(read.splitlines())
    os.close(descriptor)
    return lost


def main():
    file, locking = Path(sys.argv[1]), sys.argv[2] == "locking"
    lost, number = set(), 0
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        number += 1
        lost |= save(file, number, locking)
    sys.stdout.write(json.dumps([number, sorted(line.decode() for line in lost)]))


if __name__ == "__main__":
    main()
