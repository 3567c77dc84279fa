"""A process that changes one file together with others; writes each line that it was told to be in the file.

Arguments: a folder, the role, the name of the process, and the number of changes. Each process is an agent of its own
with the same workspace.
"""

import contextlib
import random
import sys
from pathlib import Path

from memoryd_server.errors import ContentChanged, FileBusy
from memoryd_server.writing import FileDeletion, LineInsertion, NewContent
from unit.writing.edit_fixture import EditFixture, digest
from unit.writing.patient import PatientAppender

NOTE = "memory/note.md"


def append(edits, name, count):
    appender = PatientAppender(edits.workspace, edits.ledger)
    for number in range(count):
        line = f"{name} {number} end"
        appender.append(line, path=NOTE, idempotency_key=line)
        sys.stdout.write(line + "\n")


def insert(edits, name, count):
    """Insert lines at random places, each as often as it takes."""
    chance = random.Random(name)
    for number in range(count):
        line = f"{name} {number} end"
        while True:
            data = read(edits)
            place = chance.randint(0, data.count(b"\n")) if data else 0
            change = NewContent(line.encode() + b"\n") if data is None else LineInsertion(place, line.encode())
            with contextlib.suppress(ContentChanged, FileBusy):
                edits.write(NOTE, change, expected=digest(data))
                break
        sys.stdout.write(line + "\n")


def churn(edits, name, count):
    """Delete the file, restore it, and move it to other names."""
    deleted = None
    for number in range(count):
        with contextlib.suppress(ContentChanged, FileBusy):
            data = read(edits)
            if data is None:
                if deleted:
                    edits.restore(deleted.version_id, expected=None)
            elif number % 2:
                deleted = edits.write(NOTE, FileDeletion(), expected=digest(data))
            else:
                edits.move(NOTE, f"memory/{name}-{number}.md", expected=digest(data))


def shuffle(edits, name, count):
    """Move the file away and back."""
    other = f"memory/{name}.md"
    for number in range(2 * count):
        path, new_path = (other, NOTE) if number % 2 else (NOTE, other)
        with contextlib.suppress(ContentChanged, FileBusy, FileNotFoundError):
            edits.move(path, new_path, expected=digest(edits.file(path).read_bytes()))


def read(edits):
    with contextlib.suppress(FileNotFoundError):
        return edits.file(NOTE).read_bytes()
    return None


def main():
    folder, role, name, count = sys.argv[1:]
    edits = EditFixture(Path(folder), agent=name, prefix=name)
    {"append": append, "insert": insert, "churn": churn, "shuffle": shuffle}[role](edits, name, int(count))
    edits.close()


if __name__ == "__main__":
    main()
