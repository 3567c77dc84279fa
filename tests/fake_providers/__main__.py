"""Runs all servers until Ctrl-C: `make fake-providers`, or `python -m fake_providers [FIRST-PORT]`."""

import json
import signal
import sys

from fake_providers import KINDS, SERVERS
from fake_providers.control import PATH


def main(first_port=8801):
    """Prints where the servers are and what to put into memoryd.json5; with port 0 they are anywhere."""
    servers = [kind(port=first_port and first_port + number) for number, kind in enumerate(SERVERS.values())]
    for server in servers:
        print(f"{server.provider:18} {server.url}")  # noqa: T201 -- it is what the command is for
    for server in servers:
        remote = {"baseUrl": server.url, "apiKey": "any"}
        search = {"provider": server.provider, "model": server.model, "remote": remote}
        print(f"\n// memoryd.json5 for {server.provider}")  # noqa: T201
        print(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))  # noqa: T201
    host = servers[0].url.split("/v1", maxsplit=1)[0]
    print(f"\nFaults: {', '.join(KINDS)}. For example:")  # noqa: T201
    print(f"""  curl -d '{{"fault": "limited", "seconds": 3, "times": 2}}' {host}{PATH}""")  # noqa: T201
    print("Ctrl-C ends them.", flush=True)  # noqa: T201
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    for server in servers:
        server.close()


if __name__ == "__main__":
    # Blocked in every thread, so that `sigwait` is what gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main(*(int(argument) for argument in sys.argv[1:2]))
