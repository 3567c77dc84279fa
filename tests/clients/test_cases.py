"""Every case of the table, with every client, over a Unix socket and over TCP."""

import itertools
import json
import os
from pathlib import Path

import pytest

from certificates import needs_openssl
from clients.ground import Ground, has_ipv6
from clients.languages import every_language
from clients.play import Play
from rpc.agent_calls import HAS_LANCEDB

TABLE = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))
ABSENT = {
    "entries": "" if HAS_LANCEDB else "LanceDB is missing: `make setup-lancedb` installs it",
    "ipv6": "" if has_ipv6() else "this machine has no IPv6 loopback",
    "a limited reader": "" if os.geteuid() else "root reads every file",
}
LONG = "".join(f"line {number}\n" for number in range(1, 3001))
BIG = "x" * 5_000_000
UNIQUE = itertools.count(1)

pytestmark = needs_openssl


def cases():
    for case in TABLE["cases"]:
        for over in case.get("over", ["unix", "tls"]):
            yield pytest.param(case, over, id=f"{over}-{case['name']}")


def scratch(folder, case, play):
    """The files and links that a case wants in a folder of its own."""
    for path, text in case.get("scratch", {}).items():
        Ground.write(folder, path, play.filled(text)).chmod(0o600)
    for path, target in case.get("links", {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(play.filled(target))


@pytest.mark.parametrize("runners", every_language(), indirect=True)
@pytest.mark.parametrize(("case", "over"), list(cases()))
def test_a_client_does_what_the_table_says(runners, case, over, grounds, tmp_path):
    for need in case.get("needs", []):
        if ABSENT[need]:
            pytest.skip(ABSENT[need])
    ground = grounds(plain=over == "plain")
    values = {"scratch": str(tmp_path), "unique": f"u{os.getpid()}x{next(UNIQUE)}", "long": LONG, "big": BIG}
    play = Play(ground, None, over, values)
    ground.reset(TABLE["workspace"] | play.filled(case.get("files", {})), TABLE["transcripts"])
    play.saved |= ground.values()
    scratch(tmp_path, case, play)
    given = {"HOME": str(tmp_path), **play.filled(case["environment"])} if "environment" in case else None
    with runners(given) as play.runner:
        if given is None:
            play.runner.connect(**ground.connection(over))
        play.run(case["steps"])
