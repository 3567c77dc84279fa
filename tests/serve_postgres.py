"""Run `memoryd serve` on a PostgreSQL server of its own, which keeps its data: `make serve-postgres`.

Usage: serve_postgres.py FOLDER WORKSPACE COMMAND... FOLDER gets the data of the server, and a state directory `state`
with the settings that select it. The memory files of WORKSPACE are imported before the daemon starts; those that the
database has already are kept. The server listens on a Unix socket that only this user can open, and has no passwords.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from postgres_server import IS_ROOT, PostgresServer, missing

# The path of a socket has at most 107 bytes.
MAX_PATH_BYTES = 107 - len("/server/.s.PGSQL.5432")


def main(folder, workspace, command):
    if reason := missing():
        return reason
    if len(os.fsencode(folder)) > MAX_PATH_BYTES:
        return f"{folder} is too long for the path of a socket: at most {MAX_PATH_BYTES} bytes"
    state, data = folder / "state", folder / "server"
    for each in (state, data):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    if IS_ROOT:
        # The server runs as another user, who must reach its folder.
        for each in (folder, folder.parent):
            each.chmod(0o711)
    try:
        server = PostgresServer(data, durable=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"PostgreSQL does not start: {error}. See {data}/log, or remove {data} to begin with an empty database."
    try:
        text = json.dumps({"memoryd": {"writes": "edit", "store": {"url": server.url}}})
        (state / "memoryd.json5").write_text(f"// `make serve-postgres` overwrites this file.\n{text}\n")
        # A document that was edited differs from its file, and is kept.
        subprocess.run(
            [sys.executable, "-m", "memoryd_server", "import", "folder", workspace, "--state-dir", state],
            check=False,
            stdout=sys.stderr,
        )
        return run(command)
    finally:
        server.stop()


def run(command):
    """Run the daemon to its end, and return its exit status."""
    daemon = subprocess.Popen(command)
    # A terminal sends SIGINT to the daemon too.
    signal.signal(signal.SIGINT, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: daemon.send_signal(received))
    return daemon.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3:]))
