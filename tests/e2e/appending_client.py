"""A client process that appends until all of its texts are taken, whatever happens to the daemon meanwhile.

Arguments: address, name, number of texts. Each text is sent under a key of its own, again and again until it is
answered. Writes one JSON line for each answer.
"""

import json
import sys
import time

from grpc import StatusCode

from memoryd.client import MemorydError, connect

PATIENCE_SECONDS = 300


def text_of(name, number):
    """Some texts are of one line, some of many disk pages."""
    filler = f"\n  {name} went on about the reeds" * (400 if number % 5 == 4 else 2)
    return f"- {name}-{number} begins{filler}\n- {name}-{number} ends"


def taken(address, name, number):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            # A connection of its own each time: an old one would wait before it dials again.
            with connect(address, timeout=20.0) as client:
                return client.append(
                    text=text_of(name, number), path="memory/log.md", idempotency_key=f"{name}-{number}"
                )
        except MemorydError as error:
            if time.monotonic() > until or error.code not in {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}:
                raise
            time.sleep(0.02)


def main():
    address, name, count = sys.argv[1:]
    for number in range(int(count)):
        answer = taken(address, name, number)
        line = {"number": number, "first": answer.start_line, "last": answer.end_line}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
