"""The table of cases, and how one of them is played with a client."""

import itertools
import json
import os
from pathlib import Path

from clients.case_run import CaseRun
from clients.daemon_fixture import ClientsDaemon, has_ipv6
from rpc.agent_calls import HAS_LANCEDB

TABLE = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))

_ABSENT = {
    "entries": "" if HAS_LANCEDB else "LanceDB is missing: `make setup-lancedb` installs it",
    "ipv6": "" if has_ipv6() else "this machine has no IPv6 loopback",
}
_VALUES = {"long": "".join(f"line {number}\n" for number in range(1, 3001)), "big": "x" * 5_000_000}
_NUMBERS = itertools.count(1)


def cases():
    """Each case with each transport that it is for."""
    return [(case, over) for case in TABLE["cases"] for over in case.get("over", ["unix", "tls"])]


def missing(case):
    """Why a case cannot be played here; empty when it can."""
    return next(filter(None, (_ABSENT[need] for need in case.get("needs", []))), "")


def run_case(case, over, runners, daemons, folder):
    """Plays a case; `folder` is its scratch place."""
    daemon = daemons(plain=over == "plain")
    unique = f"u{os.getpid()}x{next(_NUMBERS)}"
    player = CaseRun(daemon, None, over, {**_VALUES, "scratch": str(folder), "unique": unique})
    daemon.reset(TABLE["workspace"] | player.filled(case.get("files", {})), TABLE["transcripts"])
    player.saved |= daemon.values()
    player.saved["dialled"] = daemon.connection(over)["address"].removeprefix("unix:")
    _scratch(folder, case, player)
    given = {"HOME": str(folder), **player.filled(case["environment"])} if "environment" in case else None
    with runners(given) as player.runner:
        if given is None:
            player.runner.connect(**daemon.connection(over))
        player.run(case["steps"])


def _scratch(folder, case, player):
    for path, text in case.get("scratch", {}).items():
        ClientsDaemon.write(folder, path, player.filled(text)).chmod(0o600)
    for path, target in case.get("links", {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(player.filled(target))
